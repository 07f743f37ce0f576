// Arithmetic and conversions that name how they round: _rn to nearest, _rz to zero, _ru up, _rd down.
#pragma once

namespace pagedlab {

// As the processor numbers them.
#ifdef __aarch64__
enum Direction { NEAREST, UP, DOWN, TO_ZERO };
#else
enum Direction { NEAREST, DOWN, UP, TO_ZERO };
#endif

// While one exists, the processor rounds in a direction. The compiler knows nothing of it: see `pin`.
class Rounding {
  public:
#ifdef __aarch64__
    explicit Rounding(unsigned long direction) {
        asm volatile("mrs %0, fpcr" : "=r"(before) : : "memory");
        asm volatile("msr fpcr, %0" : : "r"((before & ~0xc00000ul) | direction << 22) : "memory");
    }
    ~Rounding() { asm volatile("msr fpcr, %0" : : "r"(before) : "memory"); }
#else
    explicit Rounding(unsigned direction) : before(__builtin_ia32_stmxcsr()) {
        __builtin_ia32_ldmxcsr((before & ~0x6000u) | direction << 13);
    }
    ~Rounding() { __builtin_ia32_ldmxcsr(before); }
#endif

  private:
    unsigned long before;
};

// What is computed with a value stays behind this, and what it is computed from before.
template <class T>
inline void pin(T& value) {
    asm volatile("" : "+m"(value) : : "memory");
}
template <class T, class... Others>
inline void pin(T& value, Others&... others) {
    pin(value);
    pin(others...);
}

// Out of range: the nearest integer. NaN: 0, or the sign bit where one of the types has 64 bits.
template <class T, class F>
inline T to_integer(F x) {
    using Limits = std::numeric_limits<T>;
    if (x != x) return sizeof(T) == 8 || sizeof(F) == 8 ? static_cast<T>(1ull << (8 * sizeof(T) - 1)) : 0;
    if (x <= static_cast<F>(Limits::min())) return Limits::min();
    return x >= static_cast<F>(Limits::max()) ? Limits::max() : static_cast<T>(x);
}

}  // namespace pagedlab

#define PAGEDLAB_DIRECTED(result, name, parameters, arguments, direction, value) \
    inline result name parameters {                                              \
        const pagedlab::Rounding rounding(pagedlab::direction);                  \
        pagedlab::pin arguments;                                                 \
        result rounded = value;                                                  \
        pagedlab::pin(rounded);                                                  \
        return rounded;                                                          \
    }
#define PAGEDLAB_ROUNDED(result, name, parameters, arguments, value)            \
    PAGEDLAB_FUNCTION(result, name##_rn, parameters, value)                     \
    PAGEDLAB_DIRECTED(result, name##_rz, parameters, arguments, TO_ZERO, value) \
    PAGEDLAB_DIRECTED(result, name##_ru, parameters, arguments, UP, value)      \
    PAGEDLAB_DIRECTED(result, name##_rd, parameters, arguments, DOWN, value)

#define PAGEDLAB_ARITHMETIC(T, d, square_root, fused)            \
    PAGEDLAB_ROUNDED(T, __##d##add, (T x, T y), (x, y), x + y)   \
    PAGEDLAB_ROUNDED(T, __##d##sub, (T x, T y), (x, y), x - y)   \
    PAGEDLAB_ROUNDED(T, __##d##mul, (T x, T y), (x, y), (x) * y) \
    PAGEDLAB_ROUNDED(T, __##d##div, (T x, T y), (x, y), x / y)   \
    PAGEDLAB_ROUNDED(T, __##d##rcp, (T x), (x), 1 / x)           \
    PAGEDLAB_ROUNDED(T, __##d##sqrt, (T x), (x), square_root(x)) \
    PAGEDLAB_ROUNDED(T, fused, (T x, T y, T z), (x, y, z), fma(x, y, z))
PAGEDLAB_ARITHMETIC(float, f, sqrtf, __fmaf)
PAGEDLAB_ARITHMETIC(double, d, sqrt, __fma)
#undef PAGEDLAB_ARITHMETIC

PAGEDLAB_ROUNDED(float, __double2float, (double x), (x), static_cast<float>(x))
PAGEDLAB_ROUNDED(float, __int2float, (int x), (x), static_cast<float>(x))
PAGEDLAB_ROUNDED(float, __uint2float, (unsigned x), (x), static_cast<float>(x))
PAGEDLAB_ROUNDED(float, __ll2float, (long long x), (x), static_cast<float>(x))
PAGEDLAB_ROUNDED(float, __ull2float, (unsigned long long x), (x), static_cast<float>(x))
PAGEDLAB_ROUNDED(double, __ll2double, (long long x), (x), static_cast<double>(x))
PAGEDLAB_ROUNDED(double, __ull2double, (unsigned long long x), (x), static_cast<double>(x))
PAGEDLAB_FUNCTION(double, __int2double_rn, (int x), x)
PAGEDLAB_FUNCTION(double, __uint2double_rn, (unsigned x), x)

// `Number` is float or double, `F` itself or the one that has all numbers of F.
#define PAGEDLAB_TO_INTEGER(F, f, T, t, Number)                                              \
    PAGEDLAB_FUNCTION(T, __##f##2##t##_rn, (F x), pagedlab::to_integer<T>(rint(Number(x))))  \
    PAGEDLAB_FUNCTION(T, __##f##2##t##_rz, (F x), pagedlab::to_integer<T>(trunc(Number(x)))) \
    PAGEDLAB_FUNCTION(T, __##f##2##t##_ru, (F x), pagedlab::to_integer<T>(ceil(Number(x))))  \
    PAGEDLAB_FUNCTION(T, __##f##2##t##_rd, (F x), pagedlab::to_integer<T>(floor(Number(x))))
#define PAGEDLAB_TO_INTEGERS(F)                  \
    PAGEDLAB_TO_INTEGER(F, F, int, int, F)       \
    PAGEDLAB_TO_INTEGER(F, F, unsigned, uint, F) \
    PAGEDLAB_TO_INTEGER(F, F, long long, ll, F)  \
    PAGEDLAB_TO_INTEGER(F, F, unsigned long long, ull, F)
PAGEDLAB_TO_INTEGERS(float)
PAGEDLAB_TO_INTEGERS(double)
#undef PAGEDLAB_TO_INTEGERS
