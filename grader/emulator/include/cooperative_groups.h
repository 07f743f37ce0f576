// Cooperative groups: the block, and tiles of 1 to 32 threads of a warp.
#pragma once

#include <cuda_runtime.h>

namespace cooperative_groups {

class thread_block {
  public:
    static unsigned thread_rank() {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned size() { return num_threads(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static void sync(int line = __builtin_LINE()) { __syncthreads(line); }
};

inline thread_block this_thread_block() {
    return {};
}

template <unsigned Size, class Parent = thread_block>
class thread_block_tile {
    static_assert(Size > 0 && Size <= 32 && (Size & (Size - 1)) == 0,
                  "a tile has 1, 2, 4, 8, 16 or 32 threads");

  public:
    static unsigned thread_rank() { return thread_block::thread_rank() % Size; }
    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    static unsigned meta_group_rank() { return thread_block::thread_rank() / Size; }
    static unsigned meta_group_size() { return (thread_block::num_threads() + Size - 1) / Size; }

    void sync(int line = __builtin_LINE()) const { __syncwarp(mask(), line); }
    template <class T>
    T shfl(T value, int source, int line = __builtin_LINE()) const {
        return __shfl_sync(mask(), value, source, Size, line);
    }
    template <class T>
    T shfl_up(T value, unsigned distance, int line = __builtin_LINE()) const {
        return __shfl_up_sync(mask(), value, distance, Size, line);
    }
    template <class T>
    T shfl_down(T value, unsigned distance, int line = __builtin_LINE()) const {
        return __shfl_down_sync(mask(), value, distance, Size, line);
    }
    template <class T>
    T shfl_xor(T value, int lanes, int line = __builtin_LINE()) const {
        return __shfl_xor_sync(mask(), value, lanes, Size, line);
    }
    int any(int predicate, int line = __builtin_LINE()) const { return __any_sync(mask(), predicate, line); }
    int all(int predicate, int line = __builtin_LINE()) const { return __all_sync(mask(), predicate, line); }
    unsigned ballot(int predicate, int line = __builtin_LINE()) const {
        return __ballot_sync(mask(), predicate, line) >> first_lane();
    }

  private:
    static unsigned first_lane() { return thread_block::thread_rank() % 32 / Size * Size; }
    static unsigned mask() { return 0xffffffffu >> (32 - Size) << first_lane(); }
};

template <unsigned Size, class Parent>
inline thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    return {};
}

template <class Group>
inline void sync(const Group& group, int line = __builtin_LINE()) {
    group.sync(line);
}

template <class T>
struct plus {
    T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct greater {
    T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct less {
    T operator()(T a, T b) const { return b < a ? b : a; }
};

// Of all threads of the tile, for each of them.
template <class Tile, class T, class Operation>
inline T reduce(const Tile& tile, T value, Operation operation) {
    for (unsigned distance = Tile::size() / 2; distance > 0; distance /= 2) {
        value = operation(value, tile.shfl_xor(value, static_cast<int>(distance)));
    }
    return value;
}

}  // namespace cooperative_groups
