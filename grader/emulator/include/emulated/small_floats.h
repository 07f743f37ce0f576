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

// Arithmetic: each result is computed in float and rounded once. NAME works on one value, NAME2 on pairs.
#define PAGEDLAB_BINARY(name, name2, expression)                                                    \
    template <class C>                                                                              \
    inline pagedlab::SmallFloat<C> name(pagedlab::SmallFloat<C> a, pagedlab::SmallFloat<C> b) {     \
        return expression;                                                                          \
    }                                                                                               \
    template <class C>                                                                              \
    inline pagedlab::SmallFloat2<C> name2(pagedlab::SmallFloat2<C> a, pagedlab::SmallFloat2<C> b) { \
        return {name(a.x, b.x), name(a.y, b.y)};                                                    \
    }
PAGEDLAB_BINARY(__hadd, __hadd2, a + b)
PAGEDLAB_BINARY(__hsub, __hsub2, a - b)
PAGEDLAB_BINARY(__hmul, __hmul2, a* b)
PAGEDLAB_BINARY(__hdiv, __h2div, a / b)
PAGEDLAB_BINARY(__hadd_rn, __hadd2_rn, a + b)
PAGEDLAB_BINARY(__hsub_rn, __hsub2_rn, a - b)
PAGEDLAB_BINARY(__hmul_rn, __hmul2_rn, a* b)
PAGEDLAB_BINARY(__hmax, __hmax2, fmaxf(a, b))
PAGEDLAB_BINARY(__hmin, __hmin2, fminf(a, b))
#undef PAGEDLAB_BINARY

#define PAGEDLAB_UNARY(name, name2, expression)                         \
    template <class C>                                                  \
    inline pagedlab::SmallFloat<C> name(pagedlab::SmallFloat<C> a) {    \
        return expression;                                              \
    }                                                                   \
    template <class C>                                                  \
    inline pagedlab::SmallFloat2<C> name2(pagedlab::SmallFloat2<C> a) { \
        return {name(a.x), name(a.y)};                                  \
    }
PAGEDLAB_UNARY(__hneg, __hneg2, -a)
PAGEDLAB_UNARY(__habs, __habs2, fabsf(a))
PAGEDLAB_UNARY(hexp, h2exp, expf(a))
PAGEDLAB_UNARY(hexp2, h2exp2, exp2f(a))
PAGEDLAB_UNARY(hlog, h2log, logf(a))
PAGEDLAB_UNARY(hsin, h2sin, sinf(a))
PAGEDLAB_UNARY(hcos, h2cos, cosf(a))
PAGEDLAB_UNARY(hsqrt, h2sqrt, sqrtf(a))
PAGEDLAB_UNARY(hrsqrt, h2rsqrt, rsqrtf(a))
PAGEDLAB_UNARY(hrcp, h2rcp, 1.0f / float(a))
PAGEDLAB_UNARY(htanh, h2tanh, tanhf(a))
PAGEDLAB_UNARY(hfloor, h2floor, floorf(a))
PAGEDLAB_UNARY(hceil, h2ceil, ceilf(a))
PAGEDLAB_UNARY(hrint, h2rint, rintf(a))
#undef PAGEDLAB_UNARY

#define PAGEDLAB_COMPARE(name, operation)                                    \
    template <class C>                                                       \
    inline bool name(pagedlab::SmallFloat<C> a, pagedlab::SmallFloat<C> b) { \
        return a operation b;                                                \
    }
PAGEDLAB_COMPARE(__heq, ==)
PAGEDLAB_COMPARE(__hne, !=)
PAGEDLAB_COMPARE(__hlt, <)
PAGEDLAB_COMPARE(__hle, <=)
PAGEDLAB_COMPARE(__hgt, >)
PAGEDLAB_COMPARE(__hge, >=)
#undef PAGEDLAB_COMPARE

template <class C>
inline bool __hisnan(pagedlab::SmallFloat<C> a) {
    return a != a;
}
template <class C>
inline int __hisinf(pagedlab::SmallFloat<C> a) {
    return isinf(float(a)) ? (float(a) > 0 ? 1 : -1) : 0;
}
template <class C>
inline pagedlab::SmallFloat<C> __hfma(pagedlab::SmallFloat<C> a, pagedlab::SmallFloat<C> b,
                                      pagedlab::SmallFloat<C> c) {
    return double(float(a)) * double(float(b)) + double(float(c));
}
template <class C>
inline pagedlab::SmallFloat2<C> __hfma2(pagedlab::SmallFloat2<C> a, pagedlab::SmallFloat2<C> b,
                                        pagedlab::SmallFloat2<C> c) {
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
#define PAGEDLAB_CONVERSIONS(T, T2, one, two)              \
    inline T __float2##one(float a) {                      \
        return a;                                          \
    }                                                      \
    inline T __float2##one##_rn(float a) {                 \
        return a;                                          \
    }                                                      \
    inline T __double2##one(double a) {                    \
        return a;                                          \
    }                                                      \
    inline T __int2##one##_rn(int a) {                     \
        return a;                                          \
    }                                                      \
    inline T __uint2##one##_rn(unsigned a) {               \
        return a;                                          \
    }                                                      \
    inline float __##one##2float(T a) {                    \
        return a;                                          \
    }                                                      \
    inline int __##one##2int_rn(T a) {                     \
        return __float2int_rn(a);                          \
    }                                                      \
    inline int __##one##2int_rz(T a) {                     \
        return __float2int_rz(a);                          \
    }                                                      \
    inline unsigned short __##one##_as_ushort(T a) {       \
        return a.bits;                                     \
    }                                                      \
    inline short __##one##_as_short(T a) {                 \
        return static_cast<short>(a.bits);                 \
    }                                                      \
    inline T __ushort_as_##one(unsigned short a) {         \
        return T::of_bits(a);                              \
    }                                                      \
    inline T __short_as_##one(short a) {                   \
        return T::of_bits(static_cast<unsigned short>(a)); \
    }                                                      \
    inline T2 __float2##two##_rn(float a) {                \
        return {a, a};                                     \
    }                                                      \
    inline T2 __floats2##two##_rn(float a, float b) {      \
        return {a, b};                                     \
    }                                                      \
    inline T2 __float22##two##_rn(float2 a) {              \
        return {a.x, a.y};                                 \
    }                                                      \
    inline float2 __##two##2float2(T2 a) {                 \
        return {a.x, a.y};                                 \
    }                                                      \
    inline T2 __halves2##two(T a, T b) {                   \
        return {a, b};                                     \
    }                                                      \
    inline T2 make_##two(T a, T b) {                       \
        return {a, b};                                     \
    }                                                      \
    inline T2 __##one##2##two(T a) {                       \
        return {a, a};                                     \
    }                                                      \
    inline T __low2##one(T2 a) {                           \
        return a.x;                                        \
    }                                                      \
    inline T __high2##one(T2 a) {                          \
        return a.y;                                        \
    }
