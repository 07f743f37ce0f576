// matmul: out[m, n] = sum over k of x[m, k] · w[n, k], that is out = x · wᵀ; two kernels for one formula
//
// out        [M, N] bf16, contiguous, written; K = 0 gives zeros
// x          [M, K] bf16, one row per token
// w          [N, K] bf16, one row per output feature, as checkpoints store a linear layer
// Launch     launch.toml [matmul_naive] and [matmul_tiled], over M, N, K. Suggested: blocks of 16 × 16
//            threads, one element each; blocks at the edges reach past M and N.
// Must hold  matmul_tiled requests at most M · N · K / 2 bytes of global memory, loads and stores together
//            (matmul_naive reads 4 · M · N · K bytes).
// Numerics   products and sums in float32, in any order; rounded once to bf16.
#include <cuda_bf16.h>

extern "C" __global__ void matmul_naive(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ w, int M, int N, int K) {
    const int m = blockIdx.y * blockDim.y + threadIdx.y;
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    NOT_IMPLEMENTED("s06.1");  // TODO s06.1: the dot product of row m of x and row n of w
}

extern "C" __global__ void matmul_tiled(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ w, int M, int N, int K) {
    const int m = blockIdx.y * blockDim.y + threadIdx.y;
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    NOT_IMPLEMENTED("s06.2");  // TODO s06.2: bring tiles of x and w to shared memory, multiply there
}
