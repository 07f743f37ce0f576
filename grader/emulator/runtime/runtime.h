// What the parts of the runtime share: a launch, its counters, and the cores that do the work.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "arena.h"
#include "emulated/interface.h"
#include "emulated/vectors.h"

namespace pagedlab {

// CUDA's error codes.
enum ErrorCode {
    SUCCESS = 0,
    ILLEGAL_ADDRESS = 700,
    ASSERT = 710,
    MISALIGNED_ADDRESS = 716,
    LAUNCH_FAILED = 719,
};

constexpr unsigned MAX_ARGUMENTS = 64;

// Of one launch; the fields of grader.counters.Counters, of which `arguments` is counted per pointer argument.
struct Counters {
    uint64_t threads, blocks;
    uint64_t bytes[2], sectors[2], ideal_sectors[2];  // loads, stores
    uint64_t barriers, shuffles, max_thread_accesses, accesses;
    uint64_t arguments[MAX_ARGUMENTS][2];
};

// What a launch needs of its module and its caller; filled by native.py.
struct Request {
    const Kernel* kernel;
    const char* name;
    const char* arguments;     // packed
    char* (*shared_anchor)();  // a place in the module's shared variables of the calling thread …
    size_t anchor_offset;      // … this far behind their begin
    size_t static_shared, dynamic_shared;
    const char *code_begin, *code_end;  // the module's instructions
    unsigned grid[3], block[3];
    unsigned order_seed;
    Counters* counters;  // null: not counted
};

struct Launch : Request {
    explicit Launch(const Request& request) : Request(request) {}

    // The first failure stays; blocks that were not begun are left out. Safe in signal handlers.
    void fail(int error, const char* what);

    std::atomic<bool> failed{false};
    int code = SUCCESS;
    char detail[1024] = "";

    std::mutex counting;
    Allocation argument_memory[MAX_ARGUMENTS];  // what each pointer argument points into
    unsigned num_pointers = 0;
};

// Runs task(i) for every i in 0 … count − 1 on all cores; returns when all are done. `is_long`: call the other cores at
// once, not after a first task that proves long.
void parallel_for(uint64_t count, bool is_long, const std::function<void(uint64_t)>& task);

}  // namespace pagedlab
