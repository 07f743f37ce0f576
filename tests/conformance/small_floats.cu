// bf16 and half: every conversion, operation, comparison and function, each applied to all elements of its inputs.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define EACH for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
#define MAP1(name, Out, A, value)                                       \
    extern "C" __global__ void name(Out* out, const A* inputs, int n) { \
        EACH {                                                          \
            const A a = inputs[i];                                      \
            out[i] = value;                                             \
        }                                                               \
    }
#define MAP2(name, Out, A, value)                                                       \
    extern "C" __global__ void name(Out* out, const A* first, const A* second, int n) { \
        EACH {                                                                          \
            const A a = first[i], b = second[i];                                        \
            out[i] = value;                                                             \
        }                                                                               \
    }
#define MAP3(name, Out, A, value)                                                                       \
    extern "C" __global__ void name(Out* out, const A* first, const A* second, const A* third, int n) { \
        EACH {                                                                                          \
            const A a = first[i], b = second[i], c = third[i];                                          \
            out[i] = value;                                                                             \
        }                                                                                               \
    }

// Integers to and from a type, in the four directions. Numbers are passed as the type, results judged by their bits.
#define DIRECTIONS(F, T, one, I, i) \
    F(T, one, I, i, rn) F(T, one, I, i, rz) F(T, one, I, i, ru) F(T, one, I, i, rd)
#define INTEGER(T, one, I, i, direction)                                   \
    MAP1(one##_to_##i##_##direction, I, T, __##one##2##i##_##direction(a)) \
    MAP1(i##_to_##one##_##direction, T, I, __##i##2##one##_##direction(a))

#define UNARY(one, T, T2, name, name2) \
    MAP1(one##_##name, T, T, name(a))  \
    MAP1(one##_##name2, T2, T2, name2(a))
#define BINARY(one, T, T2, name, name2)  \
    MAP2(one##_##name, T, T, name(a, b)) \
    MAP2(one##_##name2, T2, T2, name2(a, b))
#define TERNARY(one, T, T2, name, name2)    \
    MAP3(one##_##name, T, T, name(a, b, c)) \
    MAP3(one##_##name2, T2, T2, name2(a, b, c))

// All comparisons of two numbers or pairs, a bit each.
#define SIX(F) F(eq, 0) F(ne, 1) F(lt, 2) F(le, 3) F(gt, 4) F(ge, 5)
#define SCALAR(name, i) | __h##name(a, b) << i | __h##name##u(a, b) << (i + 6)
#define BOTH(name, i) | __hb##name##2(a, b) << i | __hb##name##u2(a, b) << (i + 6)
#define LANES(word, i) ((word) & 1) << (i) | ((word) >> 16 & 1) << (i + 12)
#define MASK(name, i) | LANES(__h##name##2_mask(a, b), i) | LANES(__h##name##u2_mask(a, b), i + 6)
#define SET(pair, i) (__low2float(pair) == 1.0f) << (i) | (__high2float(pair) == 1.0f) << (i + 12)
#define ONES(name, i) | SET(__h##name##2(a, b), i) | SET(__h##name##u2(a, b), i + 6)
#define OPERATORS (a == b) | (a != b) << 1 | (a < b) << 2 | (a <= b) << 3 | (a > b) << 4 | (a >= b) << 5
#define COMPARISONS(one, T, T2)                        \
    MAP2(one##_compare, int, T, 0 SIX(SCALAR))         \
    MAP2(one##_compare2, int, T2, 0 SIX(BOTH))         \
    MAP2(one##_compare2_mask, int, T2, 0u SIX(MASK))   \
    MAP2(one##_compare2_ones, int, T2, 0 SIX(ONES))    \
    MAP2(one##_compare_operators, int, T, OPERATORS)   \
    MAP2(one##_compare2_operators, int, T2, OPERATORS) \
    MAP1(one##_classify, int, T, __hisnan(a) | (__hisinf(a) & 3) << 1 | bool(a) << 3)

// Operators that change a variable in place; no product before a sum, of which nvcc would make one fma.
#define CHANGED(name, T)                                                              \
    extern "C" __global__ void name(T* out, const T* first, const T* second, int n) { \
        EACH {                                                                        \
            const T b = second[i];                                                    \
            T a = first[i];                                                           \
            a += b, ++a, a *= b, a /= b, a--, a -= b;                                 \
            out[i] = -a;                                                              \
        }                                                                             \
    }

// clang-format off
#define FROM_FLOAT(one, name, value) MAP1(name, unsigned short, float, __##one##_as_ushort(value))
#define KERNELS(T, T2, one, two) \
    DIRECTIONS(INTEGER, T, one, short, short) \
    DIRECTIONS(INTEGER, T, one, unsigned short, ushort) \
    DIRECTIONS(INTEGER, T, one, int, int) \
    DIRECTIONS(INTEGER, T, one, unsigned, uint) \
    DIRECTIONS(INTEGER, T, one, long long, ll) \
    DIRECTIONS(INTEGER, T, one, unsigned long long, ull) \
    MAP1(one##_to_char_rz, signed char, T, __##one##2char_rz(a)) \
    MAP1(one##_to_uchar_rz, unsigned char, T, __##one##2uchar_rz(a)) \
    MAP1(one##_cast_to_int, int, T, static_cast<int>(a)) \
    MAP1(one##_cast_to_ull, unsigned long long, T, static_cast<unsigned long long>(a)) \
    MAP1(int_cast_to_##one, T, int, T(a)) \
    MAP1(one##_to_float, float, T, __##one##2float(a)) \
    MAP1(one##_cast_to_float, float, T, static_cast<float>(a)) \
    MAP1(one##_to_float2, float2, T2, __##two##2float2(a)) \
    MAP1(one##_to_half, __half, T, __half(a)) \
    MAP1(one##_to_bfloat16, __nv_bfloat16, T, __nv_bfloat16(a)) \
    FROM_FLOAT(one, float_to_##one, __float2##one(a)) \
    FROM_FLOAT(one, float_to_##one##_rn, __float2##one##_rn(a)) \
    FROM_FLOAT(one, float_to_##one##_rz, __float2##one##_rz(a)) \
    FROM_FLOAT(one, float_to_##one##_ru, __float2##one##_ru(a)) \
    FROM_FLOAT(one, float_to_##one##_rd, __float2##one##_rd(a)) \
    FROM_FLOAT(one, float_cast_to_##one, T(a)) \
    FROM_FLOAT(one, float_pair_to_##one, __low2##one(__float2##two##_rn(a))) \
    MAP1(double_to_##one, unsigned short, double, __##one##_as_ushort(__double2##one(a))) \
    MAP1(double_cast_to_##one, unsigned short, double, __##one##_as_ushort(T(a))) \
    MAP1(float2_to_##one, T2, float2, __float22##two##_rn(a)) \
    MAP1(floats_to_##one, T2, float2, __floats2##two##_rn(a.x, a.y)) \
    MAP2(one##_lanes_crossed, T2, T2, make_##two(__high2##one(a), __low2##one(b))) \
    MAP2(one##_lows, T2, T2, __lows2##two(a, b)) \
    MAP2(one##_highs, T2, T2, __highs2##two(a, b)) \
    MAP1(one##_low_twice, T2, T2, __low2##two(a)) \
    MAP1(one##_high_twice, T2, T2, __high2##two(a)) \
    MAP1(one##_swapped, T2, T2, __lowhigh2highlow(a)) \
    MAP1(one##_doubled, T2, T, __##one##2##two(a)) \
    MAP2(one##_joined, T2, T, __halves2##two(a, b)) \
    MAP1(one##_low_float, float, T2, __low2float(a)) \
    MAP1(one##_high_float, float, T2, __high2float(a)) \
    UNARY(one, T, T2, __hneg, __hneg2) UNARY(one, T, T2, __habs, __habs2) \
    UNARY(one, T, T2, hfloor, h2floor) UNARY(one, T, T2, hceil, h2ceil) \
    UNARY(one, T, T2, htrunc, h2trunc) UNARY(one, T, T2, hrint, h2rint) \
    UNARY(one, T, T2, hexp, h2exp) UNARY(one, T, T2, hexp2, h2exp2) UNARY(one, T, T2, hexp10, h2exp10) \
    UNARY(one, T, T2, hlog, h2log) UNARY(one, T, T2, hlog2, h2log2) UNARY(one, T, T2, hlog10, h2log10) \
    UNARY(one, T, T2, hsin, h2sin) UNARY(one, T, T2, hcos, h2cos) \
    UNARY(one, T, T2, htanh, h2tanh) UNARY(one, T, T2, htanh_approx, h2tanh_approx) \
    UNARY(one, T, T2, hsqrt, h2sqrt) UNARY(one, T, T2, hrsqrt, h2rsqrt) UNARY(one, T, T2, hrcp, h2rcp) \
    BINARY(one, T, T2, __hadd, __hadd2) BINARY(one, T, T2, __hsub, __hsub2) \
    BINARY(one, T, T2, __hmul, __hmul2) BINARY(one, T, T2, __hdiv, __h2div) \
    BINARY(one, T, T2, __hadd_rn, __hadd2_rn) BINARY(one, T, T2, __hsub_rn, __hsub2_rn) \
    BINARY(one, T, T2, __hmul_rn, __hmul2_rn) \
    BINARY(one, T, T2, __hadd_sat, __hadd2_sat) BINARY(one, T, T2, __hsub_sat, __hsub2_sat) \
    BINARY(one, T, T2, __hmul_sat, __hmul2_sat) \
    BINARY(one, T, T2, __hmax, __hmax2) BINARY(one, T, T2, __hmin, __hmin2) \
    BINARY(one, T, T2, __hmax_nan, __hmax2_nan) BINARY(one, T, T2, __hmin_nan, __hmin2_nan) \
    TERNARY(one, T, T2, __hfma, __hfma2) TERNARY(one, T, T2, __hfma_sat, __hfma2_sat) \
    TERNARY(one, T, T2, __hfma_relu, __hfma2_relu) \
    MAP3(one##_hcmadd, T2, T2, __hcmadd(a, b, c)) \
    COMPARISONS(one, T, T2) \
    CHANGED(one##_changed, T) \
    CHANGED(one##_changed2, T2)
// clang-format on

KERNELS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
KERNELS(__half, __half2, half, half2)
