// Fibers: stacks that take turns on one OS thread.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace pagedlab {

constexpr size_t STACK_BYTES = 256 * 1024, GUARD_BYTES = 64 * 1024;

// What switch_stack leaves at the stack pointer that it keeps: where to go on, and what is popped before.
#if defined(__x86_64__)
constexpr size_t SAVED_WORDS = 2, ENTRY_WORD = 0, POPPED_BYTES = 8;
#else
constexpr size_t SAVED_WORDS = 20, ENTRY_WORD = 2, POPPED_BYTES = 0;
#endif

// Keeps the running stack pointer in *from and goes on at `to`. A jump and no call: processors predict returns from
// a stack of calls, which must not notice that the stack was changed. Compiled with -mno-red-zone on x86-64.
inline __attribute__((always_inline)) void switch_stack(void** from, void* to) {
#if defined(__x86_64__)
    asm volatile(
        "pushq %%rbp\n pushq %%rbx\n leaq 1f(%%rip), %%rax\n pushq %%rax\n"
        "movq %%rsp, (%0)\n movq %1, %%rsp\n"
        "popq %%rax\n jmp *%%rax\n"
        "1: popq %%rbx\n popq %%rbp\n"
        : "+r"(from), "+r"(to)
        :
        : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc", "xmm0",
          "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
          "xmm13", "xmm14", "xmm15");
#elif defined(__aarch64__)
    register void** kept asm("x0") = from;
    register void* next asm("x1") = to;
    asm volatile(
        "sub sp, sp, #160\n"  // 128 for the red zone of macOS
        "stp x29, x30, [sp]\n adr x9, 1f\n str x9, [sp, #16]\n"
        "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
        "ldr x9, [sp, #16]\n br x9\n"
        "1: ldp x29, x30, [sp]\n add sp, sp, #160\n"
        : "+r"(kept), "+r"(next)
        :
        : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
          "x17", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "memory", "cc",
          "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",
          "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
          "v29", "v30", "v31");
#else
#error "The emulator runs on x86-64 and arm64."
#endif
}

struct Fiber {
    void* stack_pointer;  // where it goes on, while it does not run
    char* stack;          // GUARD_BYTES that fault, then STACK_BYTES
};

// The fibers of one OS thread, as many as threads of a block ever waited at once. Lives as long as the process.
class FiberPool {
  public:
    explicit FiberPool(void (*entry)()) : entry_(entry) {}

    Fiber* take() {
        if (free_.empty()) grow();
        Fiber* fiber = free_.back();
        free_.pop_back();
        return fiber;
    }

    void give_back(Fiber* fiber) { free_.push_back(fiber); }

    // Every fiber begins anew; none may be running. What they were doing is dropped.
    void reset() {
        free_.clear();
        for (size_t i = fibers_.size(); i-- > 0;) prepare(fibers_[i], i);
    }

  private:
    void grow() {
        // One page more than both need: an odd number of pages from stack to stack spreads their ends over all
        // sets of the TLB. At a power of two, 1,024 of them shared a sixteenth of it.
        const size_t bytes = GUARD_BYTES + STACK_BYTES + static_cast<size_t>(sysconf(_SC_PAGESIZE));
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        mprotect(memory, GUARD_BYTES, PROT_NONE);
        fibers_.push_back(new Fiber{nullptr, static_cast<char*>(memory)});
        prepare(fibers_.back(), fibers_.size() - 1);
    }

    void prepare(Fiber* fiber, size_t index) {
        // Stacks begin at different offsets into their pages: at equal ones, all would share a few cache sets.
        char* top = fiber->stack + GUARD_BYTES + STACK_BYTES - 64 - index % 16 * 192;
        void** words = reinterpret_cast<void**>(top) - SAVED_WORDS;
        for (size_t i = 0; i < SAVED_WORDS; i++) words[i] = nullptr;
        words[ENTRY_WORD] = reinterpret_cast<void*>(entry_);
        fiber->stack_pointer = words;
        free_.push_back(fiber);
    }

    void (*entry_)();
    std::vector<Fiber*> fibers_, free_;
};

}  // namespace pagedlab
