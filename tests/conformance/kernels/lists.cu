// What parallel programming courses do with lists: reductions, scans, sorting, stencils, compaction.
#include <stdio.h>

#define RADIUS 3
#define BLOCK_SIZE 128
#define FULL_MASK 0xffffffff

// Dynamic shared memory of a type that is a template's parameter.
template <class T>
struct SharedMemory {
    __device__ inline operator T*() {
        extern __shared__ int __smem[];
        return (T*)__smem;
    }
    __device__ inline operator const T*() const {
        extern __shared__ int __smem[];
        return (T*)__smem;
    }
};

// Interleaved addressing with a remainder, then with strided threads, then sequential addressing.
template <class T>
__device__ void reduce_divergent(T* g_idata, T* g_odata, unsigned int n) {
    T* sdata = SharedMemory<T>();
    const unsigned int tid = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    sdata[tid] = (i < n) ? g_idata[i] : 0;
    __syncthreads();
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        if ((tid % (2 * s)) == 0) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}
template <class T>
__device__ void reduce_strided(T* g_idata, T* g_odata, unsigned int n) {
    T* sdata = SharedMemory<T>();
    const unsigned int tid = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    sdata[tid] = (i < n) ? g_idata[i] : 0;
    __syncthreads();
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        const int index = 2 * s * tid;
        if (index < blockDim.x) sdata[index] += sdata[index + s];
        __syncthreads();
    }
    if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}
template <class T>
__device__ void reduce_sequential(T* g_idata, T* g_odata, unsigned int n) {
    T* sdata = SharedMemory<T>();
    const unsigned int tid = threadIdx.x, i = blockIdx.x * (blockDim.x * 2) + threadIdx.x;
    T sum = (i < n) ? g_idata[i] : 0;
    if (i + blockDim.x < n) sum += g_idata[i + blockDim.x];
    sdata[tid] = sum;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 32; s >>= 1) {
        if (tid < s) sdata[tid] = sum = sum + sdata[tid + s];
        __syncthreads();
    }
    if (tid < 32) {
        sum += sdata[tid + 32];
        for (int offset = warpSize / 2; offset > 0; offset /= 2)
            sum += __shfl_down_sync(FULL_MASK, sum, offset);
    }
    if (tid == 0) g_odata[blockIdx.x] = sum;
}

// The last warp without a branch: its steps are ordered by __syncwarp.
template <unsigned int blockSize>
__device__ void warp_reduce(volatile int* sdata, unsigned int tid) {
    int v = sdata[tid];
    if (blockSize >= 64) v += sdata[tid + 32];
    __syncwarp();
    sdata[tid] = v;
    __syncwarp();
#pragma unroll
    for (int s = 16; s > 0; s >>= 1) {
        v += sdata[tid + s];
        __syncwarp();
        sdata[tid] = v;
        __syncwarp();
    }
}
template <unsigned int blockSize, bool nIsPow2>
__device__ void reduce_unrolled(int* g_idata, int* g_odata, unsigned int n) {
    extern __shared__ int sdata[];
    const unsigned int tid = threadIdx.x, gridSize = blockSize * 2 * gridDim.x;
    unsigned int i = blockIdx.x * (blockSize * 2) + tid;
    int sum = 0;
    while (i < n) {
        sum += g_idata[i];
        if (nIsPow2 || i + blockSize < n) sum += g_idata[i + blockSize];
        i += gridSize;
    }
    sdata[tid] = sum;
    __syncthreads();
    if (blockSize >= 512) {
        if (tid < 256) sdata[tid] += sdata[tid + 256];
        __syncthreads();
    }
    if (blockSize >= 256) {
        if (tid < 128) sdata[tid] += sdata[tid + 128];
        __syncthreads();
    }
    if (blockSize >= 128) {
        if (tid < 64) sdata[tid] += sdata[tid + 64];
        __syncthreads();
    }
    if (tid < 32) warp_reduce<blockSize>(sdata, tid);
    if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}

__device__ inline void comparator(unsigned int& a, unsigned int& valA, unsigned int& b, unsigned int& valB,
                                  unsigned dir) {
    if ((a > b) == dir) {
        unsigned int t = a;
        a = b;
        b = t;
        t = valA;
        valA = valB;
        valB = t;
    }
}

extern "C" {

__global__ void reduce0(int* g_odata, int* g_idata, unsigned int n) {
    reduce_divergent(g_idata, g_odata, n);
}
__global__ void reduce1(int* g_odata, int* g_idata, unsigned int n) {
    reduce_strided(g_idata, g_odata, n);
}
__global__ void reduce4(double* g_odata, double* g_idata, unsigned int n) {
    reduce_sequential(g_idata, g_odata, n);
}
__global__ void reduce6(int* g_odata, int* g_idata, unsigned int n) {
    switch (blockDim.x) {
        case 256:
            reduce_unrolled<256, false>(g_idata, g_odata, n);
            break;
        case 64:
            reduce_unrolled<64, false>(g_idata, g_odata, n);
            break;
    }
}

// Exclusive prefix sums of n elements in one block of n / 2 threads: up the tree, then down.
__global__ void prescan(int* g_odata, int* g_idata, int n) {
    extern __shared__ int temp[];
    const int thid = threadIdx.x;
    int offset = 1;
    temp[2 * thid] = g_idata[2 * thid];
    temp[2 * thid + 1] = g_idata[2 * thid + 1];
    for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (thid < d) {
            const int ai = offset * (2 * thid + 1) - 1, bi = offset * (2 * thid + 2) - 1;
            temp[bi] += temp[ai];
        }
        offset *= 2;
    }
    if (thid == 0) temp[n - 1] = 0;
    for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (thid < d) {
            const int ai = offset * (2 * thid + 1) - 1, bi = offset * (2 * thid + 2) - 1, t = temp[ai];
            temp[ai] = temp[bi];
            temp[bi] += t;
        }
    }
    __syncthreads();
    g_odata[2 * thid] = temp[2 * thid];
    g_odata[2 * thid + 1] = temp[2 * thid + 1];
}

// Sorts 2 blockDim.x keys with their values in one block.
__global__ void bitonic_sort(unsigned int* d_Key, unsigned int* d_Val, unsigned int arrayLength,
                             unsigned int dir) {
    __shared__ unsigned int s_key[2 * BLOCK_SIZE];
    __shared__ unsigned int s_val[2 * BLOCK_SIZE];
    s_key[threadIdx.x] = d_Key[threadIdx.x];
    s_val[threadIdx.x] = d_Val[threadIdx.x];
    s_key[threadIdx.x + arrayLength / 2] = d_Key[threadIdx.x + arrayLength / 2];
    s_val[threadIdx.x + arrayLength / 2] = d_Val[threadIdx.x + arrayLength / 2];
    for (unsigned int size = 2; size < arrayLength; size <<= 1) {
        const unsigned int ddd = dir ^ ((threadIdx.x & (size / 2)) != 0);
        for (unsigned int stride = size / 2; stride > 0; stride >>= 1) {
            __syncthreads();
            const unsigned int pos = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
            comparator(s_key[pos], s_val[pos], s_key[pos + stride], s_val[pos + stride], ddd);
        }
    }
    for (unsigned int stride = arrayLength / 2; stride > 0; stride >>= 1) {
        __syncthreads();
        const unsigned int pos = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
        comparator(s_key[pos], s_val[pos], s_key[pos + stride], s_val[pos + stride], dir);
    }
    __syncthreads();
    d_Key[threadIdx.x] = s_key[threadIdx.x];
    d_Val[threadIdx.x] = s_val[threadIdx.x];
    d_Key[threadIdx.x + arrayLength / 2] = s_key[threadIdx.x + arrayLength / 2];
    d_Val[threadIdx.x + arrayLength / 2] = s_val[threadIdx.x + arrayLength / 2];
}

// out[i] = in[i − RADIUS] + … + in[i + RADIUS], zeros beyond the ends.
__global__ void stencil_1d(int* out, const int* in, int n) {
    __shared__ int temp[BLOCK_SIZE + 2 * RADIUS];
    const int gindex = threadIdx.x + blockIdx.x * blockDim.x, lindex = threadIdx.x + RADIUS;
    temp[lindex] = gindex < n ? in[gindex] : 0;
    if (threadIdx.x < RADIUS) {
        temp[lindex - RADIUS] = gindex >= RADIUS ? in[gindex - RADIUS] : 0;
        temp[lindex + BLOCK_SIZE] = gindex + BLOCK_SIZE < n ? in[gindex + BLOCK_SIZE] : 0;
    }
    __syncthreads();
    int result = 0;
    for (int offset = -RADIUS; offset <= RADIUS; offset++) result += temp[lindex + offset];
    if (gindex < n) out[gindex] = result;
}

// Positive elements in their order, by ballots and a scan over the warps of one block.
__global__ void compact(int* out, int* count, const int* in, int n) {
    __shared__ int warp_totals[32];
    __shared__ int total;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) total = 0;
    for (int begin = 0; begin < n; begin += blockDim.x) {
        __syncthreads();
        const int base = total, i = begin + threadIdx.x;
        const bool is_kept = i < n && in[i] > 0;
        const unsigned ballot = __ballot_sync(FULL_MASK, is_kept);
        if (lane == 0) warp_totals[warp] = __popc(ballot);
        __syncthreads();
        int before = base;
        for (int w = 0; w < warp; w++) before += warp_totals[w];
        if (is_kept) out[before + __popc(ballot & ((1u << lane) - 1))] = in[i];
        if (threadIdx.x == blockDim.x - 1) total = before + __popc(ballot);
    }
    __syncthreads();
    if (threadIdx.x == 0) *count = total;
}

// Rows and columns at once in two dimensions, values clamped at the edges.
__global__ void blur(unsigned char* out, const unsigned char* in, int width, int height) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int sum = 0;
    for (int dy = -1; dy <= 1; ++dy) {
        for (int dx = -1; dx <= 1; ++dx) {
            sum += in[min(max(y + dy, 0), height - 1) * width + min(max(x + dx, 0), width - 1)];
        }
    }
    out[y * width + x] = (unsigned char)(sum / 9);
}
}
