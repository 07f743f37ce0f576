// Cooperative groups: the block, tiles of 1 to 32 threads of a warp, and lanes that happen to be together.
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
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
    static void sync(int line = PAGEDLAB_LINE) { __syncthreads(line); }
};

inline thread_block this_thread_block() {
    return {};
}

// All blocks. Only a cooperative launch, which PyCUDA does not have, can wait for them.
class grid_group {
  public:
    static unsigned long long thread_rank() {
        return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
    }
    static unsigned long long num_threads() { return num_blocks() * thread_block::num_threads(); }
    static unsigned long long size() { return num_threads(); }
    static unsigned long long block_rank() {
        return blockIdx.x +
               static_cast<unsigned long long>(gridDim.x) * (blockIdx.y + gridDim.y * blockIdx.z);
    }
    static unsigned long long num_blocks() {
        return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
    }
    static dim3 block_index() { return blockIdx; }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_blocks() { return gridDim; }
    static bool is_valid() { return false; }
    void sync() const = delete;
};

inline grid_group this_grid() {
    return {};
}

// Lanes of a warp, in a row or not. A rank is the position of a lane among them.
class lane_group {
  public:
    unsigned thread_rank() const { return static_cast<unsigned>(__popc(mask_ & ((1u << lane()) - 1))); }
    unsigned num_threads() const { return static_cast<unsigned>(__popc(mask_)); }
    unsigned size() const { return num_threads(); }
    unsigned meta_group_rank() const { return meta_rank_; }
    unsigned meta_group_size() const { return meta_size_; }
    unsigned mask() const { return mask_; }

    void sync(int line = PAGEDLAB_LINE) const { __syncwarp(mask_, line); }
    template <class T>
    T shfl(T value, unsigned source, int line = PAGEDLAB_LINE) const {
        return __shfl_sync(mask_, value, lane_of(source % size()), 32, line);
    }
    // From the thread so many ranks before or behind; where there is none, a thread keeps its value.
    template <class T>
    T shfl_up(T value, unsigned distance, int line = PAGEDLAB_LINE) const {
        const unsigned rank = thread_rank();
        return shfl(value, rank < distance ? rank : rank - distance, line);
    }
    template <class T>
    T shfl_down(T value, unsigned distance, int line = PAGEDLAB_LINE) const {
        const unsigned rank = thread_rank(), source = rank + distance;
        return shfl(value, source < size() ? source : rank, line);
    }
    int any(int predicate, int line = PAGEDLAB_LINE) const { return __any_sync(mask_, predicate, line); }
    int all(int predicate, int line = PAGEDLAB_LINE) const { return __all_sync(mask_, predicate, line); }
    unsigned ballot(int predicate, int line = PAGEDLAB_LINE) const {
        return by_rank(__ballot_sync(mask_, predicate, line));
    }
    template <class T>
    unsigned match_any(T value, int line = PAGEDLAB_LINE) const {
        return by_rank(__match_any_sync(mask_, value, line));
    }
    template <class T>
    unsigned match_all(T value, int& is_same, int line = PAGEDLAB_LINE) const {
        return by_rank(__match_all_sync(mask_, value, &is_same, line));
    }

  protected:
    lane_group(unsigned mask, unsigned meta_rank, unsigned meta_size)
        : mask_(mask), meta_rank_(meta_rank), meta_size_(meta_size) {}
    static unsigned lane() { return thread_block::thread_rank() % 32; }

    unsigned mask_, meta_rank_, meta_size_;

  private:
    int lane_of(unsigned rank) const {
        unsigned rest = mask_;
        for (unsigned i = 0; i < rank; i++) rest &= rest - 1;
        return __ffs(static_cast<int>(rest)) - 1;
    }
    unsigned by_rank(unsigned votes) const {
        unsigned result = 0, rank = 0;
        for (unsigned rest = mask_; rest != 0; rest &= rest - 1) {
            result |= (votes >> (__ffs(static_cast<int>(rest)) - 1) & 1) << rank++;
        }
        return result;
    }
};

// The lanes that come here together, or that a partition puts together.
class coalesced_group : public lane_group {
  public:
    explicit coalesced_group(unsigned mask, unsigned rank = 0, unsigned size = 1)
        : lane_group(mask, rank, size) {}
};

inline coalesced_group coalesced_threads(int line = PAGEDLAB_LINE) {
    return coalesced_group(__activemask(line));
}

template <unsigned Size, class Parent = void>
class thread_block_tile : public lane_group {
    static_assert(Size > 0 && Size <= 32 && (Size & (Size - 1)) == 0,
                  "a tile has 1, 2, 4, 8, 16 or 32 threads");

  public:
    thread_block_tile(unsigned meta_rank, unsigned meta_size)
        : lane_group(0xffffffffu >> (32 - Size) << lane() / Size * Size, meta_rank, meta_size) {}
    template <class Other>
    thread_block_tile(const thread_block_tile<Size, Other>& other)
        : thread_block_tile(other.meta_group_rank(), other.meta_group_size()) {}

    static unsigned thread_rank() { return thread_block::thread_rank() % Size; }
    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }

    template <class T>
    T shfl(T value, int source, int line = PAGEDLAB_LINE) const {
        return __shfl_sync(mask_, value, source, Size, line);
    }
    template <class T>
    T shfl_up(T value, unsigned distance, int line = PAGEDLAB_LINE) const {
        return __shfl_up_sync(mask_, value, distance, Size, line);
    }
    template <class T>
    T shfl_down(T value, unsigned distance, int line = PAGEDLAB_LINE) const {
        return __shfl_down_sync(mask_, value, distance, Size, line);
    }
    template <class T>
    T shfl_xor(T value, int others, int line = PAGEDLAB_LINE) const {
        return __shfl_xor_sync(mask_, value, others, Size, line);
    }
};

template <unsigned Size, class Parent>
inline thread_block_tile<Size, Parent> tiled_partition(const Parent& parent) {
    return {parent.thread_rank() / Size, (parent.num_threads() + Size - 1) / Size};
}

// A group whose kind is known at run time only: the block, or lanes of a warp.
class thread_group {
  public:
    thread_group(const thread_block& block)
        : mask_(0), rank_(thread_block::thread_rank()), size_(thread_block::size()) {}
    thread_group(const lane_group& group)
        : mask_(group.mask()), rank_(group.thread_rank()), size_(group.size()) {}

    unsigned thread_rank() const { return rank_; }
    unsigned num_threads() const { return size_; }
    unsigned size() const { return size_; }
    void sync(int line = PAGEDLAB_LINE) const {
        if (mask_ == 0) {
            __syncthreads(line);
        } else {
            __syncwarp(mask_, line);
        }
    }

  private:
    unsigned mask_, rank_, size_;  // no lanes: the block
};

// Tiles of 1, 2, 4, 8, 16 or 32 threads.
template <class Parent>
inline thread_group tiled_partition(const Parent&, unsigned size) {
    return coalesced_group(0xffffffffu >> (32 - size) << thread_block::thread_rank() % 32 / size * size);
}

// The threads of a group that bring the same label, or the same predicate.
template <class Group, class T>
inline coalesced_group labeled_partition(const Group& group, T label, int line = PAGEDLAB_LINE) {
    return coalesced_group(__match_any_sync(group.mask(), label, line));
}
template <class Group>
inline coalesced_group binary_partition(const Group& group, bool predicate, int line = PAGEDLAB_LINE) {
    return labeled_partition(group, static_cast<int>(predicate), line);
}

template <class Group>
inline void sync(const Group& group, int line = PAGEDLAB_LINE) {
    group.sync(line);
}

}  // namespace cooperative_groups
