// Matrix products as courses build them up: C [m, n] = alpha A [m, k] B [k, n] + beta C, all float.
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define FLOAT4(value) (reinterpret_cast<float4*>(&(value))[0])

typedef unsigned int uint;

// A thread an element; neighbours in a row are neighbours in a warp.
template <const uint BLOCK>
__device__ void gemm_coalesced(int m, int n, int k, float alpha, const float* a, const float* b, float beta,
                               float* c) {
    const uint row = blockIdx.x * BLOCK + threadIdx.x / BLOCK,
               column = blockIdx.y * BLOCK + threadIdx.x % BLOCK;
    if (row >= m || column >= n) return;
    float sum = 0.0;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}

// Squares of A and B in shared memory; whole tiles only.
template <const int BLOCK>
__device__ void gemm_shared(int m, int n, int k, float alpha, const float* A, const float* B, float beta,
                            float* C) {
    __shared__ float As[BLOCK * BLOCK];
    __shared__ float Bs[BLOCK * BLOCK];
    const uint row = threadIdx.x / BLOCK, column = threadIdx.x % BLOCK;
    A += blockIdx.x * BLOCK * k;
    B += blockIdx.y * BLOCK;
    C += blockIdx.x * BLOCK * n + blockIdx.y * BLOCK;
    float sum = 0.0;
    for (int begin = 0; begin < k; begin += BLOCK) {
        As[row * BLOCK + column] = A[row * k + column];
        Bs[row * BLOCK + column] = B[row * n + column];
        __syncthreads();
        A += BLOCK;
        B += BLOCK * n;
        for (int i = 0; i < BLOCK; ++i) sum += As[row * BLOCK + i] * Bs[i * BLOCK + column];
        __syncthreads();
    }
    C[row * n + column] = alpha * sum + beta * C[row * n + column];
}

// Each thread a column of TM results.
template <const int BM, const int BN, const int BK, const int TM>
__device__ void gemm_column(int M, int N, int K, float alpha, const float* A, const float* B, float beta,
                            float* C) {
    const int row = threadIdx.x / BN, column = threadIdx.x % BN;
    __shared__ float As[BM * BK];
    __shared__ float Bs[BK * BN];
    A += blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += blockIdx.y * BM * N + blockIdx.x * BN;
    assert(BM * BK == blockDim.x);
    assert(BN * BK == blockDim.x);
    const uint a_row = threadIdx.x / BK, a_column = threadIdx.x % BK;
    const uint b_row = threadIdx.x / BN, b_column = threadIdx.x % BN;
    float results[TM] = {0.0};
    for (uint begin = 0; begin < K; begin += BK) {
        As[a_row * BK + a_column] = A[a_row * K + a_column];
        Bs[b_row * BN + b_column] = B[b_row * N + b_column];
        __syncthreads();
        A += BK;
        B += BK * N;
        for (uint dot = 0; dot < BK; ++dot) {
            const float b = Bs[dot * BN + column];
            for (uint i = 0; i < TM; ++i) results[i] += As[(row * TM + i) * BK + dot] * b;
        }
        __syncthreads();
    }
    for (uint i = 0; i < TM; ++i) {
        float* target = &C[(row * TM + i) * N + column];
        *target = alpha * results[i] + beta * *target;
    }
}

// Each thread a square of TM x TN results; A is transposed on its way to shared memory, all loads are float4.
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__device__ void gemm_square(int M, int N, int K, float alpha, float* A, float* B, float beta, float* C) {
    __shared__ float As[BM * BK];
    __shared__ float Bs[BK * BN];
    const int thread_column = threadIdx.x % (BN / TN), thread_row = threadIdx.x / (BN / TN);
    A += blockIdx.y * BM * K;
    B += blockIdx.x * BN;
    C += blockIdx.y * BM * N + blockIdx.x * BN;
    const uint a_row = threadIdx.x / (BK / 4), a_column = threadIdx.x % (BK / 4);
    const uint b_row = threadIdx.x / (BN / 4), b_column = threadIdx.x % (BN / 4);
    float results[TM * TN] = {0.0}, of_m[TM] = {0.0}, of_n[TN] = {0.0};
    for (uint begin = 0; begin < K; begin += BK) {
        float4 loaded = reinterpret_cast<float4*>(&A[a_row * K + a_column * 4])[0];
        As[(a_column * 4 + 0) * BM + a_row] = loaded.x;
        As[(a_column * 4 + 1) * BM + a_row] = loaded.y;
        As[(a_column * 4 + 2) * BM + a_row] = loaded.z;
        As[(a_column * 4 + 3) * BM + a_row] = loaded.w;
        FLOAT4(Bs[b_row * BN + b_column * 4]) = FLOAT4(B[b_row * N + b_column * 4]);
        __syncthreads();
        A += BK;
        B += BK * N;
#pragma unroll
        for (uint dot = 0; dot < BK; ++dot) {
            for (uint i = 0; i < TM; ++i) of_m[i] = As[dot * BM + thread_row * TM + i];
            for (uint i = 0; i < TN; ++i) of_n[i] = Bs[dot * BN + thread_column * TN + i];
            for (uint i = 0; i < TM; ++i) {
                for (uint j = 0; j < TN; ++j) results[i * TN + j] += of_m[i] * of_n[j];
            }
        }
        __syncthreads();
    }
    for (uint i = 0; i < TM; i += 1) {
        for (uint j = 0; j < TN; j += 4) {
            float4 old = reinterpret_cast<float4*>(&C[(thread_row * TM + i) * N + thread_column * TN + j])[0];
            old.x = alpha * results[i * TN + j] + beta * old.x;
            old.y = alpha * results[i * TN + j + 1] + beta * old.y;
            old.z = alpha * results[i * TN + j + 2] + beta * old.z;
            old.w = alpha * results[i * TN + j + 3] + beta * old.w;
            reinterpret_cast<float4*>(&C[(thread_row * TM + i) * N + thread_column * TN + j])[0] = old;
        }
    }
}

// A gradient of a bias: sums of the columns of x [rows, columns], a warp's lanes beside each other, then atomics.
template <class T>
__device__ void column_sums(float* sums, const T* x, int rows, int columns) {
    __shared__ float partial[8][33];
    const int column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    if (column < columns) {
        for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < rows; row += gridDim.y * blockDim.y) {
            sum += static_cast<float>(x[row * columns + column]);
        }
    }
    partial[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
        if (threadIdx.y < half) partial[threadIdx.y][threadIdx.x] += partial[threadIdx.y + half][threadIdx.x];
        __syncthreads();
    }
    if (threadIdx.y == 0 && column < columns) atomicAdd(&sums[column], partial[0][threadIdx.x]);
}

extern "C" {

__global__ void coalesced(float* C, const float* A, const float* B, int M, int N, int K, float alpha,
                          float beta) {
    gemm_coalesced<16>(M, N, K, alpha, A, B, beta, C);
}
__global__ void tiled(float* C, const float* A, const float* B, int M, int N, int K, float alpha,
                      float beta) {
    gemm_shared<16>(M, N, K, alpha, A, B, beta, C);
}
__global__ void blocktiling_1d(float* C, const float* A, const float* B, int M, int N, int K, float alpha,
                               float beta) {
    gemm_column<32, 32, 4, 8>(M, N, K, alpha, A, B, beta, C);
}
__global__ void __launch_bounds__((32 * 32) / (4 * 4), 1)
    blocktiling_2d(float* C, float* A, float* B, int M, int N, int K, float alpha, float beta) {
    gemm_square<32, 32, 8, 4, 4>(M, N, K, alpha, A, B, beta, C);
}
__global__ void bias_backward(float* sums, const float* x, int rows, int columns) {
    column_sums(sums, x, rows, columns);
}

static_assert(CEIL_DIV(5, 2) == 3, "rounded up");
}
