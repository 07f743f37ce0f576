// Complex numbers as CUDA has them: vectors of two, and functions.
#pragma once

#include <cuda_runtime.h>

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

// `f` ends the names of the functions of float. The absolute value and the quotient overflow only when they must.
#define PAGEDLAB_COMPLEX(Complex, T, make, vector, f, absolute)                      \
    inline Complex make(T x, T y) {                                                  \
        return vector(x, y);                                                         \
    }                                                                                \
    inline T cuCreal##f(Complex a) {                                                 \
        return a.x;                                                                  \
    }                                                                                \
    inline T cuCimag##f(Complex a) {                                                 \
        return a.y;                                                                  \
    }                                                                                \
    inline Complex cuConj##f(Complex a) {                                            \
        return make(a.x, -a.y);                                                      \
    }                                                                                \
    inline Complex cuCadd##f(Complex a, Complex b) {                                 \
        return make(a.x + b.x, a.y + b.y);                                           \
    }                                                                                \
    inline Complex cuCsub##f(Complex a, Complex b) {                                 \
        return make(a.x - b.x, a.y - b.y);                                           \
    }                                                                                \
    inline Complex cuCmul##f(Complex a, Complex b) {                                 \
        return make(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);                   \
    }                                                                                \
    inline Complex cuCdiv##f(Complex a, Complex b) {                                 \
        const T scale = 1 / (fabs(b.x) + fabs(b.y));                                 \
        a = make(a.x * scale, a.y * scale);                                          \
        b = make(b.x * scale, b.y * scale);                                          \
        const T norm = 1 / (b.x * b.x + b.y * b.y);                                  \
        return make((a.x * b.x + a.y * b.y) * norm, (a.y * b.x - a.x * b.y) * norm); \
    }                                                                                \
    inline Complex cuCfma##f(Complex a, Complex b, Complex c) {                      \
        return cuCadd##f(cuCmul##f(a, b), c);                                        \
    }                                                                                \
    inline T cuCabs##f(Complex a) {                                                  \
        return absolute(a.x, a.y);                                                   \
    }

PAGEDLAB_COMPLEX(cuFloatComplex, float, make_cuFloatComplex, make_float2, f, hypotf)
PAGEDLAB_COMPLEX(cuDoubleComplex, double, make_cuDoubleComplex, make_double2, , hypot)
#undef PAGEDLAB_COMPLEX

inline cuComplex make_cuComplex(float x, float y) {
    return make_cuFloatComplex(x, y);
}
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) {
    return make_cuDoubleComplex(a.x, a.y);
}
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) {
    return make_cuFloatComplex(static_cast<float>(a.x), static_cast<float>(a.y));
}
