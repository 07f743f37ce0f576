// What -fsanitize=thread calls at every memory access of a instrumented module. Its own runtime is never linked.
#include <math.h>

#include <cstring>

#include "checker.h"

using pagedlab::running_block;

// Here, so that it is a part of every hook.
inline void pagedlab::Block::access(const void* address, size_t bytes, AccessKind kind,
                                    const void* instruction) {
    if (launch_->counters != nullptr) {
        counted_access(address, bytes, kind, instruction);
    } else if (launch_->checks != nullptr) {
        checker.access(current_, address, bytes, kind, instruction);
    }
}

#define ACCESS(address, bytes, kind) \
    running_block->access(address, bytes, pagedlab::kind, __builtin_return_address(0))
// The unaligned ones are of addresses whose alignment the type does not promise.
#define HOOKS(bytes)                                         \
    void __tsan_read##bytes(const void* address) {           \
        ACCESS(address, bytes, LOAD);                        \
    }                                                        \
    void __tsan_write##bytes(void* address) {                \
        ACCESS(address, bytes, STORE);                       \
    }                                                        \
    void __tsan_unaligned_read##bytes(const void* address) { \
        ACCESS(address, bytes, UNALIGNED_LOAD);              \
    }                                                        \
    void __tsan_unaligned_write##bytes(void* address) {      \
        ACCESS(address, bytes, UNALIGNED_STORE);             \
    }
// clang has names for copies; where a compiler calls the C library's functions, the linker leads it to __wrap_….
#define COPY(name)                                               \
    void* name(void* target, const void* source, size_t bytes) { \
        ACCESS(source, bytes, UNALIGNED_LOAD);                   \
        ACCESS(target, bytes, UNALIGNED_STORE);                  \
        return memmove(target, source, bytes);                   \
    }
#define FILL(name)                                      \
    void* name(void* target, int value, size_t bytes) { \
        ACCESS(target, bytes, UNALIGNED_STORE);         \
        return memset(target, value, bytes);            \
    }
// Of the C library's functions those that write a second result where the caller says.
#define SECOND_RESULT(name, T, Second)         \
    T __wrap_##name(T value, Second* second) { \
        ACCESS(second, sizeof(Second), STORE); \
        return name(value, second);            \
    }
#define TWO_RESULTS(name, T)                           \
    void __wrap_##name(T value, T* first, T* second) { \
        ACCESS(first, sizeof(T), STORE);               \
        ACCESS(second, sizeof(T), STORE);              \
        name(value, first, second);                    \
    }
#define NOTHING(name, arguments) \
    void __tsan_##name arguments {}

template <class Word>
static bool exchanged(void* word, void* expected, const void* desired) {
    return __atomic_compare_exchange_n(static_cast<Word*>(word), static_cast<Word*>(expected),
                                       *static_cast<const Word*>(desired), false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
}

extern "C" {

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
NOTHING(init, ())
NOTHING(func_entry, (void*))
NOTHING(func_exit, ())
NOTHING(atomic_signal_fence, (int))
NOTHING(vptr_update, (void**, void*))
NOTHING(vptr_read, (void**))

void __tsan_read_range(const void* address, size_t bytes) {
    ACCESS(address, bytes, UNALIGNED_LOAD);
}
void __tsan_write_range(void* address, size_t bytes) {
    ACCESS(address, bytes, UNALIGNED_STORE);
}

COPY(__tsan_memcpy)
COPY(__tsan_memmove)
COPY(__wrap_memcpy)
COPY(__wrap_memmove)
FILL(__tsan_memset)
FILL(__wrap_memset)
#ifdef __linux__
SECOND_RESULT(modff, float, float)
SECOND_RESULT(modf, double, double)
SECOND_RESULT(frexpf, float, int)
SECOND_RESULT(frexp, double, int)
TWO_RESULTS(sincosf, float)
TWO_RESULTS(sincos, double)
#endif

void pagedlab_atomic(const void* address, size_t bytes, bool is_compare) {
    const auto kind = is_compare ? pagedlab::COMPARE_AND_SWAP : pagedlab::ATOMIC;
    running_block->access(address, bytes, kind, __builtin_return_address(0));
}

bool pagedlab_compare_exchange(void* word, void* expected, const void* desired, size_t bytes) {
    if (bytes == 2) return exchanged<uint16_t>(word, expected, desired);
    if (bytes == 4) return exchanged<uint32_t>(word, expected, desired);
    return exchanged<uint64_t>(word, expected, desired);
}
}
