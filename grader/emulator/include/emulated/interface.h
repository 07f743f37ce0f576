// The seam between a compiled module and the runtime that loads it.
#pragma once

// Most of CUDA's functions are one expression.
#define PAGEDLAB_FUNCTION(result, name, parameters, ...) \
    inline result name parameters {                      \
        return __VA_ARGS__;                              \
    }

namespace pagedlab {

struct Argument {
    unsigned size, offset, element;  // element: bytes of what a pointer points to
    char kind;                       // p pointer, i integer, f floating point, s anything else
};

struct Kernel {
    void (*run)(const char* packed);  // one thread
    const Argument* arguments;
    unsigned num_arguments, parameter_bytes, max_threads;
};

enum Operation {
    SYNC,
    BALLOT,
    ADD,
    MIN,
    MAX,
    SIGNED_MIN,
    SIGNED_MAX,
    AND,
    OR,
    EXCLUSIVE_OR,
    MATCH,
    SHUFFLE,
    SHUFFLE_UP,
    SHUFFLE_DOWN,
    SHUFFLE_XOR,
};

struct Votes {
    int threads, yes;
};

}  // namespace pagedlab

// `line` is where the student's source calls it.
extern "C" {
pagedlab::Votes pagedlab_barrier(int predicate, int line);
unsigned long long pagedlab_shuffle(unsigned mask, unsigned long long bits, int operation, int operand,
                                    int width, int line);
unsigned long long pagedlab_collective(unsigned mask, unsigned long long bits, int operation, int line);
unsigned pagedlab_converge(int line);
unsigned pagedlab_active_mask();  // lanes that have not returned
void pagedlab_fence();
void pagedlab_atomic(const void* address, unsigned long bytes, bool is_compare);
bool pagedlab_compare_exchange(void* word, void* expected, const void* desired, unsigned long bytes);
[[noreturn]] void pagedlab_trap(int line);
[[noreturn]] void pagedlab_assert_failed(const char* expression, const char* file, int line);
int pagedlab_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));
}
