// Alternative: the naive kernel gives a warp to each output; the tiled one makes a 32 x 32 tile with 256
// threads, four outputs each, from float32 tiles whose rows are padded by one.
#include <cuda_bf16.h>

extern "C" __global__ void matmul_naive(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ w, int M, int N, int K) {
    const long long output = (long long)blockIdx.x * blockDim.y + threadIdx.y;
    if (output >= (long long)M * N) return;
    const __nv_bfloat16* left = x + output / N * K;
    const __nv_bfloat16* right = w + output % N * K;
    float sum = 0.0f;
    for (int k = threadIdx.x; k < K; k += 32) sum += __bfloat162float(left[k]) * __bfloat162float(right[k]);
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_down_sync(0xffffffff, sum, distance);
    if (threadIdx.x == 0) out[output] = __float2bfloat16(sum);
}

extern "C" __global__ void matmul_tiled(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ w, int M, int N, int K) {
    __shared__ float left[32][33], right[32][33];
    const int column = threadIdx.x, first_row = threadIdx.y;
    const int m0 = blockIdx.y * 32, n0 = blockIdx.x * 32;
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k0 = 0; k0 < K; k0 += 32) {
        for (int row = first_row; row < 32; row += 8) {
            const int k = k0 + column, m = m0 + row, n = n0 + row;
            left[row][column] = m < M && k < K ? __bfloat162float(x[(long long)m * K + k]) : 0.0f;
            right[row][column] = n < N && k < K ? __bfloat162float(w[(long long)n * K + k]) : 0.0f;
        }
        __syncthreads();  // both tiles are complete
        for (int k = 0; k < 32; k++) {
            for (int i = 0; i < 4; i++) sums[i] += left[first_row + 8 * i][k] * right[column][k];
        }
        __syncthreads();  // nobody reads the tiles any more
    }
    for (int i = 0; i < 4; i++) {
        const int m = m0 + first_row + 8 * i, n = n0 + column;
        if (m < M && n < N) out[(long long)m * N + n] = __float2bfloat16(sums[i]);
    }
}
