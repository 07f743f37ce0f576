// Reads of memory that nothing has written.
#include <cuda_bf16.h>

// The last block's tail of the tile is never written, but added up.
extern "C" __global__ void tail_of_a_tile(float* out, const float* x, int n) {
    __shared__ float tile[64];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) tile[threadIdx.x] = x[i];
    FIX(else tile[threadIdx.x] = 0;)
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int k = 0; k < 64; k++) {
            sum += tile[k];  // (1)
        }
        out[blockIdx.x] = sum;
    }
}

// Three of four components are written, four are read.
extern "C" __global__ void part_of_a_vector(float* out, const float* x) {
    __shared__ float4 points[32];
    const int i = threadIdx.x;
    points[i].x = x[3 * i];
    points[i].y = x[3 * i + 1];
    points[i].z = x[3 * i + 2];
    FIX(points[i].w = 0;)
    __syncthreads();
    const float4 next = points[(i + 1) % 32];  // (1)
    out[i] = next.x + next.y + next.z + next.w;
}

// One half of each pair is written, both are read.
extern "C" __global__ void half_of_a_shared_pair(float* out, const float* x) {
    __shared__ __nv_bfloat162 pairs[32];
    const int i = threadIdx.x;
    pairs[i].x = __float2bfloat16(x[i]);
    FIX(pairs[i].y = __float2bfloat16(0.0f);)
    __syncthreads();
    const __nv_bfloat162 pair = pairs[31 - i];  // (1)
    out[i] = __bfloat162float(pair.x) + __bfloat162float(pair.y);
}

// The result is added to whatever is in the array. Right: the caller clears it.
extern "C" __global__ void output_not_cleared(float* out, const float* x) {
    out[threadIdx.x] += x[threadIdx.x];  // (1)
}

// The same, atomically.
extern "C" __global__ void counts_not_cleared(int* counts, const int* x) {
    atomicAdd(&counts[x[threadIdx.x] % 8], 1);  // (1)
}

// The caller copies only the first 48 of 64 numbers to the device. Right: all of them.
extern "C" __global__ void half_copied(float* out, const float* x) {
    out[threadIdx.x] = 2 * x[threadIdx.x];  // (1)
}

// Scratch memory that a kernel before this one should have filled; it is launched with fewer blocks.
extern "C" __global__ void scratch_of_nobody(float* out, float* scratch) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < BUG(32) FIX(64)) scratch[i] = i;
    out[i] = scratch[i];  // (1)
}

// Keys up to the cache's capacity, of which only `length` were written.
extern "C" __global__ void beyond_the_context(float* out, const float* keys, int capacity, int length) {
    float maximum = -INFINITY;
    for (int position = 0; position < BUG(capacity) FIX(length); position++) {
        maximum = fmaxf(maximum, keys[position * 32 + threadIdx.x]);  // (1)
    }
    out[threadIdx.x] = maximum;
}

// A tree of 64 slots, and 48 threads.
extern "C" __global__ void tree_wider_than_the_block(float* out, const float* x) {
    __shared__ float sums[64];
    const int i = threadIdx.x;
    sums[i] = x[i];
    FIX(if (i + blockDim.x < 64) sums[i + blockDim.x] = 0;)
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (i < half) sums[i] += sums[i + half];  // (1)
        __syncthreads();
    }
    if (i == 0) out[0] = sums[0];
}

// Bins in shared memory hold anything at first.
extern "C" __global__ void bins_not_cleared(int* out, const int* x) {
    __shared__ int bins[16];
    const int i = threadIdx.x;
    FIX(if (i < 16) bins[i] = 0;)
    FIX(__syncthreads();)
    atomicAdd(&bins[x[i] % 16], 1);  // (1)
    __syncthreads();
    if (i < 16) out[i] = bins[i];
}

// Two warps write, the maxima of eight are compared.
extern "C" __global__ void more_maxima_than_warps(float* out, const float* x) {
    extern __shared__ float maxima[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float maximum = x[threadIdx.x];
    for (int d = 16; d > 0; d /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, d));
    if (lane == 0) maxima[warp] = maximum;
    __syncthreads();
    for (int w = 0; w < BUG(8) FIX(blockDim.x / 32); w++) {
        maximum = fmaxf(maximum, maxima[w]);  // (1)
    }
    out[threadIdx.x] = maximum;
}

// Whoever finds something says so; nobody says that nothing was found.
extern "C" __global__ void flag_only_set(int* out, const float* x, float limit) {
    __shared__ int is_found;
    FIX(if (threadIdx.x == 0) is_found = 0;)
    FIX(__syncthreads();)
    if (x[threadIdx.x] > limit) is_found = 1;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = is_found;  // (1)
}

// The border of a tile belongs to it too.
extern "C" __global__ void border_of_a_tile(float* out, const float* x) {
    __shared__ float tile[66];
    const int i = threadIdx.x;
    tile[i + 1] = x[i];
    FIX(if (i == 0) tile[0] = tile[65] = 0;)
    __syncthreads();
    out[i] = tile[i] + tile[i + 1] + tile[i + 2];  // (1)
}

// What one block leaves in shared memory is gone when the next one begins.
extern "C" __global__ void left_by_another_block(float* out, const float* x) {
    __shared__ float weight;
    if (BUG(blockIdx.x == 0 &&) threadIdx.x == 0) weight = x[0];
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = weight;  // (1)
}
