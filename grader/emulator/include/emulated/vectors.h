// Vector types (float4, int2 …) with their make_ functions, and dim3.
#pragma once

#include <initializer_list>

// In instrumented modules a vector of at most 16 bytes is one access, as on a GPU. clang would make several of it, were
// the copy not written out; g++ is told by an option.
#if defined(__clang__) && defined(PAGEDLAB_INSTRUMENTED)
#define PAGEDLAB_GIVEN(i) (given.size() > i ? given.begin()[i] : Element())
#define PAGEDLAB_WHOLE(T, type, ...)                                                       \
    typedef type Element;                                                                  \
    T() = default;                                                                         \
    constexpr T(std::initializer_list<type> given) : __VA_ARGS__ {}                        \
    T(const T& other) {                                                                    \
        *this = other;                                                                     \
    }                                                                                      \
    T& operator=(const T& other) {                                                         \
        constexpr size_t STEP = sizeof(T) < 16 ? sizeof(T) : 16;                           \
        typedef type Whole __attribute__((vector_size(STEP), may_alias));                  \
        for (size_t i = 0; i < sizeof(T) / STEP; i++)                                      \
            reinterpret_cast<Whole*>(this)[i] = reinterpret_cast<const Whole*>(&other)[i]; \
        return *this;                                                                      \
    }
#else
#define PAGEDLAB_WHOLE(T, type, ...)
#endif

#define PAGEDLAB_VECTORS(base, type, align2, align4)                                                    \
    struct base##1 {                                                                                    \
        type x;                                                                                         \
    };                                                                                                  \
    struct alignas(align2) base##2 {                                                                    \
        type x, y;                                                                                      \
        PAGEDLAB_WHOLE(base##2, type, x(PAGEDLAB_GIVEN(0)), y(PAGEDLAB_GIVEN(1)))                       \
    };                                                                                                  \
    struct base##3 {                                                                                    \
        type x, y, z;                                                                                   \
    };                                                                                                  \
    struct alignas(align4) base##4 {                                                                    \
        type x, y, z, w;                                                                                \
        PAGEDLAB_WHOLE(base##4, type, x(PAGEDLAB_GIVEN(0)), y(PAGEDLAB_GIVEN(1)), z(PAGEDLAB_GIVEN(2)), \
                       w(PAGEDLAB_GIVEN(3)))                                                            \
    };                                                                                                  \
    PAGEDLAB_FUNCTION(base##1, make_##base##1, (type x), {x})                                           \
    PAGEDLAB_FUNCTION(base##2, make_##base##2, (type x, type y), {x, y})                                \
    PAGEDLAB_FUNCTION(base##3, make_##base##3, (type x, type y, type z), {x, y, z})                     \
    PAGEDLAB_FUNCTION(base##4, make_##base##4, (type x, type y, type z, type w), {x, y, z, w})

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
#undef PAGEDLAB_WHOLE
#undef PAGEDLAB_GIVEN

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
