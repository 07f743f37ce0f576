// How a kernel ends early: traps, failed asserts, deadlocks, and faults, which end the launch with CUDA's error. A
// fault outside of the kernel's own code ends the process, after a last message.
#include <signal.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "checker.h"

namespace pagedlab {

namespace {

constexpr size_t HANDLER_STACK = 64 * 1024;
constexpr uintptr_t NULL_BYTES = 1 << 16;  // elements of an array at null have such addresses
constexpr int64_t MAX_PRINTED = 1 << 20;   // bytes that kernels may print in all
const char* const OPERATIONS[] = {
    "__syncwarp",        "a warp vote",       "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
    "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync",
    "__match_any_sync",  "__shfl_sync",       "__shfl_up_sync",    "__shfl_down_sync",  "__shfl_xor_sync",
};
int control_socket = -1;

// The instruction and the stack pointer that a signal interrupted.
#if defined(__linux__) && defined(__x86_64__)
#define INSTRUCTION uc_mcontext.gregs[REG_RIP]
#define STACK uc_mcontext.gregs[REG_RSP]
#elif defined(__linux__)
#define INSTRUCTION uc_mcontext.pc
#define STACK uc_mcontext.sp
#elif defined(__x86_64__)
#define INSTRUCTION uc_mcontext->__ss.__rip
#define STACK uc_mcontext->__ss.__rsp
#else
#define INSTRUCTION uc_mcontext->__ss.__pc
#define STACK uc_mcontext->__ss.__sp
#endif
auto& instruction(ucontext_t* context) {
    return context->INSTRUCTION;
}
auto& stack(ucontext_t* context) {
    return context->STACK;
}

#if defined(__linux__) && defined(__x86_64__)
// The address that the instruction accesses where the processor tells none: when it is no multiple of a vector's size,
// and when it is none that a program can have. Of a call that is the instruction's own, as of other calls to where no
// code is.
const void* untold_address(ucontext_t* context) {
    static const int REGISTERS[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    const auto& values = context->uc_mcontext.gregs;
    const auto* code = reinterpret_cast<const uint8_t*>(instruction(context));
    while (*code == 0x66 || *code == 0xf2 || *code == 0xf3) code++;
    unsigned high_index = 0, high_base = 0;  // 8 for r8 … r15
    if ((*code & 0xf0) == 0x40) {            // REX
        high_index = *code & 2 ? 8 : 0, high_base = *code & 1 ? 8 : 0;
        code++;
    } else if (*code == 0xc4) {  // VEX, with the bits inverted
        high_index = code[1] & 0x40 ? 0 : 8, high_base = code[1] & 0x20 ? 0 : 8;
    }
    code += *code == 0xc4 ? 3 : *code == 0xc5 ? 2 : *code == 0x0f ? 1 + ((code[1] & 0xfd) == 0x38) : 0;
    const unsigned which = code[1] >> 3 & 7;
    if (*code == 0xff && (which == 2 || which == 4))  // call, jump
        return reinterpret_cast<const void*>(instruction(context));
    const unsigned mode = code[1] >> 6, register_or_memory = code[1] & 7;  // behind the opcode
    code += 2;
    uint64_t address = 0;
    unsigned base = register_or_memory;
    if (mode != 3 && register_or_memory == 4) {  // base + index · scale
        const unsigned index = (*code >> 3 & 7) + high_index;
        if (index != 4) address += static_cast<uint64_t>(values[REGISTERS[index]]) << (*code >> 6);
        base = *code++ & 7;
    }
    const bool has_base = mode != 0 || base != 5;
    if (has_base) address += static_cast<uint64_t>(values[REGISTERS[base + high_base]]);
    int32_t offset = 0;
    if (mode == 1) offset = static_cast<int8_t>(*code);
    if (mode == 2 || !has_base) memcpy(&offset, code, sizeof offset);
    return reinterpret_cast<const void*>(address + static_cast<uint64_t>(int64_t{offset}));
}
#endif

struct Fault {
    int code;
    const char* what;
    const void* address = nullptr;  // of an illegal access
};

Fault explain(int signal_number, const siginfo_t* info, ucontext_t* context) {
    if (signal_number == SIGFPE) return {LAUNCH_FAILED, "integer division by zero"};
    if (signal_number == SIGABRT) return {LAUNCH_FAILED, "the emulator gave up (abort)"};
    if (signal_number == SIGILL || signal_number == SIGTRAP)
        return {LAUNCH_FAILED, "a statement that must not be reached"};
    const void* address = info->si_addr;
    const void* code = reinterpret_cast<const void*>(instruction(context));
#if defined(__linux__) && defined(__x86_64__)
    if (info->si_code == SI_KERNEL) {
        address = running_block->launch()->code.holds(code) ? untold_address(context) : code;
        const auto bits = reinterpret_cast<int64_t>(address);
        if (address != code && bits << 16 >> 16 == bits && bits % 16 != 0)
            return {MISALIGNED_ADDRESS, "access at no multiple of the vector's size"};
    }
#endif
    const char* stack_end = running_block->fiber()->stack;
    if (Range{stack_end, stack_end + GUARD_BYTES}.holds(address))
        return {LAUNCH_FAILED, "local arrays are too large, or recursion too deep"};
    if (address == code) return {LAUNCH_FAILED, "a call through a pointer that points to no function"};
    if (reinterpret_cast<uintptr_t>(address) < NULL_BYTES)
        return {ILLEGAL_ADDRESS, "access through a null pointer", address};
    return {ILLEGAL_ADDRESS, "access outside of all allocations", address};
}

// A frame of grader/ipc/framing.py: {"crash": text}.
void send_crash(const char* kernel, const Fault& fault) {
    char message[512] = {}, place[40] = {};
    if (fault.code == ILLEGAL_ADDRESS) snprintf(place, sizeof place, " (address %p)", fault.address);
    const int length = snprintf(message + 12, sizeof message - 12, "{\"crash\": \"kernel %s: %s%s\"}", kernel,
                                fault.what, place);
    memcpy(message, &length, sizeof length);
    if (write(control_socket, message, 12 + static_cast<size_t>(length)) < 0) return;
}

void handle(int signal_number, siginfo_t* info, void* context_pointer) {
    const Launch* launch = running_block ? running_block->launch() : nullptr;
    if (launch == nullptr) {
        signal(signal_number, SIG_DFL);  // a fault of ours: again, with the usual consequences
        return;
    }
    auto* context = static_cast<ucontext_t*>(context_pointer);
    const auto* code = reinterpret_cast<const void*>(instruction(context));
    const Fault fault = explain(signal_number, info, context);
    if (!launch->code.holds(code) && info->si_addr != code) {
        // In a library function that a kernel called, which may hold locks.
        send_crash(launch->name, fault);
        _exit(1);
    }
    auto* scheduler =
        static_cast<char*>(running_block->fail_in_handler(fault.code, fault.address, fault.what));
    memcpy(&instruction(context), scheduler + ENTRY_WORD * sizeof(void*), sizeof(void*));
    const char* stack_pointer = scheduler + POPPED_BYTES;
    memcpy(&stack(context), &stack_pointer, sizeof stack_pointer);
}

}  // namespace

void catch_faults_here() {
    stack_t alternate = {};
    alternate.ss_sp = new char[HANDLER_STACK];
    alternate.ss_size = HANDLER_STACK;
    sigaltstack(&alternate, nullptr);
}

void Launch::fail(int error, const void* fault_address, const char* what) {
    int none = SUCCESS;
    if (!__atomic_compare_exchange_n(&code_of_error, &none, error, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    address = fault_address;
    snprintf(detail, sizeof detail, "kernel %s, %s", name, what);
}

void* Block::fail_in_handler(int code, const void* address, const char* what) {
    const uint3 block = block_index, thread = index_[current_];
    char text[900];
    snprintf(text, sizeof text, "block (%u,%u,%u), thread (%u,%u,%u): %s", block.x, block.y, block.z,
             thread.x, thread.y, thread.z, what);
    launch_->fail(code, address, text);
    return scheduler_;
}

void Block::fail(int code, const char* what) {
    void* dropped;
    switch_stack(&dropped, fail_in_handler(code, nullptr, what));
    __builtin_unreachable();
}

void Block::fail_deadlocked(int line) {
    threads_[current_].line = line;
    std::map<std::string, std::pair<int, unsigned>> groups;  // how many wait there, the first of them
    for (unsigned t = 0; t < num_threads_; t++) {
        const Warp& warp = warps_[t / WARP];
        const unsigned bit = 1u << t % WARP;
        if (!(warp.alive & bit)) continue;
        std::string where = "__syncthreads";
        for (unsigned i = 0; i < warp.num_meetings; i++) {
            if (warp.meetings[i].arrived & bit) where = OPERATIONS[warp.meetings[i].operation];
        }
        where += " in line " + std::to_string(threads_[t].line);
        groups.try_emplace(where, 0, t).first->second.first++;
    }
    unsigned culprit = current_;  // who waits for its warp: elsewhere, and not for the whole block
    for (const auto& [where, group] : groups) {
        if (where.compare(0, 13, "__syncthreads") != 0) culprit = group.second;
    }
    std::string text = "deadlock, no thread can go on:";
    for (const auto& [where, group] : groups) {
        const uint3 first = index_[group.second];
        char row[200];
        snprintf(row, sizeof row, " %d wait at %s, the first is thread (%u,%u,%u);", group.first,
                 where.c_str(), first.x, first.y, first.z);
        text += row;
    }
    text += " " + std::to_string(num_threads_ - alive_) + " have returned";
    fail_to_synchronise(text.c_str(), culprit);
}

void Block::fail_outside_mask(unsigned mask, int line) {
    char text[100];
    snprintf(text, sizeof text, "line %d: the mask %#x does not name the lane that calls", line, mask);
    fail_to_synchronise(text, current_);
}

void Block::fail_to_synchronise(const char* what, unsigned thread) {
    if (launch_->checks != nullptr) check_failure(what, thread);
    fail(LAUNCH_FAILED, what);
}

}  // namespace pagedlab

using namespace pagedlab;

extern "C" {

// Faults end launches from now on; what ends the process is told on the socket first.
void pagedlab_catch_faults(int control) {
    control_socket = control;
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal_number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
        sigaction(signal_number, &action, nullptr);
#ifdef PR_SET_PTRACER
    const char* debugged = getenv("PAGEDLAB_DEBUG_KERNELS");
    if (debugged != nullptr && *debugged == '1') prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
}

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
    if (count > 0 && (printed += count) >= MAX_PRINTED)
        puts("\n(kernels printed 1 MiB; the rest is left out)");
    return count;
}
}
