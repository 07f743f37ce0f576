// The device's memory: a sparse file that the client maps too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

namespace pagedlab {

struct Allocation {
    char* begin;
    size_t bytes;
};

class Arena {
  public:
    // Maps the file; returns the address of its first byte. Throws std::bad_alloc.
    char* map(int file, size_t bytes, size_t capacity);

    // Null when the capacity is used up.
    char* allocate(size_t bytes);
    void free(char* begin);

    // The allocation that holds the address; {nullptr, 0} when none does.
    Allocation find(const void* address) const;
    // As find; else the allocation that ends or begins the nearest to the address.
    Allocation nearest(const void* address) const;
    bool holds(const void* address) const {
        const char* byte = static_cast<const char*>(address);
        return byte >= base_ && byte < base_ + bytes_;
    }

    int file() const { return file_; }
    char* base() const { return base_; }
    size_t used() const { return used_; }
    size_t peak() const { return peak_; }
    const std::map<char*, size_t>& allocations() const { return allocations_; }

  private:
    char* place(size_t extent);
    void recycle();

    int file_ = -1;
    char* base_ = nullptr;
    char* frontier_ = nullptr;  // where no allocation has been yet
    size_t bytes_ = 0, capacity_ = 0, used_ = 0, peak_ = 0;
    std::map<char*, size_t> allocations_;
    std::map<char*, size_t> vacant_;  // extents that can be used again
    std::deque<Allocation> resting_;  // freed extents that are not used again yet
    size_t resting_bytes_ = 0;
};

extern Arena arena;

}  // namespace pagedlab
