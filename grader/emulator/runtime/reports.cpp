// How a kernel ends early: traps, failed asserts, deadlocks; and what is said about it.
#include <cstdarg>
#include <cstdio>
#include <map>
#include <string>

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

void Launch::fail(int error, const char* what) {
    if (failed.exchange(true)) return;
    code = error;
    snprintf(detail, sizeof detail, "kernel %s, %s", name, what);
}

void Block::note_failure(int code, const char* what) {
    const uint3 block = block_index, thread = index_[current_];
    char text[900];
    snprintf(text, sizeof text, "block (%u,%u,%u), thread (%u,%u,%u): %s", block.x, block.y, block.z, thread.x, thread.y,
             thread.z, what);
    launch_->fail(code, text);
}

void Block::fail(int code, const char* what) {
    note_failure(code, what);
    void* dropped;
    switch_stack(&dropped, scheduler_);
    __builtin_unreachable();
}

void* Block::fail_in_handler(int code, const char* what) {
    if (launch_ == nullptr) return nullptr;
    note_failure(code, what);
    return scheduler_;
}

void Block::fail_deadlocked(int line) {
    threads_[current_].line = line;
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
    std::string text = "deadlock, no thread can go on:";
    const char* separator = " ";
    for (const auto& [where, group] : groups) {
        text += separator + std::to_string(group.first) + " wait at " + where + ", the first is thread " +
                text_of(index_[group.second]);
        separator = "; ";
    }
    if (alive_ < num_threads_) text += "; " + std::to_string(num_threads_ - alive_) + " have returned";
    fail(LAUNCH_FAILED, text.c_str());
}

}  // namespace pagedlab

using namespace pagedlab;

extern "C" {

void pagedlab_trap(int line) {
    char text[64];
    snprintf(text, sizeof text, "__trap() in line %d", line);
    running_block->fail(LAUNCH_FAILED, text);
}

void pagedlab_assert_failed(const char* expression, const char* file, int line) {
    char text[512];
    snprintf(text, sizeof text, "%s:%d: assertion `%s` failed", file, line, expression);
    running_block->fail(ASSERT, text);
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
