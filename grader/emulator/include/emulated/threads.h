// Thread and block indices, dynamic shared memory, block barriers, and the ways to stop a kernel.
#pragma once

#ifdef __APPLE__
#define PAGEDLAB_THREAD_LOCAL __thread
#else
#define PAGEDLAB_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
#endif

extern "C" {
// Constant while a thread runs; the runtime sets them when it switches to another thread.
extern PAGEDLAB_THREAD_LOCAL const uint3 threadIdx;
extern PAGEDLAB_THREAD_LOCAL const uint3 blockIdx;
extern PAGEDLAB_THREAD_LOCAL const dim3 blockDim;
extern PAGEDLAB_THREAD_LOCAL const dim3 gridDim;
extern PAGEDLAB_THREAD_LOCAL char* const pagedlab_dynamic_shared;
}

constexpr int warpSize = 32;

inline void __syncthreads(int line = PAGEDLAB_LINE) {
    pagedlab_barrier(0, line);
}
inline int __syncthreads_count(int predicate, int line = PAGEDLAB_LINE) {
    return pagedlab_barrier(predicate, line).yes;
}
inline int __syncthreads_or(int predicate, int line = PAGEDLAB_LINE) {
    return pagedlab_barrier(predicate, line).yes != 0;
}
inline int __syncthreads_and(int predicate, int line = PAGEDLAB_LINE) {
    const pagedlab::Votes votes = pagedlab_barrier(predicate, line);
    return votes.yes == votes.threads;
}

inline void __threadfence_block() {
    asm volatile("" ::: "memory");  // a block runs on one core
}
inline void __threadfence() {
#ifdef PAGEDLAB_INSTRUMENTED
    pagedlab_fence();
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
inline void __threadfence_system() {
    __threadfence();
}

[[noreturn]] inline void __trap(int line = PAGEDLAB_LINE) {
    pagedlab_trap(line);
}

#undef assert
#define assert(condition) ((condition) ? void() : pagedlab_assert_failed(#condition, __FILE__, __LINE__))
#define printf pagedlab_printf

namespace pagedlab {

// An `extern __shared__ T name[]` at namespace scope: where it lies is known in a running thread only.
template <class T>
struct DynamicShared {
    operator T*() const { return reinterpret_cast<T*>(pagedlab_dynamic_shared); }
    template <class Other>
    explicit operator Other*() const {
        return reinterpret_cast<Other*>(pagedlab_dynamic_shared);
    }
};

}  // namespace pagedlab
