// Launches: blocks spread over a pool of OS threads, one for each core.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "checker.h"

namespace pagedlab {

namespace {

// Helpers sleep between jobs; the caller works too and calls them only when a job proves long enough to share.
class Cores {
  public:
    void start(unsigned count) {
        helpers_ = count - 1;
        for (unsigned i = 0; i < helpers_; i++) std::thread([this] { help(); }).detach();
    }

    void run(uint64_t count, bool is_long, const std::function<void(uint64_t)>& task) {
        task_ = &task;
        count_ = count;
        next_ = 0;
        const auto start = std::chrono::steady_clock::now();
        bool called = helpers_ == 0 || count < 2;
        do {
            if (!called && (is_long || std::chrono::steady_clock::now() - start > WORTH_SHARING)) {
                called = true;
                call_helpers();
            }
        } while (work_once());
        std::unique_lock<std::mutex> lock(mutex_);
        is_open_ = false;
        idle_.wait(lock, [this] { return busy_ == 0; });
    }

  private:
    static constexpr std::chrono::microseconds WORTH_SHARING{20};

    bool work_once() {
        const uint64_t i = next_++;
        if (i < count_) (*task_)(i);
        return i < count_;
    }

    void call_helpers() {
        std::lock_guard<std::mutex> guard(mutex_);
        is_open_ = true;
        job_++;
        wake_.notify_all();
    }

    void help() {
        uint64_t seen = 0;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return is_open_ && job_ != seen; });
            seen = job_;
            busy_++;
            lock.unlock();
            while (work_once()) continue;
            lock.lock();
            if (--busy_ == 0) idle_.notify_all();
        }
    }

    const std::function<void(uint64_t)>* task_ = nullptr;
    uint64_t count_ = 0;
    std::atomic<uint64_t> next_{0};
    std::mutex mutex_;
    std::condition_variable wake_, idle_;
    bool is_open_ = false;  // helpers may join the job
    uint64_t job_ = 0;
    unsigned helpers_ = 0, busy_ = 0;
};

// The block that comes at this place in the order: the numbers ascend, descend, or jump around.
uint64_t block_at(uint64_t place, uint64_t count, unsigned seed) {
    if (seed == IN_ORDER) return place;
    if (seed == REVERSED) return count - 1 - place;
    constexpr uint64_t PRIME = 104729;  // coprime to the count, unless it is a multiple
    return count % PRIME == 0 ? place : (place * PRIME + seed) % count;
}

// Never destroyed: its detached threads outlive main().
Cores& cores = *new Cores;

}  // namespace

void parallel_for(uint64_t count, bool is_long, const std::function<void(uint64_t)>& task) {
    cores.run(count, is_long, task);
}

}  // namespace pagedlab

using namespace pagedlab;

extern "C" {

void pagedlab_start(unsigned num_cores) {
    cores.start(num_cores);
}

// Runs a launch to its end, which its last fields describe.
void pagedlab_launch(Launch* launch) {
    const uint64_t num_blocks = uint64_t{launch->grid[0]} * launch->grid[1] * launch->grid[2];
    const auto run = [&](uint64_t i) {
        if (running_block == nullptr) running_block = new Block;  // lives as long as its thread
        if (launch->code_of_error == SUCCESS) running_block->run(*launch, i);
    };
    if (launch->checks == nullptr) {
        parallel_for(num_blocks, false, run);
    } else {
        checker.begin_launch(*launch);
        for (uint64_t i = 0; i < num_blocks; i++) run(block_at(i, num_blocks, launch->order_seed));
    }
    fflush(stdout);
}
}
