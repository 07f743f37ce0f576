// Kernels that ask the parts of the runtime that depend on the processor: fibers, faults, hooks.

// Sixteen sums that live in registers while the threads take turns.
extern "C" __global__ void float_state(float* out, int rounds) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    double a = i, b = i + 1, c = i + 2, d = i + 3, e = i + 4, f = i + 5, g = i + 6, h = i + 7;
    float k = i, l = i + 1, m = i + 2, n = i + 3;
    for (int round = 0; round < rounds; round++) {
        a += 1, b += 2, c += 3, d += 4, e += 5, f += 6, g += 7, h += 8;
        k += 1, l += 2, m += 3, n += 4;
        if (round % 2 == 0) __syncthreads();
        k += __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    }
    out[i] = a + b + c + d + e + f + g + h + k + l + m + n;
}

extern "C" __global__ void row_sums(float* out, const float* x, int columns) {
    extern __shared__ float partial[];
    __shared__ float total;
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += x[blockIdx.x * columns + i];
    partial[threadIdx.x] = sum;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    if (threadIdx.x == 0) total = partial[0];
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

extern "C" __global__ void collectives(float* out, int* counts) {
    const int lane = threadIdx.x % 32;
    const unsigned full = 0xffffffffu;
    const int sum = __reduce_add_sync(full, lane), odd = __popc(__ballot_sync(full, lane % 2));
    out[blockIdx.x * blockDim.x + threadIdx.x] =
        sum + odd + __shfl_down_sync(full, lane, 1) + __shfl_sync(full, 0.5, 3);
    atomicAdd(counts, 1);
    atomicMax(counts + 1, static_cast<int>(blockIdx.x));
}

extern "C" __global__ void copy_strided(float* out, const float* x, int stride) {
    out[threadIdx.x] = x[threadIdx.x * stride];
}

extern "C" __global__ void copy_vectors(float4* out, const float4* x) {
    const float4 v = x[threadIdx.x];
    out[threadIdx.x] = make_float4(v.x, v.y, v.z, v.w + 1);
}

extern "C" __global__ void copy_bytes(float* out, const float* x, int bytes) {
    memcpy(out + threadIdx.x, x + threadIdx.x, bytes);
}

__device__ int depth(int n) {
    volatile char row[4096];
    row[n % 4096] = 1;
    return depth(n + 1) + row[n % 4096];
}

// One thread of the second warp does what ends the launch while the others wait for it.
extern "C" __global__ void fail(float* out, int how) {
    if (threadIdx.x == 40) {
        if (how == 0) *reinterpret_cast<volatile float*>(8) = 1;
        if (how == 1) out[0] = depth(0);
        if (how == 2) __trap();
        if (how == 3) assert(how == 0);
    }
    __syncthreads();
    out[threadIdx.x] = 1;
}

// What the checker finds, one kind a value of `how`; 0: nothing.
extern "C" __global__ void flawed(float* out, const float* x, int how) {
    __shared__ float tile[64];
    const int i = threadIdx.x;
    if (how != 4 || i != 5) tile[i] = x[how == 1 ? i + 1 : i];
    if (how != 2) __syncthreads();
    if (how == 5 && i < 32) __syncthreads();
    out[i] = tile[how == 3 ? i + 1 : 63 - i];
}
