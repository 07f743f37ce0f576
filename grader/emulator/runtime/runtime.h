// What the parts of the runtime share: a launch, and the C interface that device.py calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

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

struct Launch {
    const Kernel* kernel;
    const char* name;
    const char* arguments;     // packed
    char* (*shared_anchor)();  // where the module's static shared variables are in the calling thread …
    long shared_offset;        // … less this is their begin
    size_t static_shared, dynamic_shared;
    dim3 grid, block;
    unsigned order_seed;

    std::atomic<bool> failed{false};
    std::mutex mutex;
    int code = SUCCESS;
    std::string detail;

    // The first failure stays; every block stops at its next chance.
    void fail(int error, const std::string& what);
};

// Run task(i) for every i in 0 … count − 1 on all cores; returns when all are done.
void parallel_for(uint64_t count, const std::function<void(uint64_t)>& task);

// Runs one block of a launch on the calling thread.
void run_block(Launch& launch, uint64_t block);

// "kernel f, block (0,0,0), thread (3,0,0)" of what the calling thread runs; empty outside of kernels. Signal-safe.
void describe_position(char* text, size_t size);

}  // namespace pagedlab
