// Which accesses come before which: by barriers, by the meetings of a warp's lanes, by fences and atomics of blocks.
#include <algorithm>

#include "checker.h"

namespace pagedlab {

// Another block's access comes before this block's when a fence came after it there, then an atomic, and then here an
// atomic on the same variable: the way in which the last block of a launch may use the results of all.
bool Checker::is_released(Slot earlier) const {
    for (const void* variable : acquired_) {
        for (const Release& release : releases_.at(variable)) {
            if (release.block <= earlier.stamp() && earlier.thread() < release.covered.size() &&
                earlier.stamp() < release.covered[earlier.thread()])
                return true;
        }
    }
    return false;
}

void Checker::note_atomic(const void* address, unsigned thread) {
    std::vector<Release>& releases = releases_[address];
    if (std::find(acquired_.begin(), acquired_.end(), address) == acquired_.end())
        acquired_.push_back(address);
    std::vector<uint32_t> covered = covered_;
    for (const unsigned other : fenced_) {
        const bool is_warps = other / WARP == thread / WARP && seen(thread, other) > fences_[other].tick;
        if (other == thread || is_warps) cover(covered, other);
    }
    if (std::all_of(covered.begin(), covered.end(), [](uint32_t stamp) { return stamp == 0; })) return;
    if (releases.empty() || releases.back().block != block_first_)
        releases.push_back({block_first_, covered});
    std::vector<uint32_t>& known = releases.back().covered;
    for (size_t t = 0; t < covered.size(); t++) known[t] = std::max(known[t], covered[t]);
}

// Adds what a thread's last fence covers.
void Checker::cover(std::vector<uint32_t>& covered, unsigned thread) const {
    const Fence& fence = fences_[thread];
    for (uint32_t& stamp : covered) stamp = std::max(stamp, fence.barrier);
    const size_t first = thread / WARP * WARP, end = std::min(first + WARP, covered.size());
    for (size_t t = first; t < end; t++) covered[t] = std::max(covered[t], fence.lanes[t - first]);
}

void Checker::fence(unsigned thread) {
    settle();
    Fence& fence = fences_[thread];
    if (fence.tick < barrier_) fenced_.push_back(thread);
    fence.tick = stamps_[thread] = ++tick_;
    fence.barrier = barrier_;
    const unsigned first = thread / WARP * WARP;
    for (unsigned lane = 0; lane < WARP; lane++) fence.lanes[lane] = seen(thread, first + lane);
    fence.lanes[thread - first] = tick_;
}

void Checker::meet(unsigned warp, unsigned lanes, bool everybody) {
    settle();
    const uint32_t now = ++tick_;
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
        stamps_[warp * WARP + static_cast<unsigned>(__builtin_ctz(rest))] = now;
    }
    if (everybody) {
        warp_met_[warp] = now;
        return;
    }
    uint32_t joined[WARP] = {};
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(lanes >> lane & 1)) continue;
        for (unsigned other = 0; other < WARP; other++) {
            joined[other] = std::max(joined[other], lane_met_[warp][lane][other]);
        }
        joined[lane] = now;
    }
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (lanes >> lane & 1) std::copy_n(joined, WARP, lane_met_[warp][lane]);
    }
}

void Checker::open_barrier() {
    settle();
    for (const unsigned thread : fenced_) cover(covered_, thread);
    fenced_.clear();
    barrier_ = ++tick_;
    std::fill_n(stamps_, MAX_THREADS, tick_);
}

void Checker::finish() {
    settle();
}

}  // namespace pagedlab
