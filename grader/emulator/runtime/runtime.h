// A launch as device.py asks for it (native.py mirrors these structs), and the cores that work it off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "emulated/interface.h"
#include "emulated/vectors.h"

namespace pagedlab {

// CUDA's error codes.
enum ErrorCode {
    SUCCESS = 0,
    ILLEGAL_ADDRESS = 700,
    ASSERT = 710,
    MISALIGNED_ADDRESS = 716,
    LAUNCH_FAILED = 719
};

constexpr unsigned MAX_ARGUMENTS = 64;

// What an instrumented kernel does to memory. UNALIGNED: of an address that need not be a multiple of the size.
enum AccessKind { LOAD, STORE, UNALIGNED_LOAD, UNALIGNED_STORE, ATOMIC };

inline bool is_load(AccessKind kind) {
    return kind == LOAD || kind == UNALIGNED_LOAD;
}

// Of one launch: the fields of grader.counters.Counters. Pairs are of loads and stores; `arguments` has one for
// each pointer argument.
struct Counters {
    uint64_t threads, blocks;
    uint64_t bytes[2], sectors[2], ideal_sectors[2];
    uint64_t barriers, shuffles, max_thread_accesses, accesses;
    uint64_t arguments[MAX_ARGUMENTS][2];
};

struct Range {
    const char *begin, *end;

    bool holds(const void* address) const { return address >= begin && address < end; }
};

struct Launch {
    const Kernel* kernel;
    const char* name;
    const char* arguments;     // packed
    char* (*shared_anchor)();  // a place in the module's shared variables of the calling thread …
    size_t anchor_offset;      // … this far behind their begin
    size_t static_shared, dynamic_shared;
    Range code;           // the module's instructions
    Range memory;         // all device memory
    Range* pointed_into;  // the allocation of each pointer argument, of a counted launch
    unsigned num_pointers;
    unsigned grid[3], block[3];
    unsigned order_seed;
    Counters* counters;  // null: not counted

    // What went wrong, if anything.
    int code_of_error;
    const void* address;  // of an illegal access
    char detail[1024];

    // The first failure stays; blocks that were not begun are left out. Safe in a signal handler.
    void fail(int error, const void* fault_address, const char* what);
};

// Runs task(i) for every i in 0 … count − 1 on all cores; returns when all are done. `is_long`: call the other
// cores at once, not after a first task that proves long.
void parallel_for(uint64_t count, bool is_long, const std::function<void(uint64_t)>& task);

}  // namespace pagedlab
