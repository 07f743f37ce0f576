// What a checked launch asks at its barriers, fences and warp collectives: does everybody take part?
#include <cstdio>
#include <map>
#include <string>

#include "checker.h"

namespace pagedlab {

namespace {

constexpr Place nobody = {{}, {}, nullptr, 0, -2};

void describe(Report* report, const Place& other, const char* text) {
    if (report == nullptr) return;
    report->space = ELSEWHERE;
    report->other = other;
    snprintf(report->text, sizeof report->text, "%s", text);
}

unsigned count(unsigned lanes) {
    return static_cast<unsigned>(__builtin_popcount(lanes));
}

std::string waiting(unsigned count) {
    return std::to_string(count) + (count == 1 ? " thread waits" : " threads wait");
}

}  // namespace

void Block::counted_access(const void* address, size_t bytes, AccessKind kind, const void* instruction) {
    if (recorder_->add(current_, address, bytes, kind, instruction)) let_others_catch_up();
    if (launch_->checks != nullptr) checker.access(current_, address, bytes, kind, instruction);
}

void Block::note_watched_meeting(SiteKind kind, const void* instruction) {
    instructions_[current_] = instruction;
    if (launch_->sites != nullptr) recorder_->add_meeting(current_, kind, instruction);
}

void Block::fence() {
    if (launch_->checks != nullptr) checker.fence(current_);
}

void Block::index(const char* array, int64_t index, int line) {
    if (launch_->checks != nullptr) checker.index(current_, array, index, line);
}

Place Block::place(unsigned thread, int line) const {
    const uint3 index = index_[thread], block = block_index;
    const void* instruction = line == 0 ? nullptr : instructions_[thread];
    return {{block.x, block.y, block.z}, {index.x, index.y, index.z}, instruction, line, -1};
}

// The running thread comes to a barrier, which must be the one at which the others are.
void Block::check_barrier(int line) {
    threads_[current_].line = line;
    if (arrived_ == 0) {
        barrier_line_ = line;
        barrier_thread_ = current_;
        are_barriers_mixed_ = false;
    } else {
        are_barriers_mixed_ |= line != barrier_line_;
    }
}

// All threads wait at a barrier, not all at the same.
void Block::report_mixed_barriers() {
    // Of each line how many wait there, and the first of them.
    std::map<int, std::pair<unsigned, unsigned>> groups;
    for (unsigned t = 0; t < num_threads_; t++) {
        if (warps_[t / WARP].alive >> t % WARP & 1) {
            groups.try_emplace(threads_[t].line, 0, t).first->second.first++;
        }
    }
    std::string text;
    for (const auto& [line, group] : groups) {
        const uint3 first = index_[group.second];
        char row[120];
        snprintf(row, sizeof row, " at the barrier in line %d, the first is thread (%u,%u,%u)", line, first.x,
                 first.y, first.z);
        text += (text.empty() ? "" : "; ") + waiting(group.first) + row;
    }
    const auto first = groups.begin(), second = std::next(first);
    describe(checker.report(BARRIER_DIVERGENCE, true, place(first->second.second, first->first)),
             place(second->second.second, second->first), text.c_str());
}

// A barrier opens, and threads have returned without it: an error when they did work before.
void Block::check_returned() {
    const unsigned num_returned = num_threads_ - alive_;
    for (const bool worked : {true, false}) {
        for (unsigned t = 0; t < num_threads_; t++) {
            if ((warps_[t / WARP].alive >> t % WARP & 1) || checker.worked(t) != worked) continue;
            char text[200];
            snprintf(text, sizeof text, "%s at this barrier, %u have returned without it",
                     waiting(alive_).c_str(), num_returned);
            describe(checker.report(BARRIER_DIVERGENCE, worked, place(barrier_thread_, barrier_line_)),
                     place(t, 0), text);
            return;
        }
    }
}

void Block::check_meeting(const Meeting& meeting, unsigned warp) {
    if (meeting.mask == WHOEVER_COMES) return;  // orders no memory accesses
    const unsigned initial =
        num_threads_ - warp * WARP >= WARP ? ~0u : (1u << (num_threads_ - warp * WARP)) - 1;
    checker.meet(warp, meeting.arrived, meeting.arrived == initial);
    const unsigned missing = meeting.mask & ~meeting.arrived;
    if (missing != 0) {
        const bool is_error = (missing & initial) != 0;
        const auto lane = static_cast<unsigned>(__builtin_ctz(is_error ? missing & initial : missing));
        char text[200];
        snprintf(text, sizeof text, "the mask %#x names %u lanes that %s, lane %u the first", meeting.mask,
                 count(missing), is_error ? "have returned" : "the block does not have", lane);
        const unsigned first = warp * WARP + static_cast<unsigned>(__builtin_ctz(meeting.arrived));
        Report* found = checker.report(BARRIER_DIVERGENCE, is_error, place(first, threads_[first].line));
        describe(found, is_error ? place(warp * WARP + lane, 0) : nobody, text);
    }
    if (meeting.operation >= SHUFFLE) check_sources(meeting, warp);
}

void Block::check_sources(const Meeting& meeting, unsigned warp) {
    for (unsigned rest = meeting.arrived; rest != 0; rest &= rest - 1) {
        const unsigned thread = warp * WARP + static_cast<unsigned>(__builtin_ctz(rest));
        const unsigned source = static_cast<unsigned>(threads_[thread].source_lane) % WARP;
        if (meeting.arrived >> source & 1) continue;
        const bool is_missing = warp * WARP + source >= num_threads_;
        const std::string why = is_missing ? "this warp does not have, since the block has " +
                                                 std::to_string(num_threads_) + " threads"
                                           : "takes no part";
        char text[200];
        snprintf(text, sizeof text, "lane %u reads the value of lane %u, which %s", thread % WARP, source,
                 why.c_str());
        describe(checker.report(BARRIER_DIVERGENCE, true, place(thread, threads_[thread].line)), nobody,
                 text);
    }
}

void Block::check_failure(const char* what, unsigned thread) {
    describe(checker.report(BARRIER_DIVERGENCE, true, place(thread, threads_[thread].line)), nobody, what);
}

}  // namespace pagedlab
