// Launches: blocks spread over a pool of OS threads, one for each core.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "block.h"

namespace pagedlab {

namespace {

// Helpers sleep between jobs; the caller works too and calls them only when a job proves long enough to share.
class Cores {
  public:
    void start(unsigned count) {
        for (unsigned i = 1; i < count; i++) std::thread([this] { help(); }).detach();
        helpers_ = count > 0 ? count - 1 : 0;
    }

    void run(uint64_t count, bool is_long, const std::function<void(uint64_t)>& task) {
        task_ = &task;
        count_ = count;
        next_ = 0;
        const auto start = std::chrono::steady_clock::now();
        bool called = helpers_ == 0 || count < 2;
        if (is_long && !called) {
            called = true;
            call_helpers();
        }
        for (uint64_t i; (i = next_++) < count;) {
            task(i);
            if (!called && std::chrono::steady_clock::now() - start > WORTH_SHARING) {
                called = true;
                call_helpers();
            }
        }
        wait_for_helpers();
    }

  private:
    static constexpr std::chrono::microseconds WORTH_SHARING{20};

    void call_helpers() {
        std::lock_guard<std::mutex> guard(mutex_);
        open_ = true;
        job_++;
        wake_.notify_all();
    }

    void wait_for_helpers() {
        std::unique_lock<std::mutex> lock(mutex_);
        open_ = false;
        idle_.wait(lock, [this] { return busy_ == 0; });
    }

    void help() {
        uint64_t seen = 0;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return open_ && job_ != seen; });
            seen = job_;
            busy_++;
            lock.unlock();
            for (uint64_t i; (i = next_++) < count_;) (*task_)(i);
            lock.lock();
            if (--busy_ == 0) idle_.notify_all();
        }
    }

    const std::function<void(uint64_t)>* task_ = nullptr;
    uint64_t count_ = 0;
    std::atomic<uint64_t> next_{0};
    std::mutex mutex_;
    std::condition_variable wake_, idle_;
    bool open_ = false;
    uint64_t job_ = 0;
    unsigned helpers_ = 0, busy_ = 0;
};

// Never destroyed: its detached threads outlive main().
Cores& cores = *new Cores;

}  // namespace

void parallel_for(uint64_t count, bool is_long, const std::function<void(uint64_t)>& task) {
    cores.run(count, is_long, task);
}

static void find_argument_memory(Launch& launch) {
    if (launch.counters == nullptr) return;
    const Kernel& kernel = *launch.kernel;
    for (unsigned i = 0; i < kernel.num_arguments && launch.num_pointers < MAX_ARGUMENTS; i++) {
        if (kernel.arguments[i].kind != 'p') continue;
        const void* pointer;
        memcpy(&pointer, launch.arguments + kernel.arguments[i].offset, sizeof pointer);
        launch.argument_memory[launch.num_pointers++] = arena.find(pointer);
    }
}

}  // namespace pagedlab

using namespace pagedlab;

extern "C" {

void pagedlab_start(unsigned num_cores) { cores.start(num_cores); }

// Runs a launch to its end. Returns a CUDA error code; `detail` gets what is to be said about it.
int pagedlab_launch(const Request* request, char* detail, size_t detail_size) {
    Launch launch(*request);
    find_argument_memory(launch);
    const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    parallel_for(blocks, false, [&](uint64_t i) {
        if (!launch.failed) this_block().run(launch, i);
    });
    fflush(stdout);
    snprintf(detail, detail_size, "%s", launch.detail);
    return launch.code;
}
}
