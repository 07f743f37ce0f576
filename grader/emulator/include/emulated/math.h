// Mathematical functions and intrinsics. The fast variants (__expf …) are as exact as the others here.
#pragma once

#define PAGEDLAB_MINMAX(type)                   \
    inline constexpr type min(type a, type b) { \
        return b < a ? b : a;                   \
    }                                           \
    inline constexpr type max(type a, type b) { \
        return a < b ? b : a;                   \
    }
PAGEDLAB_MINMAX(int)
PAGEDLAB_MINMAX(unsigned)
PAGEDLAB_MINMAX(long)
PAGEDLAB_MINMAX(unsigned long)
PAGEDLAB_MINMAX(long long)
PAGEDLAB_MINMAX(unsigned long long)
#undef PAGEDLAB_MINMAX

// Of mixed operands the type of their sum, as nvcc's overloads give.
template <class A, class B, class T = decltype(A() + B()),
          std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, int> = 0>
inline T min(A a, B b) {
    if constexpr (std::is_floating_point_v<T>) return fmin(static_cast<T>(a), static_cast<T>(b));
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B, class T = decltype(A() + B()),
          std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, int> = 0>
inline T max(A a, B b) {
    if constexpr (std::is_floating_point_v<T>) return fmax(static_cast<T>(a), static_cast<T>(b));
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

#define PAGEDLAB_REINTERPRET(name, to, from)       \
    inline to name(from value) {                   \
        to result;                                 \
        static_assert(sizeof(to) == sizeof(from)); \
        memcpy(&result, &value, sizeof(to));       \
        return result;                             \
    }
PAGEDLAB_REINTERPRET(__float_as_int, int, float)
PAGEDLAB_REINTERPRET(__float_as_uint, unsigned, float)
PAGEDLAB_REINTERPRET(__int_as_float, float, int)
PAGEDLAB_REINTERPRET(__uint_as_float, float, unsigned)
PAGEDLAB_REINTERPRET(__double_as_longlong, long long, double)
PAGEDLAB_REINTERPRET(__longlong_as_double, double, long long)
#undef PAGEDLAB_REINTERPRET

inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
inline double rsqrt(double x) {
    return 1.0 / sqrt(x);
}
inline float rsqrt(float x) {
    return rsqrtf(x);
}
inline float rcbrtf(float x) {
    return 1.0f / cbrtf(x);
}
inline float normcdff(float x) {
    return 0.5f * erfcf(-x * 0.70710678f);
}
inline float sinpif(float x) {
    return static_cast<float>(sin(3.14159265358979323846 * x));
}
inline float cospif(float x) {
    return static_cast<float>(cos(3.14159265358979323846 * x));
}
#ifndef _GNU_SOURCE
inline void sincosf(float x, float* sine, float* cosine) {
    *sine = sinf(x);
    *cosine = cosf(x);
}
inline float exp10f(float x) {
    return static_cast<float>(pow(10.0, x));
}
#endif

inline float __expf(float x) {
    return expf(x);
}
inline float __exp10f(float x) {
    return exp10f(x);
}
inline float __logf(float x) {
    return logf(x);
}
inline float __log2f(float x) {
    return log2f(x);
}
inline float __log10f(float x) {
    return log10f(x);
}
inline float __powf(float x, float y) {
    return powf(x, y);
}
inline float __sinf(float x) {
    return sinf(x);
}
inline float __cosf(float x) {
    return cosf(x);
}
inline float __tanf(float x) {
    return tanf(x);
}
inline void __sincosf(float x, float* sine, float* cosine) {
    sincosf(x, sine, cosine);
}
inline float __fdividef(float x, float y) {
    return x / y;
}
inline float fdividef(float x, float y) {
    return x / y;
}
inline float __saturatef(float x) {
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
inline float __fadd_rn(float x, float y) {
    return x + y;
}
inline float __fsub_rn(float x, float y) {
    return x - y;
}
inline float __fmul_rn(float x, float y) {
    return x * y;
}
inline float __fdiv_rn(float x, float y) {
    return x / y;
}
inline float __fmaf_rn(float x, float y, float z) {
    return fmaf(x, y, z);
}
inline float __frcp_rn(float x) {
    return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
inline float __frsqrt_rn(float x) {
    return rsqrtf(x);
}

// Out of range: the nearest integer; NaN: 0, as on a GPU.
template <class Integer>
inline Integer pagedlab_to_integer(float x) {
    if (x != x) return 0;
    if (x <= static_cast<float>(std::numeric_limits<Integer>::min()))
        return std::numeric_limits<Integer>::min();
    if (x >= static_cast<float>(std::numeric_limits<Integer>::max()))
        return std::numeric_limits<Integer>::max();
    return static_cast<Integer>(x);
}
inline int __float2int_rn(float x) {
    return pagedlab_to_integer<int>(rintf(x));
}
inline int __float2int_rz(float x) {
    return pagedlab_to_integer<int>(x);
}
inline int __float2int_ru(float x) {
    return pagedlab_to_integer<int>(ceilf(x));
}
inline int __float2int_rd(float x) {
    return pagedlab_to_integer<int>(floorf(x));
}
inline unsigned __float2uint_rn(float x) {
    return pagedlab_to_integer<unsigned>(rintf(x));
}
inline unsigned __float2uint_rz(float x) {
    return pagedlab_to_integer<unsigned>(x);
}
inline float __int2float_rn(int x) {
    return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
    return static_cast<float>(x);
}
inline float __ll2float_rn(long long x) {
    return static_cast<float>(x);
}
inline float __double2float_rn(double x) {
    return static_cast<float>(x);
}

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __clzll(long long x) {
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int i = 0; i < 32; i++) result |= (x >> i & 1) << (31 - i);
    return result;
}
inline int __mul24(int x, int y) {
    return x * y;
}
inline unsigned __umulhi(unsigned x, unsigned y) {
    return static_cast<unsigned>((uint64_t{x} * y) >> 32);
}
inline int __mulhi(int x, int y) {
    return static_cast<int>((int64_t{x} * y) >> 32);
}
inline unsigned __umul24(unsigned x, unsigned y) {
    return x * y;
}
