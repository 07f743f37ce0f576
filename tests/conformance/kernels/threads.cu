// Threads, blocks and grids; barriers that vote; fences; clocks; integer and bit intrinsics.
#include <climits>

constexpr int THREADS = 96;

extern "C" {

// seen [grid.z, grid.y, grid.x, block.z, block.y, block.x]: each thread adds its number and the extents once.
__global__ void indices(int* seen) {
    const dim3 extent = blockDim;
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + extent.x * (threadIdx.y + extent.y * threadIdx.z);
    const unsigned i = block * (extent.x * extent.y * extent.z) + thread;
    atomicAdd(&seen[i], static_cast<int>(i * 1000 + gridDim.z * 100 + blockDim.y * 10 + warpSize / 32));
}

// Several elements a thread, whatever the grid; `unroll` with every spelling.
__global__ void __launch_bounds__(THREADS, 2) grid_stride(int* out, const int* __restrict__ x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int total = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) total += x[i] * j;
#pragma unroll 2
        for (int j = 0; j < 4; j++) total -= j;
#pragma unroll 1
        for (int j = 0; j < 3; j++) total ^= j;
        out[i] = total;
    }
}

// out [blocks, 3]: of a block's elements, how many are positive, whether all are, whether any is.
__global__ void barrier_votes(int* out, const int* x) {
    const int value = x[blockIdx.x * blockDim.x + threadIdx.x];
    const int count = __syncthreads_count(value > 0);
    const int all = __syncthreads_and(value > 0);
    const int any = __syncthreads_or(value > 0);
    if (threadIdx.x == 0) {
        out[3 * blockIdx.x] = count;
        out[3 * blockIdx.x + 1] = all != 0;
        out[3 * blockIdx.x + 2] = any != 0;
    }
}

// The block that comes last adds up what the others left: out [1]; `ticket` starts at 0.
__global__ void last_block(int* out, volatile int* partial, unsigned* ticket, const int* x) {
    __shared__ bool is_last;
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();  // total is 0
    atomicAdd(&total, x[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();  // total is complete
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = total;
        __threadfence();
        is_last = atomicInc(ticket, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();  // is_last is known
    if (is_last && threadIdx.x == 0) {
        int sum = 0;
        for (int b = 0; b < gridDim.x; b++) sum += partial[b];
        *out = sum;
        __threadfence_block();
        __threadfence_system();
    }
}

// out [3]: whether the clocks move on, and the global timer does not go back.
__global__ void clocks(int* out, float* sink) {
    const long long before = clock64();
    const clock_t short_before = clock();
    float total = 0;
    for (int i = 0; i < 1000; i++) total += sqrtf(i + sink[0]);
    sink[1] = total > 0 ? 1.0f : 0.0f;
    out[0] = clock64() > before;
    out[1] = clock() != short_before;
    out[2] = clock64() - before < (1ll << 40);
}

// out [23, n] of x, y [n]
__global__ void bit_intrinsics(unsigned* out, const unsigned* x, const unsigned* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned a = x[i], b = y[i];
    const unsigned long long pair = static_cast<unsigned long long>(a) << 32 | b;
    const unsigned results[] = {
        static_cast<unsigned>(__popc(a)),
        static_cast<unsigned>(__popcll(pair)),
        static_cast<unsigned>(__clz(a)),
        static_cast<unsigned>(__clzll(pair)),
        static_cast<unsigned>(__ffs(a)),
        static_cast<unsigned>(__ffsll(pair)),
        __brev(a),
        static_cast<unsigned>(__brevll(pair)),
        __byte_perm(a, b, 0x7210),
        __byte_perm(a, b, b & 0x7777),
        __funnelshift_l(a, b, b),
        __funnelshift_r(a, b, b),
        __funnelshift_lc(a, b, b % 48),
        __funnelshift_rc(a, b, b % 48),
        __umulhi(a, b),
        static_cast<unsigned>(__mulhi(static_cast<int>(a), static_cast<int>(b))),
        static_cast<unsigned>(__umul64hi(pair, pair)),
        static_cast<unsigned>(__mul64hi(static_cast<long long>(pair), -3)),
        __umul24(a, b),
        static_cast<unsigned>(__mul24(static_cast<int>(a), static_cast<int>(b))),
        __sad(static_cast<int>(a), static_cast<int>(b), b),
        __usad(a, b, 1u),
        static_cast<unsigned>(__float_as_int(__uint_as_float(a & 0x3fffffffu))),
    };
    for (int k = 0; k < 23; k++) out[k * n + i] = results[k];
}

// out [8, n]
__global__ void minima(long long* out, const int* x, const int* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int a = x[i], b = y[i];
    out[i] = min(a, b);
    out[n + i] = max(a, b);
    out[2 * n + i] = min(static_cast<unsigned>(a), static_cast<unsigned>(b));
    out[3 * n + i] = max(static_cast<long long>(a) << 20, static_cast<long long>(b) << 20);
    out[4 * n + i] = static_cast<long long>(fmaxf(a, b));
    out[5 * n + i] = static_cast<long long>(max(static_cast<float>(a), 0.5f) + min(a * 1.0, 0.25));
    out[6 * n + i] = abs(a) + llabs(b);
    out[7 * n + i] = min(static_cast<unsigned>(a), 7u) + static_cast<unsigned>(max(a, 0));
}

// Four 8-bit or two 16-bit numbers in a word: out [n]
__global__ void packed_products(int* out, const int* x, const int* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = __dp4a(x[i], y[i], 5);
}

__global__ void __launch_bounds__(32) say(int n) {
    if (threadIdx.x == 0) {
        printf("block %d of %u: %s %5.2f %lld %%\n", blockIdx.x, gridDim.x, "text", n * 0.5, 1ll << 40);
    }
}

__global__ void fail_assert(int* out, int n) {
    assert(n < 3 && "n is small");
    out[0] = n;
}

__global__ void trap(int* out, int n) {
    out[0] = n;
    if (n > 3) __trap();
}
}
