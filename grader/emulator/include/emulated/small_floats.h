// The 16-bit floating point types, bf16 and half: one implementation over two codings.
#pragma once

#include <cuda_runtime.h>

namespace pagedlab {

struct BrainCoding {
    static float decode(unsigned short bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }

    // To nearest, ties to even; every NaN becomes the same one.
    static unsigned short encode(float value) {
        const unsigned bits = __float_as_uint(value);
        if (value != value) return 0x7fff;
        return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

struct HalfCoding {
    static float decode(unsigned short bits) {
        const unsigned magnitude = (bits & 0x7fffu) << 13;
        const float scaled = __uint_as_float(magnitude) * 0x1p112f;  // exact, also for subnormals
        const unsigned special = magnitude >= 0x0f800000 ? 0x7f800000u : 0u;
        return __uint_as_float(__float_as_uint(scaled) | special | (bits & 0x8000u) << 16);
    }

    static unsigned short encode(float value) {
        const unsigned bits = __float_as_uint(value), sign = bits >> 16 & 0x8000,
                       magnitude = bits & 0x7fffffff;
        if (magnitude > 0x7f800000) return 0x7fff;
        if (magnitude >= 0x477ff000) return static_cast<unsigned short>(sign | 0x7c00);
        // Below 2^-14: adding 0.5 leaves the subnormal's bits, rounded, at the end of the sum.
        const unsigned rounded = magnitude < 0x38800000
                                     ? __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000
                                     : (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
        return static_cast<unsigned short>(sign | rounded);
    }
};

// A float from which rounding again gives what rounding the double once would: inexact values end in an odd bit.
inline float round_to_odd(double value) {
    const float nearest = static_cast<float>(value);
    if (nearest == value || value != value || isinf(nearest)) return nearest;
    const unsigned bits = __float_as_uint(nearest) - (fabs(static_cast<double>(nearest)) > fabs(value));
    return __uint_as_float(bits | 1);
}

template <class Coding>
struct SmallFloat {
    unsigned short bits;

    SmallFloat() = default;
    SmallFloat(float value) : bits(Coding::encode(value)) {}
    SmallFloat(double value) : bits(Coding::encode(round_to_odd(value))) {}
    template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
    SmallFloat(T value) : SmallFloat(static_cast<double>(value)) {}
    operator float() const { return Coding::decode(bits); }
    static SmallFloat of_bits(unsigned short bits) {
        SmallFloat value;
        value.bits = bits;
        return value;
    }

    friend SmallFloat operator+(SmallFloat a, SmallFloat b) { return float(a) + float(b); }
    friend SmallFloat operator-(SmallFloat a, SmallFloat b) { return float(a) - float(b); }
    friend SmallFloat operator*(SmallFloat a, SmallFloat b) { return float(a) * float(b); }
    friend SmallFloat operator/(SmallFloat a, SmallFloat b) { return float(a) / float(b); }
    friend SmallFloat operator-(SmallFloat a) { return of_bits(a.bits ^ 0x8000); }
    friend SmallFloat operator+(SmallFloat a) { return a; }
    friend SmallFloat& operator+=(SmallFloat& a, SmallFloat b) { return a = a + b; }
    friend SmallFloat& operator-=(SmallFloat& a, SmallFloat b) { return a = a - b; }
    friend SmallFloat& operator*=(SmallFloat& a, SmallFloat b) { return a = a * b; }
    friend SmallFloat& operator/=(SmallFloat& a, SmallFloat b) { return a = a / b; }
    friend bool operator==(SmallFloat a, SmallFloat b) { return float(a) == float(b); }
    friend bool operator!=(SmallFloat a, SmallFloat b) { return float(a) != float(b); }
    friend bool operator<(SmallFloat a, SmallFloat b) { return float(a) < float(b); }
    friend bool operator<=(SmallFloat a, SmallFloat b) { return float(a) <= float(b); }
    friend bool operator>(SmallFloat a, SmallFloat b) { return float(a) > float(b); }
    friend bool operator>=(SmallFloat a, SmallFloat b) { return float(a) >= float(b); }
};

template <class Coding>
struct alignas(4) SmallFloat2 {
    SmallFloat<Coding> x, y;

    friend SmallFloat2 operator+(SmallFloat2 a, SmallFloat2 b) { return {a.x + b.x, a.y + b.y}; }
    friend SmallFloat2 operator-(SmallFloat2 a, SmallFloat2 b) { return {a.x - b.x, a.y - b.y}; }
    friend SmallFloat2 operator*(SmallFloat2 a, SmallFloat2 b) { return {a.x * b.x, a.y * b.y}; }
    friend SmallFloat2 operator/(SmallFloat2 a, SmallFloat2 b) { return {a.x / b.x, a.y / b.y}; }
    friend SmallFloat2 operator-(SmallFloat2 a) { return {-a.x, -a.y}; }
    friend bool operator==(SmallFloat2 a, SmallFloat2 b) { return a.x == b.x && a.y == b.y; }
    friend bool operator!=(SmallFloat2 a, SmallFloat2 b) { return a.x != b.x && a.y != b.y; }
};

}  // namespace pagedlab

// Arithmetic: each result is computed in float and rounded once. The second name works on pairs.
#define UNARY(result, name, name2, value)                               \
    template <class C>                                                  \
    inline result name(pagedlab::SmallFloat<C> a) {                     \
        return value;                                                   \
    }                                                                   \
    template <class C>                                                  \
    inline pagedlab::SmallFloat2<C> name2(pagedlab::SmallFloat2<C> a) { \
        return {name(a.x), name(a.y)};                                  \
    }
#define BINARY(result, name, name2, value)                                                          \
    template <class C>                                                                              \
    inline result name(pagedlab::SmallFloat<C> a, pagedlab::SmallFloat<C> b) {                      \
        return value;                                                                               \
    }                                                                                               \
    template <class C>                                                                              \
    inline pagedlab::SmallFloat2<C> name2(pagedlab::SmallFloat2<C> a, pagedlab::SmallFloat2<C> b) { \
        return {name(a.x, b.x), name(a.y, b.y)};                                                    \
    }
#define SMALL pagedlab::SmallFloat<C>
BINARY(SMALL, __hadd, __hadd2, a + b)
BINARY(SMALL, __hsub, __hsub2, a - b)
BINARY(SMALL, __hmul, __hmul2, (a)*b)
BINARY(SMALL, __hdiv, __h2div, a / b)
BINARY(SMALL, __hadd_rn, __hadd2_rn, a + b)
BINARY(SMALL, __hsub_rn, __hsub2_rn, a - b)
BINARY(SMALL, __hmul_rn, __hmul2_rn, (a)*b)
BINARY(SMALL, __hmax, __hmax2, fmaxf(a, b))
BINARY(SMALL, __hmin, __hmin2, fminf(a, b))
BINARY(bool, __heq, __heq2, a == b)
BINARY(bool, __hne, __hne2, a != b)
BINARY(bool, __hlt, __hlt2, a < b)
BINARY(bool, __hle, __hle2, a <= b)
BINARY(bool, __hgt, __hgt2, a > b)
BINARY(bool, __hge, __hge2, a >= b)
UNARY(bool, __hisnan, __hisnan2, a != a)
UNARY(SMALL, __hneg, __hneg2, -a)
UNARY(SMALL, __habs, __habs2, fabsf(a))
UNARY(SMALL, hexp, h2exp, expf(a))
UNARY(SMALL, hexp2, h2exp2, exp2f(a))
UNARY(SMALL, hlog, h2log, logf(a))
UNARY(SMALL, hsin, h2sin, sinf(a))
UNARY(SMALL, hcos, h2cos, cosf(a))
UNARY(SMALL, hsqrt, h2sqrt, sqrtf(a))
UNARY(SMALL, hrsqrt, h2rsqrt, rsqrtf(a))
UNARY(SMALL, hrcp, h2rcp, 1.0f / float(a))
UNARY(SMALL, htanh, h2tanh, tanhf(a))
UNARY(SMALL, hfloor, h2floor, floorf(a))
UNARY(SMALL, hceil, h2ceil, ceilf(a))
UNARY(SMALL, hrint, h2rint, rintf(a))
#undef UNARY
#undef BINARY

template <class C>
inline SMALL __hfma(SMALL a, SMALL b, SMALL c) {
    return double(float(a)) * double(float(b)) + double(float(c));
}
#undef SMALL
template <class C, class Pair = pagedlab::SmallFloat2<C>>
inline Pair __hfma2(pagedlab::SmallFloat2<C> a, Pair b, Pair c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
template <class C>
inline float __low2float(pagedlab::SmallFloat2<C> a) {
    return a.x;
}
template <class C>
inline float __high2float(pagedlab::SmallFloat2<C> a) {
    return a.y;
}

// Conversions, whose names hold the type's: `one` and `two` as in __float2bfloat16 and __float22bfloat162_rn.
#define PAGEDLAB_CONVERSIONS(T, T2, one, two)                                                     \
    PAGEDLAB_FUNCTION(T, __float2##one, (float a), a)                                             \
    PAGEDLAB_FUNCTION(T, __float2##one##_rn, (float a), a)                                        \
    PAGEDLAB_FUNCTION(T, __double2##one, (double a), a)                                           \
    PAGEDLAB_FUNCTION(T, __int2##one##_rn, (int a), a)                                            \
    PAGEDLAB_FUNCTION(T, __uint2##one##_rn, (unsigned a), a)                                      \
    PAGEDLAB_FUNCTION(float, __##one##2float, (T a), a)                                           \
    PAGEDLAB_FUNCTION(int, __##one##2int_rn, (T a), __float2int_rn(a))                            \
    PAGEDLAB_FUNCTION(int, __##one##2int_rz, (T a), __float2int_rz(a))                            \
    PAGEDLAB_FUNCTION(unsigned short, __##one##_as_ushort, (T a), a.bits)                         \
    PAGEDLAB_FUNCTION(short, __##one##_as_short, (T a), static_cast<short>(a.bits))               \
    PAGEDLAB_FUNCTION(T, __ushort_as_##one, (unsigned short a), T::of_bits(a))                    \
    PAGEDLAB_FUNCTION(T, __short_as_##one, (short a), T::of_bits(static_cast<unsigned short>(a))) \
    PAGEDLAB_FUNCTION(T2, __float2##two##_rn, (float a), (T2{a, a}))                              \
    PAGEDLAB_FUNCTION(T2, __floats2##two##_rn, (float a, float b), (T2{a, b}))                    \
    PAGEDLAB_FUNCTION(T2, __float22##two##_rn, (float2 a), (T2{a.x, a.y}))                        \
    PAGEDLAB_FUNCTION(float2, __##two##2float2, (T2 a), (float2{a.x, a.y}))                       \
    PAGEDLAB_FUNCTION(T2, __halves2##two, (T a, T b), (T2{a, b}))                                 \
    PAGEDLAB_FUNCTION(T2, make_##two, (T a, T b), (T2{a, b}))                                     \
    PAGEDLAB_FUNCTION(T2, __##one##2##two, (T a), (T2{a, a}))                                     \
    PAGEDLAB_FUNCTION(T, __low2##one, (T2 a), a.x)                                                \
    PAGEDLAB_FUNCTION(T, __high2##one, (T2 a), a.y)
