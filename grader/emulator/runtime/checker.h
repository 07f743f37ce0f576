// Finds what a kernel must not do to memory: accesses out of bounds, reads of what nobody wrote, data races.
//
// Every two bytes of memory have a cell that knows their last writer and two readers. An access carries the stamp of
// the last point at which its thread was synchronised with others; stamps only grow, so that nothing is ever cleared.
// Checked launches run on one OS thread, one block after the other: there is one checker.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "block.h"

namespace pagedlab {

class Checker {
  public:
    void begin_launch(Launch& launch);
    void begin_block(unsigned num_threads);

    void access(unsigned thread, const void* address, size_t bytes, AccessKind kind, const void* instruction);
    // The thread runs __threadfence.
    void fence(unsigned thread);
    // These lanes of a warp have met; `everybody`: no lane that the warp ever had is missing.
    void meet(unsigned warp, unsigned lanes, bool everybody);
    // A barrier opens, at which all threads are that have not returned.
    void open_barrier();
    // The running thread has returned.
    void finish();
    // An index beyond the bounds of an array that the compiler knows.
    void index(unsigned thread, const char* array, int64_t index, int line);

    // Whether the thread used memory.
    bool worked(unsigned thread) const { return worked_[thread]; }

    // The report of this kind and place, counted once more; null when there are too many or it is no news.
    Report* report(Verdict verdict, bool is_error, const Place& access);

    // Of global memory: these bytes hold something now, or nothing yet.
    void mark(uintptr_t begin, size_t bytes, bool is_written);
    // All of global memory holds something.
    void forget();

  private:
    static constexpr size_t PAGE = 4096, CELL = 2;

    // An access as a cell remembers it. `bytes`: which of the cell's; `site`: its instruction's place in the code.
    struct Slot {
        uint32_t stamp;
        uint32_t thread : 10, is_atomic : 1, is_compare : 1, bytes : 2, site : 18;

        Slot with(unsigned more_bytes) const {
            return {stamp, thread, is_atomic, is_compare, (bytes | more_bytes) & 3, site};
        }
    };
    struct Cell {
        Slot writer, readers[2];
    };
    struct Page {
        uint64_t unwritten[PAGE / 64 + 1] = {};
        std::unique_ptr<Cell[]> cells{new Cell[PAGE / CELL]()};
    };
    struct Access {
        const char* address;
        size_t bytes;
        AccessKind kind;
        const void* instruction;
        Slot slot;
        Space space;
        size_t offset;         // in the shared space; in global memory the address
        uint32_t first_stamp;  // what was before does not matter
    };
    // What a thread's last fence lets others see once an atomic follows it: accesses stamped before …
    struct Fence {
        uint32_t tick, barrier;  // the fence itself, of its own; the block's last barrier, of all threads
        uint32_t lanes[WARP];    // and of its warp's lanes, the last time that it met them
    };
    struct Release {
        uint32_t block;                 // the tick at which it began
        std::vector<uint32_t> covered;  // of each thread the accesses stamped before that can be seen
    };

    void check_shared(Access& access, size_t at);
    void check_global(Access& access);
    void check_elsewhere(Access& access);
    void check_bytes(Cell* cells, uint64_t* unwritten, size_t offset, size_t bytes, const Access& access);
    void check_cell(Cell& cell, Slot slot, const Access& access);
    void note_load(Cell& cell, Slot slot, uint32_t first_stamp);
    bool conflicts(Slot earlier, Slot slot, uint32_t first_stamp) const;
    bool is_ordered(Slot earlier, unsigned thread) const {
        if (earlier.stamp < block_first_) return is_released(earlier);
        if (earlier.thread == thread || earlier.stamp < barrier_) return true;
        return earlier.thread / WARP == thread / WARP && seen(thread, earlier.thread) > earlier.stamp;
    }
    bool is_released(const Slot& earlier) const;
    void note_atomic(const void* address, unsigned thread);
    void cover(std::vector<uint32_t>& covered, unsigned thread) const;
    void report_race(const Slot& earlier, AccessKind earlier_kind, const Access& access);
    void settle() {
        if (pending_.bytes != 0) settle_store();
    }
    void settle_store();
    Report* report(Verdict verdict, const Access& access);
    Place place(const Slot& slot, int kind) const;
    const Range* array_of(const char* address);
    Page& page(uintptr_t address);
    uint32_t seen(unsigned thread, unsigned other) const;

    Launch* launch_ = nullptr;
    const char* static_shared_ = nullptr;
    uint32_t tick_ = 0, launch_first_ = 0, block_first_ = 0, barrier_ = 0;  // ticks at which they began
    std::vector<std::pair<uint32_t, uint3>> blocks_;  // of the launch, by the tick at which each began
    uint32_t stamps_[MAX_THREADS];
    uint32_t warp_met_[MAX_WARPS] = {};  // when all its lanes last met
    // When a lane was last synchronised with another, directly or through others.
    uint32_t lane_met_[MAX_WARPS][WARP][WARP] = {};
    bool worked_[MAX_THREADS];

    Fence fences_[MAX_THREADS] = {};
    std::vector<unsigned> fenced_;   // threads that ran a fence since the last barrier
    std::vector<uint32_t> covered_;  // by the fences before it
    std::unordered_map<const void*, std::vector<Release>> releases_;  // by the atomic variable
    std::vector<const void*> acquired_;                               // by the running block

    std::unordered_map<uintptr_t, Page> pages_;
    std::pair<uintptr_t, Page*> known_pages_[256] = {};
    const Range* last_arrays_[4] = {};
    unsigned next_array_ = 0;
    std::vector<Cell> shared_cells_;
    std::vector<uint64_t> shared_unwritten_, shared_invalid_;

    // A store to where another thread has stored: a race, unless it stores the same value.
    Access pending_{};
    Slot pending_earlier_{};
    char pending_old_[16];
};

extern Checker& checker;

}  // namespace pagedlab
