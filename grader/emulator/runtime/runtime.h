// A launch as emulated_gpu.py asks for it (native.py mirrors these structs), and the cores that work it off.
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

constexpr unsigned WARP = 32, MAX_ARGUMENTS = 64;

// What an instrumented kernel does to memory. UNALIGNED: of an address that need not be a multiple of the size.
enum AccessKind { LOAD, STORE, UNALIGNED_LOAD, UNALIGNED_STORE, ATOMIC, COMPARE_AND_SWAP };

inline bool is_load(AccessKind kind) {
    return kind == LOAD || kind == UNALIGNED_LOAD;
}

inline bool is_atomic(AccessKind kind) {
    return kind == ATOMIC || kind == COMPARE_AND_SWAP;
}

// Of one launch: the fields of grader.observe.counters.Counters. Pairs are of loads and stores; `arguments` has one for
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

// Orders in which threads run; any other seed: at random.
constexpr unsigned IN_ORDER = 0, REVERSED = 1;

enum Verdict { OUT_OF_BOUNDS, MISALIGNED_ACCESS, DATA_RACE, UNINITIALISED_READ, BARRIER_DIVERGENCE };
enum Space { GLOBAL, STATIC_SHARED, DYNAMIC_SHARED, ELSEWHERE };

// What an instruction of a kernel does, of those that a profile tells of.
enum SiteKind { SITE_LOAD, SITE_STORE, SITE_ATOMIC, SITE_BARRIER, SITE_SHUFFLE };

// What one instruction did, by requests of warps. A request costs, in global memory, the 32-byte sectors that it touches;
// in shared memory the times that this is read, once where no bank has two of the words. `ideal` is what as many
// bytes need at least.
struct SiteCounts {
    uint64_t requests, lanes, bytes;
    uint64_t divergent;  // requests of a part of the lanes that were active
    uint64_t cost, ideal;
    uint64_t addresses;  // different ones in a request, summed up; of atomics
};

// The request that costs the most beyond its ideal.
struct WorstRequest {
    uint64_t cost, ideal;
    uint32_t lanes, bytes;  // a bit for each lane, bytes of each; no lanes: none
    uint32_t block[3], warp;
    uint64_t addresses[WARP];  // in shared memory: from its begin
};

struct Site {
    uint64_t instruction;  // the one behind it; 0: a free slot of a table
    uint32_t kind, space;  // a SiteKind, a Space
    SiteCounts counts;
    WorstRequest worst;
};

// A hash table of sites.
struct SiteTable {
    static constexpr unsigned SLOTS = 1024;
    uint64_t lost;  // requests at instructions for which it had no slot
    Site slots[SLOTS];
};

// Where a thread did something: at an instruction, or in a line of the source, or both.
struct Place {
    unsigned block[3], thread[3];
    const void* instruction;
    int line,
        kind;  // line: as numbered_line makes it; kind: an AccessKind, −1 for none, −2 where there is no such thread
};

// One finding about a launch; `address` is an offset in shared memory, an address otherwise.
struct Report {
    int verdict, is_error, space;
    Place access, other;
    uint64_t address, bytes, count;
    char text[400];  // more about it, where there is more
};

constexpr unsigned MAX_REPORTS = 64, MAX_REMARKS = 32;  // remarks leave room for errors

// What a checked launch may do, and what it did.
struct Checks {
    const Range* arrays;  // of global memory, ascending
    unsigned num_arrays;
    const Range* shared_variables;  // offsets in static shared memory
    unsigned num_shared_variables;
    unsigned num_guards;  // of these the last ones, which are the compiler's own and always hold something
    Range image;          // the whole module as it is loaded
    unsigned num_reports;
    Report reports[MAX_REPORTS];
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
    Checks* checks;      // null: not checked
    SiteTable* sites;    // of a counted launch; null: not profiled

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
