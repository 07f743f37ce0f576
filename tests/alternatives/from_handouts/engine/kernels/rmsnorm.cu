// An alternative solution, written from the handouts alone.
// rmsnorm: out[t, h] = x[t, h] / sqrt(mean over h of x[t, h]² + eps) · weight[h]
// rmsnorm_tree: a block per row and a tree for any block size; rmsnorm: a warp per row, no barrier at all
#include <cuda_bf16.h>

constexpr unsigned ALL_LANES = 0xffffffffu;  // the mask of a shuffle in which a whole warp takes part

// The sum of squares of the elements first, first + step, ... of a row.
__device__ float sum_of_squares(const __nv_bfloat16* row, int hidden_size, int first, int step) {
    float sum = 0.0f;
    for (int h = first; h < hidden_size; h += step) {
        const float value = __bfloat162float(row[h]);
        sum += value * value;
    }
    return sum;
}

// Writes the elements first, first + step, ... of a row, divided by the root of its mean square.
__device__ void write_scaled(__nv_bfloat16* out, const __nv_bfloat16* row, const __nv_bfloat16* weight,
                             float squares, int hidden_size, float eps, int first, int step) {
    const float root = sqrtf(squares / static_cast<float>(hidden_size) + eps);
    for (int h = first; h < hidden_size; h += step) {
        out[h] = __float2bfloat16(__bfloat162float(row[h]) / root * __bfloat162float(weight[h]));
    }
}

extern "C" __global__ void rmsnorm_tree(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ weight, int num_tokens,
                                        int hidden_size, float eps) {
    extern __shared__ float partial[];  // one sum per thread
    const long long row = static_cast<long long>(blockIdx.x) * hidden_size;
    const int thread = threadIdx.x, block = blockDim.x;
    partial[thread] = sum_of_squares(x + row, hidden_size, thread, block);
    __syncthreads();  // all sums are there before others add them
    for (int count = block; count > 1;) {
        const int kept = (count + 1) / 2;  // of an odd count, the middle slot stays as it is
        if (thread < count / 2) {
            partial[thread] += partial[thread + kept];
        }
        __syncthreads();  // this level's sums are read at the next level, or as the total
        count = kept;
    }
    write_scaled(out + row, x + row, weight, partial[0], hidden_size, eps, thread, block);
}

extern "C" __global__ void rmsnorm(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                   const __nv_bfloat16* __restrict__ weight, int num_tokens, int hidden_size,
                                   float eps) {
    const long long token = static_cast<long long>(blockIdx.x) * blockDim.y + threadIdx.y;
    if (token >= num_tokens) {
        return;  // a whole warp leaves: no shuffle misses a lane
    }
    const long long row = token * hidden_size;
    const int lane = threadIdx.x;  // blockDim.x is 32
    float sum = sum_of_squares(x + row, hidden_size, lane, 32);
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    }
    write_scaled(out + row, x + row, weight, sum, hidden_size, eps, lane, 32);
}
