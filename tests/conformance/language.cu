// The language: what a kernel's C++ may be made of.
#include <cstdint>

namespace shapes {

template <class T>
struct Range {
    T low, high;

    __host__ __device__ constexpr T length() const { return high - low; }
    __device__ bool holds(T value) const { return value >= low && value < high; }
};

namespace inner {
__device__ __forceinline__ int squared(int x) {
    return x * x;
}
}  // namespace inner

}  // namespace shapes

template <int N>
__device__ int power(int x) {
    if constexpr (N == 0) {
        return 1;
    } else {
        return x * power<N - 1>(x);
    }
}

template <class T, std::enable_if_t<std::is_integral<T>::value, int> = 0>
__device__ T halved(T x) {
    return x >> 1;
}
template <class T, std::enable_if_t<std::is_floating_point<T>::value, int> = 0>
__device__ T halved(T x) {
    return x * T(0.5);
}

template <int (*Function)(int)>
__device__ int twice(int x) {
    return Function(Function(x));
}
__device__ int incremented(int x) {
    return x + 1;
}

template <class Function>
__device__ int applied(Function function, int x) {
    return function(x);
}

struct Affine {
    int scale, offset;

    __device__ int operator()(int x) const { return scale * x + offset; }
};

enum class Mode : int { ADD, MULTIPLY };

template <Mode mode>
__device__ int combine(int a, int b) {
    return mode == Mode::ADD ? a + b : a * b;
}

extern "C" {

__global__ void templates_and_lambdas(int* out, const int* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const int offset = 7;
    auto shifted = [=](int value) { return value + offset; };
    const shapes::Range<int> range{-5, 5};
    int total = power<3>(x[i] % 10) + halved(x[i]) + static_cast<int>(halved(3.0f));
    total += twice<incremented>(x[i]) + twice<shapes::inner::squared>(x[i] % 5);
    total += applied(shifted, x[i]) + applied(Affine{3, 1}, x[i]);
    total += combine<Mode::ADD>(x[i], 2) - combine<Mode::MULTIPLY>(x[i] % 100, 3);
    out[i] = range.holds(x[i]) ? total : -total - range.length();
}
}
