// Mathematical functions and intrinsics. The fast variants (__expf …) are as exact as the others here.
#pragma once

#include "rounding.h"

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

PAGEDLAB_FUNCTION(int, __double2loint, (double x), __double_as_longlong(x))
PAGEDLAB_FUNCTION(int, __double2hiint, (double x), __double_as_longlong(x) >> 32)
PAGEDLAB_FUNCTION(double, __hiloint2double, (int high, int low),
                  __longlong_as_double((long long){high} << 32 | static_cast<unsigned>(low)))

namespace pagedlab {

// The y with erf(y) = p, for 0 <= p < 1; `q` is 1 - p, which has the digits that p lacks when it is near 1.
inline double inverse_erf(double p, double q) {
    const double logarithm = log(q * (1 + p)), a = 4.3307467508 + logarithm / 2;
    double y = p < 0.1 ? 0.8862 * p : sqrt(sqrt(a * a - logarithm / 0.147) - a);  // to 0.4 %, by Winitzki
    for (int i = 0; i < 4; i++) {                                                 // Newton's method
        const double slope = 1.1283791670955126 * exp(-y * y);
        y -= p < 0.5 ? (erf(y) - p) / slope : log(q / erfc(y)) * erfc(y) / slope;
    }
    return y;
}
inline double inverse_erf(double x) {
    if (!(fabs(x) < 1)) return fabs(x) == 1 ? copysign(INFINITY, x) : NAN;
    return copysign(inverse_erf(fabs(x), 1 - fabs(x)), x);
}
inline double inverse_erfc(double x) {
    if (!(x > 0 && x < 2)) return x == 0 ? INFINITY : x == 2 ? -INFINITY : NAN;
    return x <= 1 ? inverse_erf(1 - x, x) : -inverse_erf(x - 1, 2 - x);
}

// Sine and cosine of pi x; whole half turns are taken off without rounding.
struct Turn {
    double sine, cosine;

    explicit Turn(double x) {
        const double rest = remainder(x, 2.0), quarters = rint(2 * rest),
                     angle = M_PI * (rest - quarters / 2);
        const double values[] = {sin(angle), cos(angle), -sin(angle), -cos(angle), sin(angle)};
        const int quarter = to_integer<int>(quarters) & 3;
        sine = angle == 0 && !(quarter & 1) ? copysign(0.0, x) : values[quarter];
        cosine = angle == 0 && quarter & 1 ? 0 : values[quarter + 1];
    }
};

}  // namespace pagedlab

// What C does not have; in float, computed in double and rounded.
#define IN_DOUBLE(name, value)                         \
    PAGEDLAB_FUNCTION(double, name, (double x), value) \
    PAGEDLAB_FUNCTION(float, name##f, (float x), name(x))
IN_DOUBLE(rcbrt, 1 / cbrt(x))
IN_DOUBLE(erfinv, pagedlab::inverse_erf(x))
IN_DOUBLE(erfcinv, pagedlab::inverse_erfc(x))
IN_DOUBLE(normcdf, 0.5 * erfc(-0.70710678118654757 * x))
IN_DOUBLE(normcdfinv, -1.4142135623730951 * pagedlab::inverse_erfc(2 * x))
IN_DOUBLE(sinpi, pagedlab::Turn(x).sine)
IN_DOUBLE(cospi, pagedlab::Turn(x).cosine)
#undef IN_DOUBLE
PAGEDLAB_FUNCTION(double, rhypot, (double x, double y), 1 / hypot(x, y))
PAGEDLAB_FUNCTION(float, rhypotf, (float x, float y), rhypot(x, y))
PAGEDLAB_FUNCTION(double, norm3d, (double x, double y, double z), hypot(hypot(x, y), z))
PAGEDLAB_FUNCTION(float, norm3df, (float x, float y, float z), norm3d(x, y, z))
PAGEDLAB_FUNCTION(double, rnorm3d, (double x, double y, double z), 1 / norm3d(x, y, z))
PAGEDLAB_FUNCTION(float, rnorm3df, (float x, float y, float z), rnorm3d(x, y, z))
PAGEDLAB_FUNCTION(double, norm4d, (double x, double y, double z, double w), hypot(norm3d(x, y, z), w))
PAGEDLAB_FUNCTION(float, norm4df, (float x, float y, float z, float w), norm4d(x, y, z, w))
PAGEDLAB_FUNCTION(double, rnorm4d, (double x, double y, double z, double w), 1 / norm4d(x, y, z, w))
PAGEDLAB_FUNCTION(float, rnorm4df, (float x, float y, float z, float w), rnorm4d(x, y, z, w))
PAGEDLAB_FUNCTION(float, rsqrtf, (float x), 1.0f / sqrtf(x))
PAGEDLAB_FUNCTION(float, rsqrt, (float x), 1.0f / sqrtf(x))
PAGEDLAB_FUNCTION(double, rsqrt, (double x), 1.0 / sqrt(x))
#define BOTH(T, name, sin, cos)                 \
    inline void name(T x, T* sine, T* cosine) { \
        *sine = sin(x);                         \
        *cosine = cos(x);                       \
    }
BOTH(double, sincospi, sinpi, cospi)
BOTH(float, sincospif, sinpif, cospif)
#ifdef __APPLE__
BOTH(float, sincosf, sinf, cosf)
BOTH(double, sincos, sin, cos)
PAGEDLAB_FUNCTION(double, exp10, (double x), __exp10(x))
PAGEDLAB_FUNCTION(float, exp10f, (float x), __exp10(x))
#endif
#undef BOTH
PAGEDLAB_FUNCTION(float, exp10, (float x), exp10f(x))

PAGEDLAB_FUNCTION(float, __expf, (float x), expf(x))
#ifndef __APPLE__
// macOS has these two.
PAGEDLAB_FUNCTION(float, __exp10f, (float x), exp10f(x))
PAGEDLAB_FUNCTION(void, __sincosf, (float x, float* sine, float* cosine), sincosf(x, sine, cosine))
#endif
PAGEDLAB_FUNCTION(float, __logf, (float x), logf(x))
PAGEDLAB_FUNCTION(float, __log2f, (float x), log2f(x))
PAGEDLAB_FUNCTION(float, __log10f, (float x), log10f(x))
PAGEDLAB_FUNCTION(float, __powf, (float x, float y), powf(x, y))
PAGEDLAB_FUNCTION(float, __sinf, (float x), sinf(x))
PAGEDLAB_FUNCTION(float, __cosf, (float x), cosf(x))
PAGEDLAB_FUNCTION(float, __tanf, (float x), tanf(x))
PAGEDLAB_FUNCTION(float, __tanhf, (float x), tanhf(x))
PAGEDLAB_FUNCTION(float, fdividef, (float x, float y), x / y)
PAGEDLAB_FUNCTION(float, __fdividef, (float x, float y), x / y)
PAGEDLAB_FUNCTION(float, __saturatef, (float x), x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
// Rounded twice, which never shows: no such root is so near the middle of two floats.
PAGEDLAB_FUNCTION(float, __frsqrt_rn, (float x), 1.0 / sqrt(double{x}))

PAGEDLAB_FUNCTION(int, __popc, (unsigned x), __builtin_popcount(x))
PAGEDLAB_FUNCTION(int, __popcll, (unsigned long long x), __builtin_popcountll(x))
PAGEDLAB_FUNCTION(int, __clz, (int x), x ? __builtin_clz(static_cast<unsigned>(x)) : 32)
PAGEDLAB_FUNCTION(int, __clzll, (long long x), x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64)
PAGEDLAB_FUNCTION(int, __ffs, (int x), __builtin_ffs(x))
PAGEDLAB_FUNCTION(int, __ffsll, (long long x), __builtin_ffsll(x))
#define EXTREMES(T, prefix)                                      \
    PAGEDLAB_FUNCTION(T, prefix##min, (T x, T y), x < y ? x : y) \
    PAGEDLAB_FUNCTION(T, prefix##max, (T x, T y), x > y ? x : y)
EXTREMES(unsigned, u)
EXTREMES(long long, ll)
EXTREMES(unsigned long long, ull)
#undef EXTREMES
PAGEDLAB_FUNCTION(int, __mul24, (int x, int y), (x << 8 >> 8) * (y << 8 >> 8))
PAGEDLAB_FUNCTION(unsigned, __umul24, (unsigned x, unsigned y), (x & 0xffffff) * (y & 0xffffff))
PAGEDLAB_FUNCTION(int, __mulhi, (int x, int y), (int64_t{x} * y) >> 32)
PAGEDLAB_FUNCTION(unsigned, __umulhi, (unsigned x, unsigned y), (uint64_t{x} * y) >> 32)
PAGEDLAB_FUNCTION(long long, __mul64hi, (long long x, long long y), (__int128{x} * y) >> 64)
PAGEDLAB_FUNCTION(unsigned long long, __umul64hi, (unsigned long long x, unsigned long long y),
                  (static_cast<unsigned __int128>(x) * y) >> 64)
PAGEDLAB_FUNCTION(unsigned, __sad, (int x, int y, unsigned z),
                  z + (x < y ? unsigned(y) - unsigned(x) : unsigned(x) - unsigned(y)))
PAGEDLAB_FUNCTION(unsigned, __usad, (unsigned x, unsigned y, unsigned z), z + (x < y ? y - x : x - y))
PAGEDLAB_FUNCTION(int, __hadd, (int x, int y), (int64_t{x} + y) >> 1)
PAGEDLAB_FUNCTION(int, __rhadd, (int x, int y), (int64_t{x} + y + 1) >> 1)
PAGEDLAB_FUNCTION(unsigned, __uhadd, (unsigned x, unsigned y), (uint64_t{x} + y) >> 1)
PAGEDLAB_FUNCTION(unsigned, __urhadd, (unsigned x, unsigned y), (uint64_t{x} + y + 1) >> 1)

inline unsigned __brev(unsigned x) {
    unsigned result = 0;
    for (int i = 0; i < 32; i++) result |= (x >> i & 1) << (31 - i);
    return result;
}
inline unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
           __brev(static_cast<unsigned>(x >> 32));
}

// Byte i of the result is one of the eight of y:x, by the three low bits of the selector's nibble i.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const uint64_t bytes = uint64_t{y} << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned byte = selector >> (4 * i) & 7;
        result |= static_cast<unsigned>(bytes >> (8 * byte) & 0xff) << (8 * i);
    }
    return result;
}

// Of high:low, shifted by a number of bits modulo 32, or at most 32 (_lc, _rc).
#define FUNNEL(name, distance, value)                                   \
    inline unsigned name(unsigned low, unsigned high, unsigned shift) { \
        const uint64_t both = uint64_t{high} << 32 | low;               \
        const unsigned bits = distance;                                 \
        return static_cast<unsigned>(value);                            \
    }
FUNNEL(__funnelshift_l, shift & 31, both << bits >> 32)
FUNNEL(__funnelshift_lc, min(shift, 32u), both << bits >> 32)
FUNNEL(__funnelshift_r, shift & 31, both >> bits)
FUNNEL(__funnelshift_rc, min(shift, 32u), both >> bits)
#undef FUNNEL

#define DOT(T, Byte, Vector)                                                                          \
    inline T __dp4a(T x, T y, T sum) {                                                                \
        for (int i = 0; i < 32; i += 8) sum += static_cast<Byte>(x >> i) * static_cast<Byte>(y >> i); \
        return sum;                                                                                   \
    }                                                                                                 \
    inline T __dp4a(Vector x, Vector y, T sum) {                                                      \
        return sum + x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;                                   \
    }
DOT(int, signed char, char4)
DOT(unsigned, unsigned char, uchar4)
#undef DOT
