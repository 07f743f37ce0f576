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

// Rounding to odd: an inexact result ends in an odd bit, so that rounding it to a shorter type is as if done at once.
inline float round_to_odd(double value) {
    const float nearest = static_cast<float>(value);
    if (nearest == value || value != value || isinf(nearest)) return nearest;
    const unsigned bits = __float_as_uint(nearest) - (fabs(static_cast<double>(nearest)) > fabs(value));
    return __uint_as_float(bits | 1);
}

inline double add_to_odd(double a, double b) {
    const double sum = a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);
    const long long bits = __double_as_longlong(sum);
    if (bits & 1 || !(lost < 0 || lost > 0)) return sum;
    return __longlong_as_double((lost > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

template <class T>
inline double to_double(T value) {
    const double nearest = static_cast<double>(value);
    if (sizeof(T) < 8 || fabs(nearest) < 0x1p53) return nearest;
    return static_cast<double>((value & ~T(0x7ff)) | T(value & T(0x7ff) ? 0x800 : 0));
}

// Each F gets the parameters of a function: names of the one for numbers and the one for pairs, and the value.
#define PAGEDLAB_SMALL_UNARY(F)                  \
    F(__hneg, __hneg2, of_bits(a.bits ^ 0x8000)) \
    F(__habs, __habs2, of_bits(a.bits & 0x7fff)) \
    F(hexp, h2exp, expf(a))                      \
    F(hexp2, h2exp2, exp2f(a))                   \
    F(hexp10, h2exp10, exp10f(a))                \
    F(hlog, h2log, logf(a))                      \
    F(hlog2, h2log2, log2f(a))                   \
    F(hlog10, h2log10, log10f(a))                \
    F(hsin, h2sin, sinf(a))                      \
    F(hcos, h2cos, cosf(a))                      \
    F(htanh, h2tanh, tanhf(a))                   \
    F(htanh_approx, h2tanh_approx, tanhf(a))     \
    F(hsqrt, h2sqrt, sqrtf(a))                   \
    F(hrsqrt, h2rsqrt, rsqrtf(a))                \
    F(hrcp, h2rcp, 1.0f / float(a))              \
    F(hfloor, h2floor, floorf(a))                \
    F(hceil, h2ceil, ceilf(a))                   \
    F(htrunc, h2trunc, truncf(a))                \
    F(hrint, h2rint, rintf(a))
// -0 is less than +0 here; a number is chosen before NaN, but by the functions with _nan.
#define PAGEDLAB_SMALL_CHOICE(a, b, less, if_equal) \
    __hisnan(a) ? SmallFloat(float(b)) : __hisnan(b) ? a : a == b ? of_bits(if_equal) : less ? a : b
#define PAGEDLAB_SMALL_BINARY(F)                                                  \
    F(__hadd, __hadd2, float(a) + float(b))                                       \
    F(__hsub, __hsub2, float(a) - float(b))                                       \
    F(__hmul, __hmul2, float(a) * float(b))                                       \
    F(__hdiv, __h2div, float(a) / float(b))                                       \
    F(__hadd_rn, __hadd2_rn, float(a) + float(b))                                 \
    F(__hsub_rn, __hsub2_rn, float(a) - float(b))                                 \
    F(__hmul_rn, __hmul2_rn, float(a) * float(b))                                 \
    F(__hadd_sat, __hadd2_sat, saturated(__hadd(a, b)))                           \
    F(__hsub_sat, __hsub2_sat, saturated(__hsub(a, b)))                           \
    F(__hmul_sat, __hmul2_sat, saturated(__hmul(a, b)))                           \
    F(__hmax, __hmax2, PAGEDLAB_SMALL_CHOICE(a, b, b < a, a.bits & b.bits))       \
    F(__hmin, __hmin2, PAGEDLAB_SMALL_CHOICE(a, b, a < b, a.bits | b.bits))       \
    F(__hmax_nan, __hmax2_nan, is_ordered(a, b) ? __hmax(a, b) : of_bits(0x7fff)) \
    F(__hmin_nan, __hmin2_nan, is_ordered(a, b) ? __hmin(a, b) : of_bits(0x7fff))
// Each once with the parameters eq, ==, and once with equ, for which a comparison with NaN is true.
#define PAGEDLAB_SMALL_COMPARISONS(F) F(eq, ==) F(ne, !=) F(lt, <) F(le, <=) F(gt, >) F(ge, >=)

#define PAGEDLAB_FRIEND(...) friend PAGEDLAB_FUNCTION(__VA_ARGS__)
#define PAGEDLAB_SMALL_OPERATOR(T, operation, function)                \
    PAGEDLAB_FRIEND(T, operator operation, (T a, T b), function(a, b)) \
    PAGEDLAB_FRIEND(T&, operator operation## =, (T & a, T b), a = function(a, b))
#define PAGEDLAB_SMALL_OPERATORS(T, add, subtract, multiply, divide, negate, one) \
    PAGEDLAB_SMALL_OPERATOR(T, +, add)                                            \
    PAGEDLAB_SMALL_OPERATOR(T, -, subtract)                                       \
    PAGEDLAB_SMALL_OPERATOR(T, *, multiply)                                       \
    PAGEDLAB_SMALL_OPERATOR(T, /, divide)                                         \
    PAGEDLAB_FRIEND(T, operator-, (T a), negate(a))                               \
    PAGEDLAB_FRIEND(T, operator+, (T a), a)                                       \
    PAGEDLAB_FRIEND(T&, operator++, (T & a), a = add(a, one))                     \
    PAGEDLAB_FRIEND(T&, operator--, (T & a), a = subtract(a, one))                \
    PAGEDLAB_FRIEND(T, operator++, (T & a, int), std::exchange(a, add(a, one)))   \
    PAGEDLAB_FRIEND(T, operator--, (T & a, int), std::exchange(a, subtract(a, one)))

template <class Coding>
struct SmallFloat {
    struct Raw {
        unsigned short x;
    };
    unsigned short bits;

    SmallFloat() = default;
    SmallFloat(float value) : bits(Coding::encode(value)) {}
    SmallFloat(double value) : bits(Coding::encode(round_to_odd(value))) {}
    template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
    SmallFloat(T value) : SmallFloat(to_double(value)) {}
    SmallFloat(Raw raw) : bits(raw.x) {}
    operator Raw() const { return {bits}; }
    operator float() const { return Coding::decode(bits); }
    template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0>
    operator T() const {
        if constexpr (std::is_same_v<T, bool>) return (bits & 0x7fff) != 0;
        return to_integer<T>(float(*this));
    }
    static SmallFloat of_bits(int bits) { return Raw{static_cast<unsigned short>(bits)}; }

    // The nearest number, or the next one in a direction.
    static SmallFloat rounded(double value, Direction direction) {
        const SmallFloat nearest = value;
        const double found = float(nearest);
        if (found == value || value != value || direction == NEAREST) return nearest;
        const bool is_larger = fabs(found) > fabs(value);
        const bool wants_larger = direction != TO_ZERO && (direction == UP) == (value > 0);
        return of_bits(nearest.bits + wants_larger - is_larger);
    }
    friend SmallFloat saturated(SmallFloat a) { return __saturatef(a); }
    friend bool is_ordered(SmallFloat a, SmallFloat b) { return a == a && b == b; }
    friend bool __hisnan(SmallFloat a) { return a != a; }
    friend int __hisinf(SmallFloat a) { return isinf(float(a)) ? (a.bits & 0x8000 ? -1 : 1) : 0; }

    // Arithmetic: computed in float, which is exact enough that each result is as if rounded once.
#define UNARY(name, pairs, value) PAGEDLAB_FRIEND(SmallFloat, name, (SmallFloat a), value)
#define TWO (SmallFloat a, SmallFloat b)
#define BINARY(name, pairs, value) PAGEDLAB_FRIEND(SmallFloat, name, TWO, value)
#define COMPARISON(name, operation)                                             \
    PAGEDLAB_FRIEND(bool, operator operation, TWO, float(a) operation float(b)) \
    PAGEDLAB_FRIEND(bool, __h##name, TWO, a operation b&& is_ordered(a, b))     \
    PAGEDLAB_FRIEND(bool, __h##name##u, TWO, a operation b || !is_ordered(a, b))
    PAGEDLAB_SMALL_COMPARISONS(COMPARISON)
    PAGEDLAB_SMALL_UNARY(UNARY)
    PAGEDLAB_SMALL_BINARY(BINARY)
#undef COMPARISON
#undef BINARY
#undef TWO
#undef UNARY
    friend SmallFloat __hfma(SmallFloat a, SmallFloat b, SmallFloat c) {
        return add_to_odd(double(float(a)) * float(b), float(c));
    }
    friend SmallFloat __hfma_sat(SmallFloat a, SmallFloat b, SmallFloat c) {
        return saturated(__hfma(a, b, c));
    }
    friend SmallFloat __hfma_relu(SmallFloat a, SmallFloat b, SmallFloat c) {
        return __hmax_nan(__hfma(a, b, c), SmallFloat(0.0f));
    }
    PAGEDLAB_SMALL_OPERATORS(SmallFloat, __hadd, __hsub, __hmul, __hdiv, __hneg, SmallFloat(1.0f))
};

template <class Coding>
struct alignas(4) SmallFloat2 {
    using One = SmallFloat<Coding>;
    struct alignas(4) Raw {
        unsigned short x, y;
    };
    One x, y;

    SmallFloat2() = default;
    SmallFloat2(One x, One y) : x(x), y(y) {}
    SmallFloat2(Raw raw) : x(One::of_bits(raw.x)), y(One::of_bits(raw.y)) {}
    operator Raw() const { return {x.bits, y.bits}; }

#define TWO (SmallFloat2 a, SmallFloat2 b)
#define UNARY(name, pairs, value) PAGEDLAB_FRIEND(SmallFloat2, pairs, (SmallFloat2 a), {name(a.x), name(a.y)})
#define BINARY(name, pairs, value) PAGEDLAB_FRIEND(SmallFloat2, pairs, TWO, {name(a.x, b.x), name(a.y, b.y)})
#define TERNARY(name, pairs)                                                           \
    PAGEDLAB_FRIEND(SmallFloat2, pairs, (SmallFloat2 a, SmallFloat2 b, SmallFloat2 c), \
                    {name(a.x, b.x, c.x), name(a.y, b.y, c.y)})
#define COMPARISON(name)                                                                  \
    PAGEDLAB_FRIEND(SmallFloat2, __h##name##2, TWO,                                       \
                    {float(__h##name(a.x, b.x)), float(__h##name(a.y, b.y))})             \
    PAGEDLAB_FRIEND(bool, __hb##name##2, TWO, __h##name(a.x, b.x) && __h##name(a.y, b.y)) \
    PAGEDLAB_FRIEND(unsigned, __h##name##2_mask, TWO,                                     \
                    (__h##name(a.x, b.x) ? 0xffffu : 0) | (__h##name(a.y, b.y) ? 0xffff0000u : 0))
#define COMPARISONS(name, operation) \
    COMPARISON(name)                 \
    COMPARISON(name##u)              \
    PAGEDLAB_FRIEND(bool, operator operation, TWO, a.x operation b.x&& a.y operation b.y)
    PAGEDLAB_SMALL_COMPARISONS(COMPARISONS)
    PAGEDLAB_SMALL_UNARY(UNARY)
    PAGEDLAB_SMALL_BINARY(BINARY)
    TERNARY(__hfma, __hfma2)
    TERNARY(__hfma_sat, __hfma2_sat)
    TERNARY(__hfma_relu, __hfma2_relu)
#undef COMPARISONS
#undef COMPARISON
#undef TERNARY
#undef BINARY
#undef UNARY
#undef TWO
    friend SmallFloat2 __hisnan2(SmallFloat2 a) { return {float(__hisnan(a.x)), float(__hisnan(a.y))}; }
    // Of complex numbers x + iy: a * b + c, each product added in turn.
    friend SmallFloat2 __hcmadd(SmallFloat2 a, SmallFloat2 b, SmallFloat2 c) {
        return {__hfma(-a.y, b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};
    }
    PAGEDLAB_SMALL_OPERATORS(SmallFloat2, __hadd2, __hsub2, __hmul2, __h2div, __hneg2,
                             (SmallFloat2{1.0f, 1.0f}))
    friend float __low2float(SmallFloat2 a) { return a.x; }
    friend float __high2float(SmallFloat2 a) { return a.y; }
    friend SmallFloat2 __lowhigh2highlow(SmallFloat2 a) { return {a.y, a.x}; }
};
#undef PAGEDLAB_SMALL_OPERATORS
#undef PAGEDLAB_SMALL_OPERATOR
#undef PAGEDLAB_FRIEND
#undef PAGEDLAB_SMALL_UNARY
#undef PAGEDLAB_SMALL_CHOICE
#undef PAGEDLAB_SMALL_BINARY
#undef PAGEDLAB_SMALL_COMPARISONS

}  // namespace pagedlab

// Conversions, whose names hold the type's: `one` and `two` as in __float2bfloat16 and __float22bfloat162_rn.
#define PAGEDLAB_FROM_INTEGER(T, one, I, i, suffix, direction) \
    PAGEDLAB_FUNCTION(T, __##i##2##one##suffix, (I a), T::rounded(pagedlab::to_double(a), direction))
#define PAGEDLAB_INTEGERS(T, one, I, i)                         \
    PAGEDLAB_FROM_INTEGER(T, one, I, i, _rn, pagedlab::NEAREST) \
    PAGEDLAB_FROM_INTEGER(T, one, I, i, _rz, pagedlab::TO_ZERO) \
    PAGEDLAB_FROM_INTEGER(T, one, I, i, _ru, pagedlab::UP)      \
    PAGEDLAB_FROM_INTEGER(T, one, I, i, _rd, pagedlab::DOWN)    \
    PAGEDLAB_TO_INTEGER(T, one, I, i, float)
// __bfloat162float and __half2float take a reference: of a load that is an argument, g++ does not keep the line.
#define PAGEDLAB_CONVERSIONS(T, T2, one, two)                                                              \
    PAGEDLAB_INTEGERS(T, one, short, short)                                                                \
    PAGEDLAB_INTEGERS(T, one, unsigned short, ushort)                                                      \
    PAGEDLAB_INTEGERS(T, one, int, int)                                                                    \
    PAGEDLAB_INTEGERS(T, one, unsigned, uint)                                                              \
    PAGEDLAB_INTEGERS(T, one, long long, ll)                                                               \
    PAGEDLAB_INTEGERS(T, one, unsigned long long, ull)                                                     \
    PAGEDLAB_FUNCTION(signed char, __##one##2char_rz, (T a), pagedlab::to_integer<signed char>(truncf(a))) \
    PAGEDLAB_FUNCTION(unsigned char, __##one##2uchar_rz, (T a),                                            \
                      pagedlab::to_integer<unsigned char>(truncf(a)))                                      \
    PAGEDLAB_FUNCTION(T, __float2##one, (float a), a)                                                      \
    PAGEDLAB_FUNCTION(T, __float2##one##_rn, (float a), a)                                                 \
    PAGEDLAB_FUNCTION(T, __float2##one##_rz, (float a), T::rounded(a, pagedlab::TO_ZERO))                  \
    PAGEDLAB_FUNCTION(T, __float2##one##_ru, (float a), T::rounded(a, pagedlab::UP))                       \
    PAGEDLAB_FUNCTION(T, __float2##one##_rd, (float a), T::rounded(a, pagedlab::DOWN))                     \
    PAGEDLAB_FUNCTION(T, __double2##one, (double a), a)                                                    \
    PAGEDLAB_FUNCTION(float, __##one##2float, (const T& a), a)                                             \
    PAGEDLAB_FUNCTION(unsigned short, __##one##_as_ushort, (T a), a.bits)                                  \
    PAGEDLAB_FUNCTION(short, __##one##_as_short, (T a), a.bits)                                            \
    PAGEDLAB_FUNCTION(T, __ushort_as_##one, (unsigned short a), T::of_bits(a))                             \
    PAGEDLAB_FUNCTION(T, __short_as_##one, (short a), T::of_bits(a))                                       \
    PAGEDLAB_FUNCTION(T2, __float2##two##_rn, (float a), {a, a})                                           \
    PAGEDLAB_FUNCTION(T2, __floats2##two##_rn, (float a, float b), {a, b})                                 \
    PAGEDLAB_FUNCTION(T2, __float22##two##_rn, (float2 a), {a.x, a.y})                                     \
    PAGEDLAB_FUNCTION(float2, __##two##2float2, (T2 a), {a.x, a.y})                                        \
    PAGEDLAB_FUNCTION(T2, __halves2##two, (T a, T b), {a, b})                                              \
    PAGEDLAB_FUNCTION(T2, make_##two, (T a, T b), {a, b})                                                  \
    PAGEDLAB_FUNCTION(T2, __##one##2##two, (T a), {a, a})                                                  \
    PAGEDLAB_FUNCTION(T, __low2##one, (T2 a), a.x)                                                         \
    PAGEDLAB_FUNCTION(T, __high2##one, (T2 a), a.y)                                                        \
    PAGEDLAB_FUNCTION(T2, __low2##two, (T2 a), {a.x, a.x})                                                 \
    PAGEDLAB_FUNCTION(T2, __high2##two, (T2 a), {a.y, a.y})                                                \
    PAGEDLAB_FUNCTION(T2, __lows2##two, (T2 a, T2 b), {a.x, b.x})                                          \
    PAGEDLAB_FUNCTION(T2, __highs2##two, (T2 a, T2 b), {a.y, b.y})
