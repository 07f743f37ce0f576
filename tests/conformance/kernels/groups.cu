// Cooperative groups, and lanes that happen to be together.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

// out [4, block]: of each thread its ranks in a tile, then results of the tile's collectives.
template <int SIZE>
__device__ void use_tile(int* out, int* votes, const int* x) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<SIZE> tile = cg::tiled_partition<SIZE>(block);
    const int t = block.thread_rank(), n = block.size(), value = x[t];
    out[t] = tile.thread_rank() + 100 * tile.meta_group_rank() + 10000 * tile.meta_group_size();
    out[n + t] = tile.shfl(value, 0) - tile.shfl_up(value, 1) + tile.shfl_down(value, 1);
    out[2 * n + t] = tile.shfl_xor(value, SIZE / 2) + static_cast<int>(tile.num_threads());
    out[3 * n + t] = cg::reduce(tile, value, cg::plus<int>()) + cg::reduce(tile, value, cg::greater<int>()) -
                     cg::reduce(tile, value, cg::less<int>());
    out[4 * n + t] = cg::reduce(tile, value, cg::bit_and<int>()) ^
                     cg::reduce(tile, value & 0xff, cg::bit_or<int>()) ^
                     (cg::reduce(tile, value, cg::bit_xor<int>()) << 8);
    votes[t] = tile.ballot(value > 0);
    votes[n + t] = (tile.any(value > 90) != 0) + 2 * (tile.all(value > -95) != 0);
    votes[2 * n + t] = tile.match_any(value / 64);
    tile.sync();
}

__device__ int tile_sum(const cg::thread_block_tile<32>& warp, int value) {
    for (int offset = warp.size() / 2; offset > 0; offset /= 2) value += warp.shfl_down(value, offset);
    return warp.shfl(value, 0);
}

template <class Group>
__device__ int group_sum(Group group, int* scratch, int value) {
    const int rank = group.thread_rank();
    for (int i = group.size() / 2; i > 0; i /= 2) {
        scratch[rank] = value;
        group.sync();
        if (rank < i) value += scratch[rank + i];
        group.sync();
    }
    return value;
}

// Adds `count` to a counter once for all lanes that are here; returns the place of each.
__device__ int aggregated_add(int* counter) {
    cg::coalesced_group active = cg::coalesced_threads();
    int first = 0;
    if (active.thread_rank() == 0) first = atomicAdd(counter, active.size());
    return active.shfl(first, 0) + active.thread_rank();
}

extern "C" {

__global__ void tiles_of_32(int* out, int* votes, const int* x) {
    use_tile<32>(out, votes, x);
}
__global__ void tiles_of_8(int* out, int* votes, const int* x) {
    use_tile<8>(out, votes, x);
}
__global__ void tiles_of_2(int* out, int* votes, const int* x) {
    use_tile<2>(out, votes, x);
}

// out [blocks]: sums of floats by warps, and by the warps' sums.
__global__ void block_reduce(float* out, const float* x, int n) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    __shared__ float partial[32];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
    sum = cg::reduce(warp, sum, cg::plus<float>{});
    if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = sum;
    block.sync();
    sum = warp.thread_rank() < warp.meta_group_size() ? partial[warp.thread_rank()] : 0.0f;
    sum = cg::reduce(warp, sum, cg::plus<float>{});
    const float largest =
        cg::reduce(warp, warp.thread_rank() * 1.0f, [](float a, float b) { return a > b ? a : b; });
    if (block.thread_rank() == 0) out[block.group_index().x] = sum + largest;
}

// Groups as arguments: out [3, block]
__global__ void generic_groups(int* out, const int* x) {
    __shared__ int scratch[128];
    cg::thread_block block = cg::this_thread_block();
    const int t = block.thread_rank(), n = block.num_threads();
    const auto warp = cg::tiled_partition<32>(block);
    const auto quarter = cg::tiled_partition<8>(warp);
    const cg::thread_group half = cg::tiled_partition(block, 16);
    out[t] = tile_sum(warp, x[t]) + quarter.shfl(x[t], 3);
    int sum = group_sum(block, scratch, x[t]);
    if (t == 0) out[n] = sum;
    cg::sync(block);
    sum = group_sum(half, scratch + t / 16 * 16, x[t]);
    if (half.thread_rank() == 0) out[n + 1 + t / 16] = sum;
    cg::sync(block);
    const dim3 index = block.thread_index(), extent = block.group_dim();
    out[2 * n + t] = index.x + index.y * extent.x + cg::this_thread_block().thread_rank() - t;
}

// Each positive element gets a place of its own, in any order: taken [n], counter [1] start at 0.
__global__ void places(int* taken, int* counter, const int* x, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        if (x[i] > 0) atomicAdd(&taken[aggregated_add(counter)], 1);
    }
}

// Lanes by a predicate and by a label: out [3, 32]
__global__ void partitions(int* out, const int* x) {
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const int lane = threadIdx.x;
    const auto half = cg::binary_partition(warp, x[lane] > 0);
    out[lane] = half.size() * 100 + half.thread_rank();
    const auto same = cg::labeled_partition(warp, x[lane] & 3);
    out[32 + lane] = cg::reduce(same, x[lane], cg::plus<int>()) + same.shfl(x[lane], 0);
    out[64 + lane] =
        cg::inclusive_scan(warp, x[lane], cg::plus<int>()) * 3 - cg::exclusive_scan(warp, x[lane]);
}

// out [2, 32]: who is together in a branch is not promised, but that nobody of another branch is.
__global__ void divergent_masks(unsigned* out) {
    const int lane = threadIdx.x;
    if (lane % 3 == 0) {
        const unsigned mask = __activemask();
        out[lane] = mask >> lane & 1;
        out[32 + lane] = __shfl_sync(mask, lane, __ffs(mask) - 1) % 3 == 0;
    } else {
        const unsigned mask = __activemask();
        out[lane] = mask >> lane & 1;
        out[32 + lane] = __shfl_sync(mask, lane, 31 - __clz(mask)) % 3 != 0;
    }
}
}
