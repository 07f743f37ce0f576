// Warps: shuffles, votes, reductions, matches.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr unsigned ALL = 0xffffffffu;

// out [4 kinds, 32], each lane's value after a shuffle of each kind in segments of `width` lanes.
template <class T>
__device__ void shuffle(T* out, const T* x, int width) {
    const int lane = threadIdx.x;
    const T value = x[lane];
    out[lane] = __shfl_sync(ALL, value, lane * 5 + 3, width);
    out[32 + lane] = __shfl_up_sync(ALL, value, 3, width);
    out[64 + lane] = __shfl_down_sync(ALL, value, 2, width);
    out[96 + lane] = __shfl_xor_sync(ALL, value, 5, width);
}

template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
    for (int offset = warpSize / 2; offset > 0; offset >>= 1) {
        value += __shfl_down_sync(ALL, value, offset);
    }
    return __shfl_sync(ALL, value, 0);
}

extern "C" {

__global__ void shuffle_int(int* out, const int* x, int width) {
    shuffle(out, x, width);
}
__global__ void shuffle_unsigned(unsigned* out, const unsigned* x, int width) {
    shuffle(out, x, width);
}
__global__ void shuffle_long(long long* out, const long long* x, int width) {
    shuffle(out, x, width);
}
__global__ void shuffle_unsigned_long(unsigned long* out, const unsigned long* x, int width) {
    shuffle(out, x, width);
}
__global__ void shuffle_float(float* out, const float* x, int width) {
    shuffle(out, x, width);
}
__global__ void shuffle_double(double* out, const double* x, int width) {
    shuffle(out, x, width);
}
__global__ void shuffle_bf16(__nv_bfloat16* out, const __nv_bfloat16* x, int width) {
    shuffle(out, x, width);
}
__global__ void shuffle_half(__half* out, const __half* x, int width) {
    shuffle(out, x, width);
}
__global__ void shuffle_bf162(__nv_bfloat162* out, const __nv_bfloat162* x, int width) {
    shuffle(out, x, width);
}
__global__ void shuffle_half2(__half2* out, const __half2* x, int width) {
    shuffle(out, x, width);
}

// Only the lanes of a mask take part.
__global__ void shuffle_part(int* out, const int* x) {
    const int lane = threadIdx.x;
    out[lane] = -1;
    if (lane >= 8 && lane < 16) {
        int value = x[lane];
        for (int distance = 4; distance > 0; distance /= 2) {
            value += __shfl_xor_sync(0x0000ff00u, value, distance);
        }
        out[lane] = value;
    }
}

// out [blocks]: the sum of a block's elements, by warps and then by the first warp.
__global__ void block_sum(double* out, const double* x) {
    __shared__ double partial[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    double total = warp_sum(x[blockIdx.x * blockDim.x + threadIdx.x]);
    if (lane == 0) partial[warp] = total;
    __syncthreads();  // all partial sums are there
    if (warp == 0) {
        total = warp_sum(lane < blockDim.x / 32 ? partial[lane] : 0.0);
        if (lane == 0) out[blockIdx.x] = total;
    }
}

// out [4, 32]
__global__ void votes(unsigned* out, const int* x) {
    const int lane = threadIdx.x;
    out[lane] = __ballot_sync(ALL, x[lane] > 0);
    out[32 + lane] = __any_sync(ALL, x[lane] > 90);
    out[64 + lane] = __all_sync(ALL, x[lane] > -100);
    out[96 + lane] = __activemask();
    if (lane < 16) {
        out[lane] ^= __ballot_sync(0xffffu, x[lane] & 1);
    }
    __syncwarp();
}

// signed_out [3, 32], unsigned_out [6, 32]
__global__ void reductions(int* signed_out, unsigned* unsigned_out, const int* x) {
    const int lane = threadIdx.x;
    const unsigned u = static_cast<unsigned>(x[lane]);
    signed_out[lane] = __reduce_add_sync(ALL, x[lane]);
    signed_out[32 + lane] = __reduce_min_sync(ALL, x[lane]);
    signed_out[64 + lane] = __reduce_max_sync(ALL, x[lane]);
    unsigned_out[lane] = __reduce_add_sync(ALL, u);
    unsigned_out[32 + lane] = __reduce_min_sync(ALL, u);
    unsigned_out[64 + lane] = __reduce_max_sync(ALL, u);
    unsigned_out[96 + lane] = __reduce_and_sync(ALL, u | 0xff);
    unsigned_out[128 + lane] = __reduce_or_sync(ALL, u & 0xfff);
    unsigned_out[160 + lane] = __reduce_xor_sync(ALL, u);
}

// out [5, 32]
__global__ void matches(unsigned* out, const int* x) {
    const int lane = threadIdx.x;
    int is_same = 1;
    out[lane] = __match_any_sync(ALL, x[lane]);
    out[32 + lane] = __match_any_sync(ALL, x[lane] * 0.5);
    out[64 + lane] = __match_all_sync(ALL, x[lane], &is_same);
    out[64 + lane] += is_same;
    out[96 + lane] = __match_all_sync(ALL, 7ll << 40, &is_same);
    out[128 + lane] = is_same;
}

// Lanes hand values on through shared memory; __syncwarp orders them.
__global__ void syncwarp(int* out, const int* x) {
    __shared__ int row[64];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    row[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    for (int distance = 1; distance < 32; distance *= 2) {
        const int other = lane >= distance ? row[warp * 32 + lane - distance] : 0;
        __syncwarp();  // all have read
        row[threadIdx.x] += other;
        __syncwarp();  // all have written
    }
    out[threadIdx.x] = row[threadIdx.x];
}

// Those with a positive value move to the front, in their order; count [1] says how many.
__global__ void compact_warp(int* out, int* count, const int* x) {
    const int lane = threadIdx.x;
    const unsigned taken = __ballot_sync(ALL, x[lane] > 0);
    const int before = __popc(taken & ((1u << lane) - 1));
    if (x[lane] > 0) out[before] = x[lane];
    if (lane == 0) *count = __popc(taken);
}
}
