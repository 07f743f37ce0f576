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
    // s06.1: the dot product of row m of x and row n of w
    if (m >= M || n >= N) {
        return;
    }
    const __nv_bfloat16* x_row = x + static_cast<long long>(m) * K;
    const __nv_bfloat16* w_row = w + static_cast<long long>(n) * K;
    float sum = 0.0f;
    for (int k = 0; k < K; k++) {
        sum += __bfloat162float(x_row[k]) * __bfloat162float(w_row[k]);
    }
    out[static_cast<long long>(m) * N + n] = __float2bfloat16(sum);
}

extern "C" __global__ void matmul_tiled(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ w, int M, int N, int K) {
    const int m = blockIdx.y * blockDim.y + threadIdx.y;
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    // s06.2: bring tiles of x and w to shared memory, multiply there
    constexpr int TILE = 16;   // rows and columns of the block's part of `out`: TILE x TILE threads
    constexpr int DEPTH = 32;  // columns of x and w held at a time: a warp loads one row of them

    // One column more than needed: else the threads of a warp, a row apart, would all hit the same bank.
    __shared__ float x_tile[TILE][DEPTH + 1], w_tile[TILE][DEPTH + 1];
    const int thread = threadIdx.y * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < K; start += DEPTH) {
        // Elements past an edge become 0 and add nothing; threads past one still load and wait.
        for (int i = thread; i < TILE * DEPTH; i += TILE * TILE) {
            const int row = i / DEPTH, column = i % DEPTH, k = start + column;
            const long long x_row = blockIdx.y * TILE + row, w_row = blockIdx.x * TILE + row;
            x_tile[row][column] = x_row < M && k < K ? __bfloat162float(x[x_row * K + k]) : 0.0f;
            w_tile[row][column] = w_row < N && k < K ? __bfloat162float(w[w_row * K + k]) : 0.0f;
        }
        __syncthreads();  // both tiles are complete before any thread reads them

        for (int k = 0; k < DEPTH; k++) {
            sum += x_tile[threadIdx.y][k] * w_tile[threadIdx.x][k];
        }
        __syncthreads();  // every thread is done with the tiles before the next ones replace them
    }
    if (m < M && n < N) {
        out[static_cast<long long>(m) * N + n] = __float2bfloat16(sum);
    }
}
