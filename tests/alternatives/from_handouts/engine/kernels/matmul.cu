// An alternative solution, written from the handouts alone.
// matmul: out[m, n] = sum over k of x[m, k] · w[n, k]. Both grids have one dimension, so M and N are not limited by it.
// matmul_naive: the elements of out, row after row, are shared out to the threads of the grid.
// matmul_tiled: a block of 256 threads makes a 32 × 32 tile of out, four elements per thread.
#include <cuda_bf16.h>

constexpr int TILE = 32;   // rows and columns of out per block
constexpr int DEPTH = 16;  // how far along k a block goes in one step
constexpr int SIDE = 16;   // the 256 threads stand in a square of this side

extern "C" __global__ void matmul_naive(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ w, int M, int N, int K) {
    const long long element = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (element >= static_cast<long long>(M) * N) {
        return;
    }
    const __nv_bfloat16* x_row = x + element / N * K;
    const __nv_bfloat16* w_row = w + element % N * K;
    float sum = 0.0f;
    for (int k = 0; k < K; k++) {
        sum += __bfloat162float(x_row[k]) * __bfloat162float(w_row[k]);
    }
    out[element] = __float2bfloat16(sum);
}

// Brings rows first_row … of a [num_rows, K] matrix, columns first_k …, to shared memory; zeros past its edges.
__device__ void load_tile(float (*tile)[DEPTH + 1], const __nv_bfloat16* matrix, long long first_row,
                          int num_rows, int first_k, int K) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += blockDim.x) {
        const int row = i / DEPTH, k = i % DEPTH;  // neighbouring threads load neighbours along k
        const bool inside = first_row + row < num_rows && first_k + k < K;
        tile[row][k] = inside ? __bfloat162float(matrix[(first_row + row) * K + first_k + k]) : 0.0f;
    }
}

extern "C" __global__ void matmul_tiled(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ w, int M, int N, int K) {
    __shared__ float x_tile[TILE][DEPTH + 1], w_tile[TILE][DEPTH + 1];  // rows of 17 words: no bank conflicts
    const int tiles_along_n = (N + TILE - 1) / TILE;
    const long long first_m = static_cast<long long>(blockIdx.x / tiles_along_n) * TILE;
    const long long first_n = static_cast<long long>(blockIdx.x % tiles_along_n) * TILE;
    const int column = threadIdx.x % SIDE, line = threadIdx.x / SIDE;

    float sums[2][2] = {};  // elements (line, column), and those SIDE further on
    for (int first_k = 0; first_k < K; first_k += DEPTH) {
        load_tile(x_tile, x, first_m, M, first_k, K);
        load_tile(w_tile, w, first_n, N, first_k, K);
        __syncthreads();  // both tiles are whole before they are multiplied
        for (int k = 0; k < DEPTH; k++) {
            for (int i = 0; i < 2; i++) {
                for (int j = 0; j < 2; j++) {
                    sums[i][j] += x_tile[line + i * SIDE][k] * w_tile[column + j * SIDE][k];
                }
            }
        }
        __syncthreads();  // all have read the tiles before the next step overwrites them
    }
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 2; j++) {
            const long long m = first_m + line + i * SIDE, n = first_n + column + j * SIDE;
            if (m < M && n < N) {
                out[m * N + n] = __float2bfloat16(sums[i][j]);
            }
        }
    }
}
