// Vector types (float4, int2 …) with their make_ functions, and dim3.
#pragma once

// float4 and its kin are copied as one access, as on a GPU: the counters tell 16 bytes from four times 4.
#define PAGEDLAB_VECTORS(base, type, align2, align4)                          \
    struct base##1 {                                                          \
        type x;                                                               \
    };                                                                        \
    struct alignas(align2) base##2 {                                          \
        type x, y;                                                            \
    };                                                                        \
    struct base##3 {                                                          \
        type x, y, z;                                                         \
    };                                                                        \
    struct alignas(align4) base##4 {                                          \
        type x, y, z, w;                                                      \
    };                                                                        \
    inline constexpr base##1 make_##base##1(type x) {                         \
        return {x};                                                           \
    }                                                                         \
    inline constexpr base##2 make_##base##2(type x, type y) {                 \
        return {x, y};                                                        \
    }                                                                         \
    inline constexpr base##3 make_##base##3(type x, type y, type z) {         \
        return {x, y, z};                                                     \
    }                                                                         \
    inline constexpr base##4 make_##base##4(type x, type y, type z, type w) { \
        return {x, y, z, w};                                                  \
    }

PAGEDLAB_VECTORS(char, signed char, 2, 4)
PAGEDLAB_VECTORS(uchar, unsigned char, 2, 4)
PAGEDLAB_VECTORS(short, short, 4, 8)
PAGEDLAB_VECTORS(ushort, unsigned short, 4, 8)
PAGEDLAB_VECTORS(int, int, 8, 16)
PAGEDLAB_VECTORS(uint, unsigned, 8, 16)
PAGEDLAB_VECTORS(long, long, 16, 16)
PAGEDLAB_VECTORS(ulong, unsigned long, 16, 16)
PAGEDLAB_VECTORS(longlong, long long, 16, 16)
PAGEDLAB_VECTORS(ulonglong, unsigned long long, 16, 16)
PAGEDLAB_VECTORS(float, float, 8, 16)
PAGEDLAB_VECTORS(double, double, 16, 16)
#undef PAGEDLAB_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
