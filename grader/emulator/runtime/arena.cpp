// Memory nobody wrote, and memory that was freed, holds NaNs. Freed memory rests a while before it is used again, so
// that a stale pointer meets poison and not somebody else's numbers.
#include "arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace pagedlab {

namespace {

constexpr size_t ALIGNMENT = 256, GAP = 256;  // gap: bytes between allocations that belong to none
constexpr size_t FIRST_OFFSET = size_t{1} << 21;
constexpr size_t PAGE = 1 << 16;                  // a multiple of every system's page
constexpr size_t LARGE = size_t{1} << 20;         // from here on, freed memory goes back to the system
constexpr size_t MAX_POISONED = size_t{64} << 20;  // of a larger allocation, only its begin and end are poisoned
constexpr size_t MAX_RESTING_BYTES = size_t{64} << 20, MAX_RESTING = 1024;
constexpr int POISON = 0xff;

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t extent_of(size_t bytes) {
    // Large allocations have pages of their own.
    return bytes >= LARGE ? rounded_up(bytes + GAP, PAGE) : rounded_up(bytes, ALIGNMENT) + GAP;
}

void poison(char* begin, size_t bytes) {
    const size_t edge = std::min(bytes, MAX_POISONED / 2);
    memset(begin, POISON, edge);
    memset(begin + std::max(edge, bytes - edge), POISON, bytes - std::max(edge, bytes - edge));
}

}  // namespace

Arena arena;

char* Arena::map(int file, size_t bytes, size_t capacity) {
    void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    file_ = file;
    base_ = static_cast<char*>(memory);
    frontier_ = base_ + FIRST_OFFSET;
    bytes_ = bytes;
    capacity_ = capacity;
    return base_;
}

char* Arena::allocate(size_t bytes) {
    if (bytes > capacity_ - used_) return nullptr;
    char* begin = place(extent_of(bytes));
    if (begin == nullptr) return nullptr;
    allocations_[begin] = bytes;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    poison(begin, bytes);
    return begin;
}

char* Arena::place(size_t extent) {
    const auto fits = std::find_if(vacant_.begin(), vacant_.end(), [&](auto& entry) { return entry.second >= extent; });
    const bool reused = fits != vacant_.end();
    char* begin = reused ? fits->first : frontier_;
    if (reused) {
        const size_t rest = fits->second - extent;
        vacant_.erase(fits);
        if (rest > 0) vacant_[begin + extent] = rest;
    } else {
        if (extent >= LARGE) begin = base_ + rounded_up(static_cast<size_t>(begin - base_), PAGE);
        if (extent > static_cast<size_t>(base_ + bytes_ - begin)) return nullptr;
        frontier_ = begin + extent;
    }
    // What was never allocated, and large extents that are vacant, cannot be accessed at all.
    char* first_page = base_ + static_cast<size_t>(begin - base_) / PAGE * PAGE;
    mprotect(first_page, rounded_up(static_cast<size_t>(begin + extent - first_page), PAGE), PROT_READ | PROT_WRITE);
    return begin;
}

void Arena::free(char* begin) {
    const auto found = allocations_.find(begin);
    if (found == allocations_.end()) return;
    const size_t bytes = found->second, extent = extent_of(bytes);
    allocations_.erase(found);
    used_ -= bytes;
    if (bytes >= LARGE) {
        madvise(begin, extent, MADV_REMOVE);
        mprotect(begin, extent, PROT_NONE);
    } else {
        poison(begin, bytes);
    }
    resting_.push_back({begin, extent});
    resting_bytes_ += bytes >= LARGE ? 0 : extent;
    while (resting_.size() > MAX_RESTING || resting_bytes_ > MAX_RESTING_BYTES) recycle();
}

// Makes the extent that has rested the longest vacant, joined with its vacant neighbours.
void Arena::recycle() {
    auto [begin, extent] = resting_.front();
    resting_.pop_front();
    if (extent < LARGE) resting_bytes_ -= extent;
    auto next = vacant_.lower_bound(begin);
    if (next != vacant_.end() && next->first == begin + extent) {
        extent += next->second;
        next = vacant_.erase(next);
    }
    if (next != vacant_.begin()) {
        auto before = std::prev(next);
        if (before->first + before->second == begin) {
            before->second += extent;
            return;
        }
    }
    vacant_[begin] = extent;
}

Allocation Arena::find(const void* address) const {
    const Allocation found = nearest(address);
    const char* byte = static_cast<const char*>(address);
    return byte >= found.begin && byte < found.begin + found.bytes ? found : Allocation{};
}

Allocation Arena::nearest(const void* address) const {
    char* byte = const_cast<char*>(static_cast<const char*>(address));
    const auto after = allocations_.upper_bound(byte);
    if (after == allocations_.begin()) {
        return after == allocations_.end() ? Allocation{} : Allocation{after->first, after->second};
    }
    const auto before = std::prev(after);
    const bool is_behind = byte >= before->first + before->second;
    if (is_behind && after != allocations_.end() && after->first - byte < byte - (before->first + before->second)) {
        return {after->first, after->second};
    }
    return {before->first, before->second};
}

}  // namespace pagedlab

extern "C" {

// Where the arena is in this process; null when it cannot be mapped.
char* pagedlab_map(int file, size_t bytes, size_t capacity) {
    try {
        return pagedlab::arena.map(file, bytes, capacity);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

char* pagedlab_allocate(size_t bytes) { return pagedlab::arena.allocate(bytes); }

void pagedlab_free(char* begin) { pagedlab::arena.free(begin); }

// Moves a module's variables into the arena, where programs can copy to and from them: the pages that hold them show
// the same memory afterwards. Returns the variables' address in the arena; null when it has no room.
char* pagedlab_move_globals(char* begin, size_t bytes) {
    const uintptr_t page = static_cast<uintptr_t>(getpagesize());
    char* first = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(begin) / page * page);
    const size_t extent = (static_cast<size_t>(begin + bytes - first) + page - 1) / page * page;
    char* memory = pagedlab::arena.allocate(extent + page);
    if (memory == nullptr) return nullptr;
    memory = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory) + page - 1) / page * page);
    memcpy(memory, first, extent);
    void* mapped = mmap(first, extent, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pagedlab::arena.file(),
                        memory - pagedlab::arena.base());
    return mapped == MAP_FAILED ? nullptr : memory + (begin - first);
}

// Fills count elements of 1, 2 or 4 bytes. False when they do not lie in one allocation.
bool pagedlab_fill(char* begin, int width, unsigned value, size_t count) {
    const pagedlab::Allocation allocation = pagedlab::arena.find(begin);
    if (allocation.begin == nullptr) return count == 0;
    if (count > static_cast<size_t>(allocation.begin + allocation.bytes - begin) / static_cast<size_t>(width)) return false;
    if (width == 1) std::fill_n(begin, count, static_cast<char>(value));
    if (width == 2) std::fill_n(reinterpret_cast<uint16_t*>(begin), count, static_cast<uint16_t>(value));
    if (width == 4) std::fill_n(reinterpret_cast<uint32_t*>(begin), count, value);
    return true;
}

// Copies inside the arena. False when either end does not lie in one allocation.
bool pagedlab_copy(char* target, const char* source, size_t bytes) {
    for (const char* begin : {static_cast<const char*>(target), source}) {
        const pagedlab::Allocation allocation = pagedlab::arena.find(begin);
        if (allocation.begin == nullptr || bytes > static_cast<size_t>(allocation.begin + allocation.bytes - begin)) {
            return bytes == 0;
        }
    }
    memmove(target, source, bytes);
    return true;
}

size_t pagedlab_used() { return pagedlab::arena.used(); }

size_t pagedlab_peak() { return pagedlab::arena.peak(); }
}
