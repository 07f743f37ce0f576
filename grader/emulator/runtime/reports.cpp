// How a kernel ends early: traps, failed asserts, deadlocks; and what is said about it.
#include <cstdarg>
#include <cstdio>
#include <map>

#include "block.h"

namespace pagedlab {

namespace {

constexpr int64_t MAX_PRINTED = 1 << 20;  // bytes that kernels may print in all

const char* const OPERATIONS[] = {
    "__syncwarp",        "a warp vote",       "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
    "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync",
    "__match_any_sync",  "__shfl_sync",       "__shfl_up_sync",    "__shfl_down_sync",  "__shfl_xor_sync",
};

std::string text_of(uint3 index) {
    return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

}  // namespace

void Launch::fail(int error, const std::string& what) {
    std::lock_guard<std::mutex> guard(mutex);
    if (failed.exchange(true)) return;
    code = error;
    detail = std::string("kernel ") + name + ", " + what;
}

void Block::fail(int code, const std::string& what) {
    launch_->fail(code, what);
    void* dropped;
    switch_stack(&dropped, scheduler_);
    __builtin_unreachable();
}

void Block::fail_deadlocked(int line) {
    threads_[current_].line = line;
    fail(LAUNCH_FAILED, who_waits());
}

std::string Block::position() const {
    return "block " + text_of(block_index) + ", thread " + text_of(index_[current_]);
}

std::string Block::who_waits() const {
    std::map<std::string, std::pair<int, unsigned>> groups;  // how many wait there, the first of them
    for (unsigned t = 0; t < num_threads_; t++) {
        const Warp& warp = warps_[t / WARP];
        const unsigned bit = 1u << t % WARP;
        if (!(warp.alive & bit)) continue;
        std::string where = warp.at_barrier & bit ? "__syncthreads" : "";
        for (unsigned i = 0; where.empty() && i < warp.num_meetings; i++) {
            if (warp.meetings[i].arrived & bit) where = OPERATIONS[warp.meetings[i].operation];
        }
        where += " in line " + std::to_string(threads_[t].line);
        groups.try_emplace(where, 0, t).first->second.first++;
    }
    std::string text = "block " + text_of(block_index) + ": deadlock, no thread can go on:";
    const char* separator = " ";
    for (const auto& [where, group] : groups) {
        text += separator + std::to_string(group.first) + " wait at " + where + " (the first is thread " +
                text_of(index_[group.second]) + ")";
        separator = "; ";
    }
    if (alive_ < num_threads_) text += "; " + std::to_string(num_threads_ - alive_) + " have returned";
    return text;
}

}  // namespace pagedlab

using namespace pagedlab;

extern "C" {

void pagedlab_trap(int line) {
    running_block->fail(LAUNCH_FAILED, running_block->position() + ": __trap() in line " + std::to_string(line));
}

void pagedlab_assert_failed(const char* expression, const char* file, int line) {
    running_block->fail(ASSERT, running_block->position() + ": " + file + ":" + std::to_string(line) + ": assertion `" + expression +
                           "` failed");
}

int pagedlab_printf(const char* format, ...) {
    static std::atomic<int64_t> printed{0};
    if (printed >= MAX_PRINTED) return -1;
    va_list arguments;
    va_start(arguments, format);
    const int count = vprintf(format, arguments);
    va_end(arguments);
    if (count > 0 && (printed += count) >= MAX_PRINTED) puts("\n(kernels have printed 1 MiB: the rest is left out)");
    return count;
}
}
