// Fibers: stacks that take turns on one OS thread.
#pragma once

#include <cstddef>
#include <vector>

namespace pagedlab {

constexpr size_t STACK_BYTES = 256 * 1024;

struct Fiber {
    void* stack_pointer;  // where it goes on, while it does not run
    char* stack;          // the guard page, then STACK_BYTES
};

// The fibers of one OS thread; grows to the most threads of a block that waited at once. Guard pages make an overflow
// a fault. Lives as long as the process.
class FiberPool {
  public:
    explicit FiberPool(void (*entry)()) : entry_(entry) {}
    FiberPool(const FiberPool&) = delete;

    Fiber* take();
    void give_back(Fiber* fiber) { free_.push_back(fiber); }
    // Every fiber begins anew; none may be running. What they were doing is dropped.
    void reset();

  private:
    void prepare(Fiber* fiber, size_t index);

    void (*entry_)();
    std::vector<Fiber*> fibers_, free_;
};

}  // namespace pagedlab

// Keeps the running fiber's stack pointer in *from and goes on at `to`.
extern "C" void pagedlab_switch(void** from, void* to);
