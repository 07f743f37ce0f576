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

// Of a header's name a number from 1 on, of another file's 0. Compilers fold it: it has neither loop nor call.
template <int Left = 48>
__attribute__((always_inline)) constexpr unsigned header_code(const char* name, unsigned hash = 0,
                                                              char last = 0) {
    if constexpr (Left == 0)
        return 0;
    else if (*name == 0)
        return last == 'h' ? hash % 2047 + 1 : 0;
    else
        return header_code<Left - 1>(name + 1, hash * 31 + static_cast<unsigned char>(*name), *name);
}

// One number for a line of a source: its own in the lower 20 bits, above it the file's. native.py takes it apart.
__attribute__((always_inline)) constexpr int numbered_line(const char* file, int line) {
    return line + static_cast<int>(header_code(file) << 20);
}

}  // namespace pagedlab

// As a default argument: the line that calls the function.
#define PAGEDLAB_LINE pagedlab::numbered_line(__builtin_FILE(), __builtin_LINE())

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
