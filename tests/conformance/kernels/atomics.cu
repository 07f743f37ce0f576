// Atomics: every operation on every type that has it, on global and on shared memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// All operations of a type of integers: cells [8].
template <class T>
__device__ void integer_operations(T* cells, T value) {
    atomicMin(&cells[0], value);
    atomicMax(&cells[1], value);
    atomicAnd(&cells[2], value | T(0xf0));
    atomicOr(&cells[3], value & T(0xfff));
    atomicXor(&cells[4], value);
}

// Adds by compare and swap, as where there is no atomic.
__device__ double add_by_cas(double* address, double value) {
    unsigned long long* bits = reinterpret_cast<unsigned long long*>(address);
    unsigned long long old = atomicAdd(bits, 0ull), assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}

__device__ float max_by_cas(float* address, float value) {
    int* bits = reinterpret_cast<int*>(address);
    int old = atomicAdd(bits, 0);
    while (value > __int_as_float(old)) {
        const int assumed = old;
        old = atomicCAS(bits, assumed, __float_as_int(value));
        if (old == assumed) break;
    }
    return __int_as_float(old);
}

extern "C" {

// ints [9], unsigneds [11]: the last is a ring counter; x [threads of the grid]
__global__ void words(int* ints, unsigned* unsigneds, const int* x) {
    const int value = x[blockIdx.x * blockDim.x + threadIdx.x];
    integer_operations(ints, value);
    atomicAdd(&ints[5], value);
    atomicSub(&ints[6], value);
    atomicAdd_block(&ints[7 + blockIdx.x], 1);
    integer_operations(unsigneds, static_cast<unsigned>(value));
    atomicAdd(&unsigneds[5], static_cast<unsigned>(value));
    atomicSub(&unsigneds[6], 1u);
    atomicInc(&unsigneds[7], 50);
    atomicDec(&unsigneds[8], 50);
    atomicAdd_system(&unsigneds[9], 1u);
    atomicMax_system(&unsigneds[10], threadIdx.x);
}

__global__ void double_words(long long* longs, unsigned long long* unsigneds, const long long* x) {
    const long long value = x[blockIdx.x * blockDim.x + threadIdx.x];
    integer_operations(longs, value);
    atomicAdd(reinterpret_cast<unsigned long long*>(&longs[5]), static_cast<unsigned long long>(value));
    integer_operations(unsigneds, static_cast<unsigned long long>(value));
    atomicAdd(&unsigneds[5], 1ull << 33);
}

// sums [5], pairs [2], large [2]: all of them exact, whatever the order
__global__ void floats(float* sums, double* doubles, const float* x) {
    __shared__ float partial;
    const float value = x[blockIdx.x * blockDim.x + threadIdx.x];
    if (threadIdx.x == 0) partial = 0;
    __syncthreads();
    atomicAdd(&partial, value);
    atomicAdd(&sums[0], value);
    max_by_cas(&sums[1], value);
    atomicAdd(&doubles[0], value * 0.5);
    add_by_cas(&doubles[1], value);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&sums[2 + blockIdx.x], partial);
}

__global__ void halves(__half* half_sum, __half2* half_pair, __nv_bfloat16* sum, __nv_bfloat162* pair) {
    const int t = threadIdx.x;
    atomicAdd(half_sum, __float2half(t % 3));
    atomicAdd(half_pair, __floats2half2_rn(1.0f, t % 2));
    atomicAdd(sum, __float2bfloat16(t % 3));
    atomicAdd(pair, __floats2bfloat162_rn(1.0f, -(t % 2)));
}

// old [threads]: each of 0 … threads − 1 once, by atomicAdd and by atomicInc; seen [threads] counts them.
__global__ void old_values(int* seen, int* counter, unsigned* ring) {
    const int n = gridDim.x * blockDim.x;
    atomicAdd(&seen[atomicAdd(counter, 1)], 1);
    atomicAdd(&seen[atomicInc(ring, n - 1)], 1);
}

// One lock that is tried until it is had, one thread after the other: cells [2]
__global__ void locked(int* lock, int* cells) {
    bool is_done = false;
    while (!is_done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            cells[0] = cells[0] + 1;
            cells[1] = cells[1] * 3 + 1;
            __threadfence();
            atomicExch(lock, 0);
            is_done = true;
        }
    }
}

// bins [16] of bytes, first by each block in its shared memory
__global__ void histogram(unsigned* bins, const unsigned char* x, int n) {
    __shared__ unsigned local[16];
    if (threadIdx.x < 16) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&local[x[i] >> 4], 1);
    }
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

__global__ void exchange(float* cell, int* total, const float* x) {
    const float old = atomicExch(cell, x[threadIdx.x]);
    atomicAdd(total, static_cast<int>(old));
}
}
