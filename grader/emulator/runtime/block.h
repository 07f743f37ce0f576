// One block while it runs: its threads as fibers of one OS thread, and who waits for whom.
#pragma once

#include <memory>
#include <string>

#include "fiber.h"
#include "recorder.h"
#include "runtime.h"

namespace pagedlab {

// Read by kernels under their CUDA names, which are constant there.
#ifdef __APPLE__
#define PAGEDLAB_SYMBOL(name) asm("_" name)
#else
#define PAGEDLAB_SYMBOL(name) asm(name)
#endif
extern __thread uint3 thread_index PAGEDLAB_SYMBOL("threadIdx");
extern __thread uint3 block_index PAGEDLAB_SYMBOL("blockIdx");
extern __thread uint3 block_extent PAGEDLAB_SYMBOL("blockDim");
extern __thread uint3 grid_extent PAGEDLAB_SYMBOL("gridDim");
extern __thread char* dynamic_shared PAGEDLAB_SYMBOL("pagedlab_dynamic_shared");

constexpr unsigned MAX_WARPS = 32, MAX_THREADS = 1024;
constexpr size_t MAX_SHARED = 99 * 1024;

struct Thread {
    void* stack_pointer;  // where it goes on; null before it starts
    Fiber* fiber;         // while it waits
    int line;             // of the source, where it waits
    // Of warp collectives: the lane that a shuffle reads, what it brought, what it got.
    int source_lane;
    uint64_t value, result;
};

constexpr unsigned WHOEVER_COMES =
    0;  // the mask of a meeting that ends when no thread of the block can go on

// Lanes of one warp in one collective operation; complete when no lane of the mask is missing that still runs.
struct Meeting {
    unsigned mask, arrived;
    int operation;
};

struct Warp {
    unsigned alive;  // lanes that have not returned
    unsigned ready;  // lanes that can run now, the running one excepted
    unsigned at_barrier;
    unsigned ahead;  // lanes that wait until the others' accesses are as many as theirs
    unsigned num_meetings;
    Meeting meetings[WARP];
};

class Block {
  public:
    Block();

    void run(Launch& launch, uint64_t index);

    Votes barrier(int predicate, int line);
    uint64_t shuffle(unsigned mask, uint64_t bits, int operation, int operand, int width, int line);
    uint64_t collective(unsigned mask, uint64_t bits, int operation, int line);
    unsigned converge(int line);
    unsigned active_mask() const { return warps_[current_ / WARP].alive; }

    // An access of the running thread, in an instrumented kernel.
    void access(const void* address, size_t bytes, AccessKind kind, const void* instruction);
    void fence();
    void index(const char* array, int64_t index, int line);

    // Where a thread of this block is.
    Place place(unsigned thread, int line) const;

    // A barrier or a shuffle of the running thread, for reports and the profile.
    void note_meeting(SiteKind kind, const void* instruction) {
        if (is_watched_) note_watched_meeting(kind, instruction);
    }

    // Ends the launch with an error at the running thread, which never goes on.
    [[noreturn]] void fail(int code, const char* what);
    // As fail, in a signal handler, which goes on at the returned stack pointer.
    void* fail_in_handler(int code, const void* address, const char* what);

    const Launch* launch() const { return launch_; }  // null when none runs
    const Fiber* fiber() const { return fiber_; }
    void fiber_loop();

  private:
    void prepare(Launch& launch, uint64_t index);
    void number_threads(const unsigned* extent);
    void* enter(unsigned thread);
    void wait(int line);
    __attribute__((noinline)) void note_watched_meeting(SiteKind kind, const void* instruction);
    __attribute__((noinline)) void counted_access(const void* address, size_t bytes, AccessKind kind,
                                                  const void* instruction);
    void let_others_catch_up();
    int next_ready();
    void finish_thread();
    // Not part of waiting, whose frame on each stack would grow.
    __attribute__((noinline)) void resume_lanes_ahead(unsigned warp);
    __attribute__((noinline)) void open_barrier();
    __attribute__((noinline)) void complete(Warp& warp, unsigned position);
    __attribute__((noinline)) void release_converging();
    uint64_t meet(unsigned mask, int operation, int line);
    static void combine(const Meeting& meeting, Thread* lanes);
    [[noreturn]] void fail_deadlocked(int line);
    [[noreturn]] void fail_outside_mask(unsigned mask, int line);
    [[noreturn]] void fail_to_synchronise(const char* what, unsigned thread);
    // Synchronisation that does not reach all whom it names, of checked launches.
    void check_barrier(int line);
    void check_returned();
    void check_meeting(const Meeting& meeting, unsigned warp);
    void check_sources(const Meeting& meeting, unsigned warp);
    void check_failure(const char* what, unsigned thread);
    __attribute__((noinline)) void report_mixed_barriers();

    Launch* launch_ = nullptr;
    FiberPool pool_;
    void* scheduler_ = nullptr;  // stack pointer of run()
    Fiber* fiber_ = nullptr;     // running
    unsigned current_ = 0;       // running thread
    unsigned num_threads_ = 0, alive_ = 0, num_warps_ = 0;
    unsigned ready_warps_ = 0;  // warps that have ready lanes
    unsigned order_ = IN_ORDER;
    unsigned random_ = 0;      // state of the order's generator
    bool is_watched_ = false;  // counted, checked or profiled
    unsigned arrived_ = 0;     // threads at the barrier, and those with a true predicate
    int yes_ = 0;
    Votes votes_{};         // of the last barrier
    int barrier_line_ = 0;  // of the thread that came first
    unsigned barrier_thread_ = 0;
    bool are_barriers_mixed_ = false;  // of checked launches: threads came from several lines
    uint64_t num_barriers_ = 0, num_shuffles_ = 0;
    std::unique_ptr<Recorder> recorder_;  // of counted launches
    unsigned numbered_[3] = {0, 0, 0};    // the extent of which index_ is
    bool is_row_ = false;                 // threads differ in threadIdx.x only
    uint3 index_[MAX_THREADS];
    Thread threads_[MAX_THREADS + 1] = {};  // the last one is there to be looked at only
    Warp warps_[MAX_WARPS];
    char* dynamic_shared_;
    const void* instructions_[MAX_THREADS] = {};  // last barriers, shuffles; of watched launches
};

extern __thread Block* running_block;  // of this OS thread

// Gives the calling OS thread a stack on which to handle the faults of its fibers.
void catch_faults_here();

}  // namespace pagedlab
