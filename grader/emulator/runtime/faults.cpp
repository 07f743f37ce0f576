// Faults of a kernel: the launch ends with CUDA's error. A fault elsewhere ends the process, after a last message.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "block.h"

namespace pagedlab {

namespace {

constexpr size_t HANDLER_STACK = 64 * 1024;
int control_socket = -1;

// The interrupted instruction and stack pointer.
#if defined(__linux__) && defined(__x86_64__)
greg_t& instruction(ucontext_t* context) { return context->uc_mcontext.gregs[REG_RIP]; }
greg_t& stack(ucontext_t* context) { return context->uc_mcontext.gregs[REG_RSP]; }
#elif defined(__linux__)
unsigned long long& instruction(ucontext_t* context) { return context->uc_mcontext.pc; }
unsigned long long& stack(ucontext_t* context) { return context->uc_mcontext.sp; }
#elif defined(__x86_64__)
__uint64_t& instruction(ucontext_t* context) { return context->uc_mcontext->__ss.__rip; }
__uint64_t& stack(ucontext_t* context) { return context->uc_mcontext->__ss.__rsp; }
#else
__uint64_t& instruction(ucontext_t* context) { return context->uc_mcontext->__ss.__pc; }
__uint64_t& stack(ucontext_t* context) { return context->uc_mcontext->__ss.__sp; }
#endif

// CUDA's error for the fault, and a sentence about it.
int explain(int signal_number, const siginfo_t* info, char* text, size_t size) {
    const char* address = static_cast<const char*>(info->si_addr);
    if (signal_number == SIGFPE) {
        snprintf(text, size, "integer division by zero");
        return LAUNCH_FAILED;
    }
    if (signal_number == SIGILL) {
        snprintf(text, size, "a statement that must not be reached");
        return LAUNCH_FAILED;
    }
    const Fiber* fiber = running_block ? running_block->fiber() : nullptr;
    if (fiber != nullptr && address >= fiber->stack && address < fiber->stack + GUARD_BYTES) {
        snprintf(text, size, "a thread's local arrays are too large, or its recursion too deep");
        return LAUNCH_FAILED;
    }
#ifdef SI_KERNEL
    // The processor gives no address for vector accesses that are not aligned.
    if (info->si_code == SI_KERNEL) {
        snprintf(text, size, "access to an address that is no multiple of the vector's size");
        return MISALIGNED_ADDRESS;
    }
#endif
    const int length = snprintf(text, size, "access to address %p", static_cast<const void*>(address));
    const Allocation nearest = arena.nearest(address);
    if (length < 0 || static_cast<size_t>(length) >= size) return ILLEGAL_ADDRESS;
    if (!arena.holds(address) || nearest.begin == nullptr) {
        snprintf(text + length, size - static_cast<size_t>(length), ", which is not in device memory");
    } else {
        const bool is_before = address < nearest.begin;
        snprintf(text + length, size - static_cast<size_t>(length), ", %td bytes %s an allocation of %zu bytes",
                 is_before ? nearest.begin - address : address - (nearest.begin + nearest.bytes),
                 is_before ? "before" : "past the end of", nearest.bytes);
    }
    return ILLEGAL_ADDRESS;
}

// A frame of grader/framing.py: {"crash": text}.
void send_crash(const char* kernel, const char* text) {
    char message[1200] = {};
    const int length = snprintf(message + 12, sizeof message - 12, "{\"crash\": \"kernel %s: %s\"}", kernel, text);
    const uint32_t header_bytes = static_cast<uint32_t>(length);
    memcpy(message, &header_bytes, sizeof header_bytes);
    if (write(control_socket, message, 12 + header_bytes) < 0) return;
}

void handle(int signal_number, siginfo_t* info, void* context_pointer) {
    ucontext_t* context = static_cast<ucontext_t*>(context_pointer);
    char text[600];
    const int code = explain(signal_number, info, text, sizeof text);
    const Launch* launch = running_block ? running_block->launch() : nullptr;
    if (launch == nullptr) {
        signal(signal_number, SIG_DFL);  // a fault of ours: again, with the usual consequences
        return;
    }
    const auto at = reinterpret_cast<const char*>(instruction(context));
    if (at < launch->code_begin || at >= launch->code_end) {
        // In a library function that a kernel called, which may hold locks.
        send_crash(launch->name, text);
        _exit(1);
    }
    char* scheduler = static_cast<char*>(running_block->fail_in_handler(code, text));
    memcpy(&instruction(context), scheduler + ENTRY_WORD * sizeof(void*), sizeof(void*));
    const uintptr_t stack_pointer = reinterpret_cast<uintptr_t>(scheduler) + POPPED_BYTES;
    memcpy(&stack(context), &stack_pointer, sizeof stack_pointer);
}

}  // namespace

void catch_faults_here() {
    stack_t alternate = {};
    alternate.ss_sp = mmap(nullptr, HANDLER_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    alternate.ss_size = HANDLER_STACK;
    sigaltstack(&alternate, nullptr);
}

}  // namespace pagedlab

// Faults end launches from now on; what ends the process is told on the socket first.
extern "C" void pagedlab_catch_faults(int control) {
    pagedlab::control_socket = control;
    struct sigaction action = {};
    action.sa_sigaction = pagedlab::handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal_number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal_number, &action, nullptr);
}
