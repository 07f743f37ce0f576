// Kernels in which nothing is wrong, though it may look so.
#include <cuda_bf16.h>
#include <cooperative_groups.h>

constexpr unsigned ALL_LANES = 0xffffffffu;

// All say the same.
extern "C" __global__ void all_set_one_flag(int* found, const float* x) {
    __shared__ int is_found;
    if (threadIdx.x == 0) is_found = 0;
    __syncthreads();
    if (x[threadIdx.x] > 8) is_found = 1;
    __syncthreads();
    if (is_found) *found = 1;
}

// After a butterfly every lane has the same sum, and each may write it.
extern "C" __global__ void all_lanes_write_one_sum(float* out, const float* x) {
    float sum = x[threadIdx.x];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, d);
    out[0] = sum;
}

extern "C" __global__ void halves_of_a_word(__nv_bfloat16* out, const float* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ __nv_bfloat16 row[32];
    row[threadIdx.x] = __float2bfloat16(x[i]);
    out[i] = row[threadIdx.x];
}

extern "C" __global__ void neighbouring_bytes(signed char* out, const float* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = static_cast<signed char>(x[i]);
    out[i] += 1;
}

// Two stages: in the second every lane reads, and those beyond the warps take 0.
extern "C" __global__ void sum_of_a_block(float* out, const float* x) {
    __shared__ float partial[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = x[threadIdx.x];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, d);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    sum = lane < blockDim.x / 32 ? partial[lane] : 0;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, d);
    out[threadIdx.x] = sum;
}

extern "C" __global__ void tile_of_a_product(float* out, const float* a, const float* b) {
    __shared__ float rows[8][8], columns[8][9];
    const int row = threadIdx.y, column = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 16; k += 8) {
        rows[row][column] = a[row * 16 + k + column];
        columns[column][row] = b[(k + row) * 8 + column];
        __syncthreads();
        for (int i = 0; i < 8; i++) sum += rows[row][i] * columns[column][i];
        __syncthreads();
    }
    out[row * 8 + column] = sum;
}

// In place, but each element by its own thread; the halo is read twice and written by nobody.
extern "C" __global__ void own_elements(float* x, const float* halo, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        x[i] = x[i] + halo[i] + halo[i + 1];
    }
}

extern "C" __global__ void atomics_only(int* counts, float* sum, const int* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&counts[x[i] % 4], 1);
    atomicMax(&counts[4], x[i]);
    if (atomicCAS(&counts[5], 0, 1) == 0) atomicExch(&counts[6], 7);
    atomicAdd(sum, 1.0f);
}

// A maximum of floats by compare and swap: the plain load may be out of date, and atomicCAS finds out.
extern "C" __global__ void compare_and_swap(float* largest, const float* x) {
    int* bits = reinterpret_cast<int*>(largest);
    int seen = *bits;
    while (__int_as_float(seen) < x[threadIdx.x]) {
        const int before = atomicCAS(bits, seen, __float_as_int(x[threadIdx.x]));
        if (before == seen) break;
        seen = before;
    }
}

extern "C" __global__ void tiles_of_a_group(float* out, const float* x) {
    namespace cg = cooperative_groups;
    __shared__ float row[64];
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<16>(block);
    row[threadIdx.x] = x[threadIdx.x];
    tile.sync();
    float sum = row[threadIdx.x ^ 15];
    for (int d = 8; d > 0; d /= 2) sum += tile.shfl_xor(sum, d);
    block.sync();
    out[threadIdx.x] = sum + row[63 - threadIdx.x];
}

// Dynamic shared memory cut into two arrays of different types, as large as the launch says.
extern "C" __global__ void views_side_by_side(float* out, const float* x) {
    extern __shared__ __align__(16) float numbers[];
    int* ranks = reinterpret_cast<int*>(numbers + blockDim.x);
    const int i = threadIdx.x;
    numbers[i] = x[i];
    ranks[i] = blockDim.x - 1 - i;
    __syncthreads();
    out[i] = numbers[ranks[i]];
}

// A vector is read of what four threads have written by elements, and the other way round.
extern "C" __global__ void vectors_of_elements(float* out, const float* x) {
    __shared__ __align__(16) float row[64];
    const int i = threadIdx.x;
    row[i] = x[i];
    __syncthreads();
    if (i < 16) {
        const float4 v = reinterpret_cast<const float4*>(row)[15 - i];
        reinterpret_cast<float4*>(out)[i] = make_float4(v.w, v.z, v.y, v.x);
    }
}

// Warps that each work on their own part of shared memory need no barrier of the block.
extern "C" __global__ void warps_on_their_own(float* out, const float* x) {
    __shared__ float rows[2][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int step = 0; step < 3 + warp; step++) {
        rows[warp][lane] = x[threadIdx.x] + step;
        __syncwarp();
        out[threadIdx.x] = rows[warp][31 - lane];
        __syncwarp();
    }
}

// Points of 12 bytes, and records of 8, go through shared memory as a whole.
struct Best {
    float value;
    int row;
};
extern "C" __global__ void records(float* out, const float3* points) {
    __shared__ float3 row[32];
    __shared__ Best best[32];
    const int i = threadIdx.x;
    row[i] = points[i];
    best[i] = {row[i].x, i};
    __syncthreads();
    const float3 point = row[31 - i];
    const Best other = best[31 - i];
    out[i] = point.x + point.y + point.z + other.value + other.row;
}

__shared__ __nv_bfloat16 of_the_file[64];
__device__ void keep(int i, float value) {
    of_the_file[i] = __float2bfloat16(value);
}
extern "C" __global__ void shared_of_the_file(float* out, const float* x) {
    keep(threadIdx.x, x[threadIdx.x]);
    __syncthreads();
    out[threadIdx.x] = __bfloat162float(of_the_file[63 - threadIdx.x]);
}

// The part of a tile beyond the row is never read, since its exponentials are not asked for.
extern "C" __global__ void tail_left_alone(float* out, const float* x, int n) {
    __shared__ float tile[64];
    const int i = threadIdx.x;
    if (i < n) tile[i] = x[i];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k < 64; k++) sum += k < n ? tile[k] : 0.0f;
    if (i < n) out[i] = sum;
}

// An array in registers or local memory, and one that the threads of a warp turn over by shuffles.
extern "C" __global__ void locals(float* out, const float* x, int shift) {
    float own[4];
    for (int k = 0; k < 4; k++) own[k] = x[4 * threadIdx.x + k];
    float turned[4];
    for (int k = 0; k < 4; k++) turned[(k + shift) % 4] = own[k];
    for (int k = 0; k < 4; k++) turned[k] = __shfl_down_sync(ALL_LANES, turned[k], 1);
    const float4 v = make_float4(turned[0], turned[1], turned[2], turned[3]);
    reinterpret_cast<float4*>(out)[threadIdx.x] = v;
}

// One lane's fence is about all lanes that have met before it; the last warp to arrive uses what every warp has left.
extern "C" __global__ void fence_of_a_warp(float* out, float* parts, int* num_done, const float* x) {
    const int lane = threadIdx.x % 32, warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int num_warps = gridDim.x * (blockDim.x / 32);
    parts[32 * warp + lane] = 2 * x[lane];
    __syncwarp();
    int num_before = 0;
    if (lane == 0) {
        __threadfence();
        num_before = atomicAdd(num_done, 1);
        __threadfence();
    }
    num_before = __shfl_sync(ALL_LANES, num_before, 0);
    if (num_before < num_warps - 1) return;
    float sum = 0;
    for (int w = 0; w < num_warps; w++) sum += parts[32 * w + lane];
    out[lane] = sum;
}
