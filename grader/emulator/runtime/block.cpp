// Threads of a block run until they wait; whoever waits hands over to the next that can run, directly.
#include "block.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "checker.h"

namespace pagedlab {

__thread uint3 thread_index, block_index, block_extent, grid_extent;
__thread char* dynamic_shared;

namespace {

constexpr int POISON = 0xff;  // bytes of NaNs and of absurd integers

unsigned first_lanes(unsigned count) {
    return count >= WARP ? ~0u : (1u << count) - 1;
}

// The first bit of the mask after `position`, cyclically.
unsigned next_bit(unsigned mask, unsigned position) {
    const unsigned later = mask & ~((2u << position) - 1);
    return static_cast<unsigned>(__builtin_ctz(later ? later : mask));
}

unsigned last_bit(unsigned mask) {
    return 31 - static_cast<unsigned>(__builtin_clz(mask));
}

bool is_complete(const Warp& warp, const Meeting& meeting) {
    return meeting.arrived == (meeting.mask & warp.alive);
}

}  // namespace

__thread Block* running_block;

static void enter_fiber() {
    running_block->fiber_loop();
}

Block::Block() : pool_(enter_fiber) {
    dynamic_shared_ = new (std::align_val_t{128}) char[MAX_SHARED];
    catch_faults_here();
}

void Block::run(Launch& launch, uint64_t index) {
    prepare(launch, index);
    current_ = (order_ == REVERSED ? num_warps_ : 1) * WARP - 1;
    const int first = next_ready();
    fiber_ = pool_.take();
    enter(static_cast<unsigned>(first));
    switch_stack(&scheduler_, fiber_->stack_pointer);
    if (alive_ > 0) {
        pool_.reset();
    } else if (launch.counters != nullptr) {
        recorder_->finish(num_barriers_, num_shuffles_);
    }
    launch_ = nullptr;
}

void Block::prepare(Launch& launch, uint64_t index) {
    launch_ = &launch;
    const uint64_t row = index / launch.grid[0];
    block_index = {static_cast<unsigned>(index % launch.grid[0]), static_cast<unsigned>(row % launch.grid[1]),
                   static_cast<unsigned>(row / launch.grid[1])};
    block_extent = {launch.block[0], launch.block[1], launch.block[2]};
    grid_extent = {launch.grid[0], launch.grid[1], launch.grid[2]};
    dynamic_shared = dynamic_shared_;
    memset(dynamic_shared_, POISON, launch.dynamic_shared);
    if (launch.static_shared > 0) {
        memset(launch.shared_anchor() - launch.anchor_offset, POISON, launch.static_shared);
    }
    number_threads(launch.block);
    thread_index = {0, 0, 0};
    if (launch.counters != nullptr) {
        if (!recorder_) recorder_.reset(new Recorder);
        recorder_->begin(launch, num_threads_);
    }
    if (launch.checks != nullptr) checker.begin_block(num_threads_);
    is_watched_ = launch.counters != nullptr || launch.checks != nullptr || launch.sites != nullptr;
    alive_ = num_threads_;
    arrived_ = 0;
    num_barriers_ = num_shuffles_ = 0;
    order_ = launch.order_seed;
    random_ = (order_ + static_cast<unsigned>(index)) * 2654435769u | 1;
    yes_ = 0;
    ready_warps_ = first_lanes(num_warps_);
    for (unsigned w = 0; w < num_warps_; w++) {
        const unsigned lanes = first_lanes(num_threads_ - w * WARP);
        warps_[w].alive = warps_[w].ready = lanes;
        warps_[w].at_barrier = warps_[w].ahead = warps_[w].num_meetings = 0;
    }
    for (unsigned t = 0; t < num_threads_; t++) threads_[t].stack_pointer = nullptr;
}

void Block::number_threads(const unsigned* extent) {
    if (std::equal(extent, extent + 3, numbered_)) return;
    std::copy_n(extent, 3, numbered_);
    num_threads_ = extent[0] * extent[1] * extent[2];
    is_row_ = num_threads_ == extent[0];
    num_warps_ = (num_threads_ + WARP - 1) / WARP;
    for (unsigned t = 0; t < num_threads_; t++) {
        index_[t] = {t % extent[0], t / extent[0] % extent[1], t / extent[0] / extent[1]};
    }
}

// The thread to run next, taken off the ready ones; −1 when all wait or have returned. Lanes of the same warp first:
// they meet the soonest, and their stacks are in the cache. In the reversed order the last one of them, with another
// seed any ready thread.
inline int Block::next_ready() {
    if (ready_warps_ == 0) release_converging();
    if (ready_warps_ == 0) return -1;
    unsigned w = current_ / WARP, lane = current_ % WARP;
    if (order_ > REVERSED) {
        random_ ^= random_ << 13;  // xorshift
        random_ ^= random_ >> 17;
        random_ ^= random_ << 5;
        w = next_bit(ready_warps_, random_ % num_warps_);
        lane = random_ / WARP % WARP;
    } else if (order_ == REVERSED) {
        if (!(ready_warps_ >> w & 1)) w = last_bit(ready_warps_);
        lane = (last_bit(warps_[w].ready) + WARP - 1) % WARP;  // whose next one, cyclically, is this one
    } else if (!(ready_warps_ >> w & 1)) {
        w = next_bit(ready_warps_, w);
        lane = WARP - 1;
    }
    Warp& warp = warps_[w];
    lane = next_bit(warp.ready, lane);
    warp.ready &= ~(1u << lane);
    if (warp.ready == 0) ready_warps_ &= ~(1u << w);
    return static_cast<int>(w * WARP + lane);
}

void Block::fiber_loop() {
    for (;;) {
        launch_->kernel->run(launch_->arguments);
        finish_thread();
        const int next = next_ready();
        if (next < 0 && alive_ > 0) fail_deadlocked(0);
        Fiber* self = fiber_;
        void* to = next < 0 ? scheduler_ : enter(static_cast<unsigned>(next));
        if (to == nullptr) continue;  // not started yet: run it here
        pool_.give_back(self);
        switch_stack(&self->stack_pointer, to);
    }
}

// Makes a thread the running one; returns where it goes on, null when it has not started yet.
inline void* Block::enter(unsigned thread) {
    current_ = thread;
    if (is_row_) {
        thread_index.x = thread;
    } else {
        thread_index = index_[thread];
    }
    void* to = threads_[thread].stack_pointer;
    if (to == nullptr) return nullptr;
    fiber_ = threads_[thread].fiber;
    // The end of the stack that most likely comes after this one is not in the nearest cache.
    const char* upcoming = static_cast<const char*>(threads_[thread + 1].stack_pointer);
    for (size_t line = 0; line < 3; line++) __builtin_prefetch(upcoming + line * 64);
    return to;
}

inline void Block::wait(int line) {
    if (is_watched_) resume_lanes_ahead(current_ / WARP);
    const int next = next_ready();
    if (next < 0) fail_deadlocked(line);
    Thread& self = threads_[current_];
    self.line = line;
    self.fiber = fiber_;
    void* to = enter(static_cast<unsigned>(next));
    if (to == nullptr) {
        fiber_ = pool_.take();
        to = fiber_->stack_pointer;
    }
    switch_stack(&self.stack_pointer, to);
}

void Block::let_others_catch_up() {
    const unsigned index = current_ / WARP, self = 1u << current_ % WARP;
    Warp& warp = warps_[index];
    warp.ahead |= self;
    if (warp.ready != 0) {
        wait(0);
        return;
    }
    resume_lanes_ahead(index);
    warp.ready &= ~self;
    if (warp.ready == 0) ready_warps_ &= ~(1u << index);
}

// Once no other lane of a warp can run.
void Block::resume_lanes_ahead(unsigned warp) {
    Warp& its = warps_[warp];
    if (its.ahead == 0 || its.ready != 0) return;
    recorder_->end_common_requests(warp, its.ahead);
    its.ready = its.ahead;
    its.ahead = 0;
    ready_warps_ |= 1u << warp;
}

void Block::finish_thread() {
    Warp& warp = warps_[current_ / WARP];
    warp.alive &= ~(1u << current_ % WARP);
    alive_--;
    if (warp.alive == 0 && launch_->counters != nullptr) recorder_->end_requests(current_ / WARP);
    if (is_watched_ && launch_->checks != nullptr) checker.finish();
    // Those who wait for all threads that have not returned may have waited for this one only.
    if (alive_ > 0 && arrived_ == alive_) open_barrier();
    for (unsigned i = warp.num_meetings; i-- > 0;) {
        if (is_complete(warp, warp.meetings[i])) complete(warp, i);
    }
    if (is_watched_) resume_lanes_ahead(current_ / WARP);
}

Votes Block::barrier(int predicate, int line) {
    if (is_watched_ && launch_->checks != nullptr) check_barrier(line);
    arrived_++;
    yes_ += predicate != 0;
    if (arrived_ == alive_) {
        open_barrier();
    } else {
        warps_[current_ / WARP].at_barrier |= 1u << current_ % WARP;
        wait(line);
    }
    return votes_;
}

void Block::open_barrier() {
    num_barriers_++;
    if (launch_->checks != nullptr) {
        if (alive_ < num_threads_) check_returned();
        if (are_barriers_mixed_) report_mixed_barriers();
        checker.open_barrier();
    }
    if (launch_->counters != nullptr) {
        for (unsigned w = 0; w < num_warps_; w++) recorder_->end_requests(w);
    }
    votes_ = {static_cast<int>(arrived_), yes_};
    arrived_ = 0;
    yes_ = 0;
    for (unsigned w = 0; w < num_warps_; w++) {
        if (warps_[w].at_barrier == 0) continue;
        warps_[w].ready |= warps_[w].at_barrier;
        warps_[w].at_barrier = 0;
        ready_warps_ |= 1u << w;
    }
}

uint64_t Block::shuffle(unsigned mask, uint64_t bits, int operation, int operand, int width, int line) {
    const int lane = static_cast<int>(current_ % WARP), first = lane & ~(width - 1), end = first + width;
    const int source = operation == SHUFFLE        ? first + (operand & (width - 1))
                       : operation == SHUFFLE_UP   ? lane - operand
                       : operation == SHUFFLE_DOWN ? lane + operand
                                                   : lane ^ operand;
    // Up, down and xor leave a lane its own value where the other is outside of its segment.
    const bool outside = operation == SHUFFLE_UP ? source < first : source >= end;
    threads_[current_].source_lane = outside ? lane : source;
    threads_[current_].value = bits;
    return meet(mask, operation, line);
}

uint64_t Block::collective(unsigned mask, uint64_t bits, int operation, int line) {
    threads_[current_].value = operation == BALLOT ? uint64_t{bits != 0} << current_ % WARP : bits;
    return meet(mask, operation, line);
}

uint64_t Block::meet(unsigned mask, int operation, int line) {
    Warp& warp = warps_[current_ / WARP];
    const unsigned self = 1u << current_ % WARP;
    threads_[current_].line = line;
    if (!(mask & self)) fail_outside_mask(mask, line);
    unsigned i = 0;
    while (i < warp.num_meetings &&
           (warp.meetings[i].mask != mask || warp.meetings[i].operation != operation))
        i++;
    if (i == warp.num_meetings) warp.meetings[warp.num_meetings++] = {mask, 0, operation};
    warp.meetings[i].arrived |= self;
    if (is_complete(warp, warp.meetings[i])) {
        complete(warp, i);
    } else {
        wait(line);
    }
    return threads_[current_].result;
}

// The lanes that come to the same line as the running one before their warp must go on.
unsigned Block::converge(int line) {
    Warp& warp = warps_[current_ / WARP];
    unsigned i = 0;
    while (i < warp.num_meetings && warp.meetings[i].mask != WHOEVER_COMES) i++;
    if (i == warp.num_meetings) warp.meetings[warp.num_meetings++] = {WHOEVER_COMES, 0, MATCH};
    warp.meetings[i].arrived |= 1u << current_ % WARP;
    threads_[current_].value = static_cast<uint64_t>(line);
    if (ready_warps_ == 0) {
        release_converging();
    } else {
        wait(line);
    }
    return static_cast<unsigned>(threads_[current_].result);
}

void Block::release_converging() {
    for (unsigned w = 0; w < num_warps_; w++) {
        for (unsigned i = warps_[w].num_meetings; i-- > 0;) {
            if (warps_[w].meetings[i].mask == WHOEVER_COMES) complete(warps_[w], i);
        }
    }
}

void Block::complete(Warp& warp, unsigned position) {
    const Meeting meeting = warp.meetings[position];
    warp.meetings[position] = warp.meetings[--warp.num_meetings];
    const unsigned index = static_cast<unsigned>(&warp - warps_);
    if (launch_->checks != nullptr) check_meeting(meeting, index);
    combine(meeting, threads_ + index * WARP);
    num_shuffles_ += meeting.operation >= SHUFFLE;
    if (launch_->counters != nullptr && meeting.arrived == warp.alive) recorder_->end_requests(index);
    warp.ready |= meeting.arrived;
    if (index == current_ / WARP) warp.ready &= ~(1u << current_ % WARP);
    if (warp.ready != 0) ready_warps_ |= 1u << index;
}

}  // namespace pagedlab

using namespace pagedlab;

extern "C" {

Votes pagedlab_barrier(int predicate, int line) {
    running_block->note_meeting(pagedlab::SITE_BARRIER, __builtin_return_address(0));
    return running_block->barrier(predicate, line);
}

unsigned long long pagedlab_shuffle(unsigned mask, unsigned long long bits, int operation, int operand,
                                    int width, int line) {
    running_block->note_meeting(pagedlab::SITE_SHUFFLE, __builtin_return_address(0));
    return running_block->shuffle(mask, bits, operation, operand, width, line);
}

unsigned long long pagedlab_collective(unsigned mask, unsigned long long bits, int operation, int line) {
    return running_block->collective(mask, bits, operation, line);
}

unsigned pagedlab_converge(int line) {
    return running_block->converge(line);
}

unsigned pagedlab_active_mask() {
    return running_block->active_mask();
}
}
