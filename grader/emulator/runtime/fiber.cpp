// The switch ends in an indirect jump: a `ret` to another stack would always be mispredicted.
#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

#ifdef __APPLE__
#define SYMBOL "_pagedlab_switch"
#else
#define SYMBOL "pagedlab_switch"
#endif

#if defined(__x86_64__)
constexpr size_t SAVED_WORDS = 8, ENTRY_WORD = 6;  // six registers, the entry, where the entry would return to
asm(".text\n.globl " SYMBOL "\n.p2align 4\n" SYMBOL
    ":\n"
    "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    "movq %rsp, (%rdi)\n"
    "movq %rsi, %rsp\n"
    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
    "popq %rax\n"
    "jmp *%rax\n");
#elif defined(__aarch64__)
constexpr size_t SAVED_WORDS = 20, ENTRY_WORD = 19;  // x19 … x28, d8 … d15, x29, x30
asm(".text\n.globl " SYMBOL "\n.p2align 4\n" SYMBOL
    ":\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n stp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\n stp d8, d9, [sp, #80]\n stp d10, d11, [sp, #96]\n stp d12, d13, [sp, #112]\n"
    "stp d14, d15, [sp, #128]\n stp x29, x30, [sp, #144]\n"
    "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
    "ldp x19, x20, [sp]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n ldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\n ldp d8, d9, [sp, #80]\n ldp d10, d11, [sp, #96]\n ldp d12, d13, [sp, #112]\n"
    "ldp d14, d15, [sp, #128]\n ldp x29, x9, [sp, #144]\n"
    "add sp, sp, #160\n"
    "br x9\n");
#else
#error "The emulator runs on x86-64 and arm64."
#endif

namespace pagedlab {

Fiber* FiberPool::take() {
    if (!free_.empty()) {
        Fiber* fiber = free_.back();
        free_.pop_back();
        return fiber;
    }
    const size_t page = static_cast<size_t>(getpagesize());
    void* memory = mmap(nullptr, STACK_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, page, PROT_NONE);
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
    const size_t page = static_cast<size_t>(getpagesize());
    char* top = fiber->stack + page + STACK_BYTES - 64 - index % 16 * 192;
    void** words = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
    words -= SAVED_WORDS;
    for (size_t i = 0; i < SAVED_WORDS; i++) words[i] = nullptr;
    words[ENTRY_WORD] = reinterpret_cast<void*>(entry_);
    fiber->stack_pointer = words;
}

}  // namespace pagedlab
