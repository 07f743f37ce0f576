// Mathematical functions and intrinsics. The fast variants (__expf …) are as exact as the others here.
#pragma once

#define MINMAX(T)                                        \
    PAGEDLAB_FUNCTION(T, min, (T a, T b), b < a ? b : a) \
    PAGEDLAB_FUNCTION(T, max, (T a, T b), a < b ? b : a)
MINMAX(int)
MINMAX(unsigned)
MINMAX(long)
MINMAX(unsigned long)
MINMAX(long long)
MINMAX(unsigned long long)
#undef MINMAX

// Of floating point and of mixed operands; the result has the type of their sum, as by nvcc's overloads.
#define MINMAX(name, of_floats, is_first_chosen)                                             \
    template <class A, class B, class T = decltype(A() + B()),                               \
              std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, int> = 0> \
    inline T name(A first, B second) {                                                       \
        const T a = static_cast<T>(first), b = static_cast<T>(second);                       \
        if constexpr (std::is_floating_point_v<T>) return of_floats(a, b);                   \
        return is_first_chosen ? a : b;                                                      \
    }
MINMAX(min, fmin, a < b)
MINMAX(max, fmax, b < a)
#undef MINMAX

#define REINTERPRET(to, name, from)                    \
    inline to name(from value) {                       \
        to result;                                     \
        __builtin_memcpy(&result, &value, sizeof(to)); \
        return result;                                 \
    }
REINTERPRET(int, __float_as_int, float)
REINTERPRET(unsigned, __float_as_uint, float)
REINTERPRET(float, __int_as_float, int)
REINTERPRET(float, __uint_as_float, unsigned)
REINTERPRET(long long, __double_as_longlong, double)
REINTERPRET(double, __longlong_as_double, long long)
#undef REINTERPRET

PAGEDLAB_FUNCTION(float, rsqrtf, (float x), 1.0f / sqrtf(x))
PAGEDLAB_FUNCTION(float, rsqrt, (float x), 1.0f / sqrtf(x))
PAGEDLAB_FUNCTION(double, rsqrt, (double x), 1.0 / sqrt(x))
PAGEDLAB_FUNCTION(float, rcbrtf, (float x), 1.0f / cbrtf(x))
PAGEDLAB_FUNCTION(float, normcdff, (float x), 0.5f * erfcf(x * -0.70710678f))
PAGEDLAB_FUNCTION(float, sinpif, (float x), static_cast<float>(sin(3.14159265358979323846 * x)))
PAGEDLAB_FUNCTION(float, cospif, (float x), static_cast<float>(cos(3.14159265358979323846 * x)))
PAGEDLAB_FUNCTION(float, __expf, (float x), expf(x))
PAGEDLAB_FUNCTION(float, __exp10f, (float x), static_cast<float>(pow(10.0, x)))
PAGEDLAB_FUNCTION(float, __logf, (float x), logf(x))
PAGEDLAB_FUNCTION(float, __log2f, (float x), log2f(x))
PAGEDLAB_FUNCTION(float, __log10f, (float x), log10f(x))
PAGEDLAB_FUNCTION(float, __powf, (float x, float y), powf(x, y))
PAGEDLAB_FUNCTION(float, __sinf, (float x), sinf(x))
PAGEDLAB_FUNCTION(float, __cosf, (float x), cosf(x))
PAGEDLAB_FUNCTION(float, __tanf, (float x), tanf(x))
PAGEDLAB_FUNCTION(void, __sincosf, (float x, float* sine, float* cosine),
                  (void)(*sine = sinf(x), *cosine = cosf(x)))
#ifdef __APPLE__
PAGEDLAB_FUNCTION(void, sincosf, (float x, float* sine, float* cosine), __sincosf(x, sine, cosine))
PAGEDLAB_FUNCTION(float, exp10f, (float x), __exp10f(x))
#endif
PAGEDLAB_FUNCTION(float, fdividef, (float x, float y), x / y)
PAGEDLAB_FUNCTION(float, __fdividef, (float x, float y), x / y)
PAGEDLAB_FUNCTION(float, __saturatef, (float x), x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
PAGEDLAB_FUNCTION(float, __fadd_rn, (float x, float y), x + y)
PAGEDLAB_FUNCTION(float, __fsub_rn, (float x, float y), x - y)
PAGEDLAB_FUNCTION(float, __fmul_rn, (float x, float y), x* y)
PAGEDLAB_FUNCTION(float, __fdiv_rn, (float x, float y), x / y)
PAGEDLAB_FUNCTION(float, __fmaf_rn, (float x, float y, float z), fmaf(x, y, z))
PAGEDLAB_FUNCTION(float, __frcp_rn, (float x), 1.0f / x)
PAGEDLAB_FUNCTION(float, __fsqrt_rn, (float x), sqrtf(x))
PAGEDLAB_FUNCTION(float, __frsqrt_rn, (float x), 1.0f / sqrtf(x))

namespace pagedlab {

// Out of range: the nearest integer; NaN: 0, as on a GPU.
template <class T>
inline T to_integer(float x) {
    using Limits = std::numeric_limits<T>;
    if (x != x) return 0;
    if (x <= static_cast<float>(Limits::min())) return Limits::min();
    return x >= static_cast<float>(Limits::max()) ? Limits::max() : static_cast<T>(x);
}

}  // namespace pagedlab

PAGEDLAB_FUNCTION(int, __float2int_rn, (float x), pagedlab::to_integer<int>(rintf(x)))
PAGEDLAB_FUNCTION(int, __float2int_rz, (float x), pagedlab::to_integer<int>(x))
PAGEDLAB_FUNCTION(int, __float2int_ru, (float x), pagedlab::to_integer<int>(ceilf(x)))
PAGEDLAB_FUNCTION(int, __float2int_rd, (float x), pagedlab::to_integer<int>(floorf(x)))
PAGEDLAB_FUNCTION(unsigned, __float2uint_rn, (float x), pagedlab::to_integer<unsigned>(rintf(x)))
PAGEDLAB_FUNCTION(unsigned, __float2uint_rz, (float x), pagedlab::to_integer<unsigned>(x))
PAGEDLAB_FUNCTION(float, __int2float_rn, (int x), static_cast<float>(x))
PAGEDLAB_FUNCTION(float, __uint2float_rn, (unsigned x), static_cast<float>(x))
PAGEDLAB_FUNCTION(float, __ll2float_rn, (long long x), static_cast<float>(x))
PAGEDLAB_FUNCTION(float, __double2float_rn, (double x), static_cast<float>(x))

PAGEDLAB_FUNCTION(int, __popc, (unsigned x), __builtin_popcount(x))
PAGEDLAB_FUNCTION(int, __popcll, (unsigned long long x), __builtin_popcountll(x))
PAGEDLAB_FUNCTION(int, __clz, (int x), x ? __builtin_clz(static_cast<unsigned>(x)) : 32)
PAGEDLAB_FUNCTION(int, __clzll, (long long x), x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64)
PAGEDLAB_FUNCTION(int, __ffs, (int x), __builtin_ffs(x))
PAGEDLAB_FUNCTION(int, __ffsll, (long long x), __builtin_ffsll(x))
PAGEDLAB_FUNCTION(int, __mul24, (int x, int y), x* y)
PAGEDLAB_FUNCTION(int, __mulhi, (int x, int y), static_cast<int>((int64_t{x} * y) >> 32))
PAGEDLAB_FUNCTION(unsigned, __umulhi, (unsigned x, unsigned y),
                  static_cast<unsigned>((uint64_t{x} * y) >> 32))

inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int i = 0; i < 32; i++) result |= (x >> i & 1) << (31 - i);
    return result;
}
