// The stacks that fibers run on.
#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace pagedlab {

Fiber* FiberPool::take() {
    if (!free_.empty()) {
        Fiber* fiber = free_.back();
        free_.pop_back();
        return fiber;
    }
    void* memory = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, GUARD_BYTES, PROT_NONE);
    Fiber* fiber = new Fiber{nullptr, static_cast<char*>(memory)};
    prepare(fiber, fibers_.size());
    fibers_.push_back(fiber);
    return fiber;
}

void FiberPool::reset() {
    free_.clear();
    for (size_t i = fibers_.size(); i-- > 0;) {
        prepare(fibers_[i], i);
        free_.push_back(fibers_[i]);
    }
}

void FiberPool::prepare(Fiber* fiber, size_t index) {
    // Stacks begin at different offsets into their pages: at equal ones, all would share a few sets of the cache.
    char* top = fiber->stack + GUARD_BYTES + STACK_BYTES - 64 - index % 16 * 192;
    void** words = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
    words -= SAVED_WORDS;
    for (size_t i = 0; i < SAVED_WORDS; i++) words[i] = nullptr;
    words[ENTRY_WORD] = reinterpret_cast<void*>(entry_);
    fiber->stack_pointer = words;
}

}  // namespace pagedlab
