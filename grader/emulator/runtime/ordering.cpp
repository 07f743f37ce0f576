// Which accesses come before which: by barriers, by the meetings of a warp's lanes, by fences and atomics of blocks.
#include <algorithm>

#include "checker.h"

namespace pagedlab {

bool Checker::is_ordered(const Slot& earlier, unsigned thread) const {
    if (earlier.stamp < block_first_) return is_released(earlier);
    if (earlier.thread == thread || earlier.stamp < barrier_) return true;
    return earlier.thread / WARP == thread / WARP && seen(thread, earlier.thread) > earlier.stamp;
}

uint32_t Checker::seen(unsigned thread, unsigned other) const {
    const unsigned warp = thread / WARP;
    return std::max(warp_met_[warp], lane_met_[warp][thread % WARP][other % WARP]);
}

// Another block's access comes before this block's when that one ran a fence and then an atomic on a variable on which
// this block ran an atomic later: the way in which the last block of a launch may use the results of all.
bool Checker::is_released(const Slot& earlier) const {
    for (const void* variable : acquired_) {
        for (const Release& release : releases_.at(variable)) {
            if (release.block <= earlier.stamp && earlier.stamp < release.fence) return true;
        }
    }
    return false;
}

void Checker::note_atomic(const void* address) {
    std::vector<Release>& releases = releases_[address];
    if (std::find(acquired_.begin(), acquired_.end(), address) == acquired_.end())
        acquired_.push_back(address);
    if (last_fence_ == 0) return;
    if (releases.empty() || releases.back().block != block_first_) releases.push_back({block_first_, 0});
    releases.back().fence = last_fence_;
}

void Checker::fence(unsigned thread) {
    settle();
    last_fence_ = stamps_[thread] = ++tick_;
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
    barrier_ = ++tick_;
    std::fill_n(stamps_, MAX_THREADS, tick_);
}

void Checker::finish() {
    settle();
}

}  // namespace pagedlab
