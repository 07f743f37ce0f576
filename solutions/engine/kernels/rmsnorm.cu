// rmsnorm: out[t, h] = x[t, h] / sqrt(mean over h of x[t, h]² + eps) · weight[h]; two kernels for one formula
//
// out, x     [num_tokens, hidden_size] bf16, contiguous; out is written, x is read (at most twice)
// weight     [hidden_size] bf16
// Launch     launch.toml [rmsnorm_tree] and [rmsnorm], over T = num_tokens, H = hidden_size. Suggested: a
//            block per token, thread i takes the elements i, i + block, i + 2 · block … of its row.
// Must hold  rmsnorm_tree: no shuffles; the usual tree wants a block of 2^k threads and `shared` bytes for a
//            float per thread. rmsnorm: shuffles, so a block of whole warps, and at most 3 barriers.
// Numerics   sums and products in float32, eps inside the root, rounded once to bf16 at the end (rounding
//            before the weight too is allowed).
#include <cuda_bf16.h>

constexpr unsigned ALL_LANES = 0xffffffffu;  // the mask of a shuffle in which a whole warp takes part

extern "C" __global__ void rmsnorm_tree(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ weight, int num_tokens,
                                        int hidden_size, float eps) {
    extern __shared__ float partial[];  // one sum per thread
    const long long row = static_cast<long long>(blockIdx.x) * hidden_size;
    // s03.1: a sum per thread, then a tree over `partial`
    float sum = 0.0f;
    for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
        const float value = __bfloat162float(x[row + i]);
        sum += value * value;
    }
    partial[threadIdx.x] = sum;

    // At each level the lower half of the remaining threads adds the upper half's sums to its own.
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();  // the previous level's sums are written before they are read
        if (threadIdx.x < half) {
            partial[threadIdx.x] += partial[threadIdx.x + half];
        }
    }
    __syncthreads();  // thread 0 has written the total that every thread reads

    // A row of zeros has mean 0: eps alone keeps the root from 0.
    const float reciprocal = rsqrtf(partial[0] / hidden_size + eps);
    for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
        out[row + i] =
            __float2bfloat16(__bfloat162float(x[row + i]) * reciprocal * __bfloat162float(weight[i]));
    }
}

extern "C" __global__ void rmsnorm(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                   const __nv_bfloat16* __restrict__ weight, int num_tokens, int hidden_size,
                                   float eps) {
    const long long row = static_cast<long long>(blockIdx.x) * hidden_size;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    // s03.2: a sum per thread, then per warp, then per block
    __shared__ float warp_sums[32];  // a block has at most 1,024 threads, so at most 32 warps
    float sum = 0.0f;
    for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
        const float value = __bfloat162float(x[row + i]);
        sum += value * value;
    }

    // Lanes exchange sums through registers, in pairs 16, 8, 4, 2 and 1 apart: no barrier needed.
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    }
    if (lane == 0) {
        warp_sums[warp] = sum;
    }
    __syncthreads();  // every warp's sum is written before any thread adds them up

    // All threads add the few sums themselves: cheaper than electing one and waiting for it.
    float total = 0.0f;
    for (int w = 0; w < num_warps; w++) {
        total += warp_sums[w];
    }
    const float reciprocal = rsqrtf(total / hidden_size + eps);
    for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
        out[row + i] =
            __float2bfloat16(__bfloat162float(x[row + i]) * reciprocal * __bfloat162float(weight[i]));
    }
}
