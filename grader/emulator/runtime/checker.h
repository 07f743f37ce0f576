// Finds what a kernel must not do to memory: accesses out of bounds, reads of what nobody wrote, data races.
//
// Every two bytes of memory have a cell that knows their last writer and two readers. An access carries the stamp of
// the last point at which its thread was synchronised with others; stamps only grow, so that nothing is ever cleared.
// Checked launches run on one OS thread, one block after the other: there is one checker.
#pragma once

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "block.h"

namespace pagedlab {

inline uintptr_t number_of(const void* address) {
    return reinterpret_cast<uintptr_t>(address);
}

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
    static constexpr size_t PAGE = 4096, CELL = 2, KNOWN_PAGES = 256, MAX_SITE = size_t{1} << 18;

    // An access as a cell remembers it: when, where in the code, which of the cell's bytes, and who. One number, since
    // processors are slow to read as a whole what was written in parts.
    struct Slot {
        uint64_t bits;

        uint32_t stamp() const { return static_cast<uint32_t>(bits >> 32); }
        unsigned site() const { return bits >> 14 & (MAX_SITE - 1); }
        unsigned bytes() const { return bits >> 12 & 3; }
        bool is_compare() const { return bits >> 11 & 1; }
        bool is_atomic() const { return bits >> 10 & 1; }
        unsigned thread() const { return bits & 1023; }
        // Of a cell's bytes these only, or these too.
        Slot of(uint64_t some_bytes) const { return {(bits & ~uint64_t{3 << 12}) | some_bytes << 12}; }
        Slot with(uint64_t more_bytes) const { return {bits | more_bytes << 12}; }
    };
    struct Cell {
        Slot writer, readers[2];

        bool operator==(const Cell& other) const {
            return writer.bits == other.writer.bits && readers[0].bits == other.readers[0].bits &&
                   readers[1].bits == other.readers[1].bits;
        }
    };
    struct Page {
        uint64_t unwritten[PAGE / 64 + 1] = {};
        std::unique_ptr<Cell[]> cells{new Cell[PAGE / CELL]()};
    };
    // A page that was used before, and an array in it.
    struct KnownPage {
        uintptr_t number;
        Page* page;
        Range array;
    };
    struct Access {
        const char* address;
        size_t bytes;
        AccessKind kind;
        const void* instruction;
        Slot slot;
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

    void check_shared(const Access& access, size_t at);
    void check_global(const Access& access);
    [[gnu::cold]] void check_other_pages(const Access& access, size_t done);
    [[gnu::noinline]] void check_elsewhere(const Access& access);
    // `first_stamp`: what was before does not matter.
    void check_bytes(Cell* cells, uint64_t* unwritten, size_t offset, size_t bytes, const Access& access,
                     uint32_t first_stamp);
    [[gnu::noinline]] void check_halves(Cell* cells, size_t offset, size_t bytes, Access access,
                                        uint32_t first_stamp);
    [[gnu::noinline]] void check_cells(Cell* cells, size_t count, const Access& access, uint32_t first_stamp);
    template <class Check>
    void check_each(Cell* cells, size_t count, Check check);
    void check_load(Cell& cell, const Access& access, uint32_t first_stamp);
    void check_change(Cell& cell, const Access& access, uint32_t first_stamp);
    bool replaces(Slot& reader, Slot slot, uint32_t first_stamp) const;
    void note_load(Cell& cell, Slot slot, uint32_t first_stamp);
    bool conflicts(Slot earlier, Slot slot, uint32_t first_stamp) const;
    // Whether an access comes before whatever the thread does now, or is of no account: before `first_stamp`.
    bool is_past(Slot earlier, unsigned thread, uint32_t first_stamp) const {
        const uint32_t stamp = earlier.stamp();
        if (stamp >= barrier_) {
            const unsigned other = earlier.thread();
            return other == thread || (other / WARP == thread / WARP && seen(thread, other) > stamp);
        }
        return stamp < first_stamp || stamp >= block_first_ || (!acquired_.empty() && is_released(earlier));
    }
    [[gnu::noinline]] bool is_released(Slot earlier) const;
    [[gnu::noinline]] void note_atomic(const void* address, unsigned thread);
    void cover(std::vector<uint32_t>& covered, unsigned thread) const;
    [[gnu::cold]] void report_race(Slot earlier, AccessKind earlier_kind, const Access& access);
    void settle() {
        if (pending_.bytes != 0) settle_store();
    }
    [[gnu::cold]] void settle_store();
    [[gnu::cold]] Report* report(Verdict verdict, const Access& access);
    Place place(Slot slot, int kind) const;
    KnownPage& known_page(uintptr_t address) {
        const uintptr_t number = address / PAGE;
        return known_pages_[(number ^ number >> 8) % KNOWN_PAGES];
    }
    [[gnu::noinline]] bool find_page(const char* address, KnownPage& known);
    std::pair<Space, uint64_t> locate(const char* address);
    uint32_t seen(unsigned thread, unsigned other) const {
        const unsigned warp = thread / WARP;
        return std::max(warp_met_[warp], lane_met_[warp][thread % WARP][other % WARP]);
    }

    Launch* launch_ = nullptr;
    const char *static_shared_ = nullptr, *dynamic_shared_ = nullptr;       // of the running block
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
    KnownPage known_pages_[KNOWN_PAGES] = {};
    std::vector<Cell> shared_cells_;
    std::vector<uint64_t> shared_unwritten_, shared_invalid_;

    // A store to where another thread has stored: a race, unless it stores the same value.
    Access pending_{};
    Slot pending_earlier_{};
    char pending_old_[16];
};

extern Checker& checker;

}  // namespace pagedlab
