// The language: what a kernel's C++ may be made of.
#include <cstdint>
#include <type_traits>

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

template <class T, int N>
struct Array {
    T values[N];
    static constexpr int size = N;

    __device__ T& operator[](int i) { return values[i]; }
    __device__ const T& operator[](int i) const { return values[i]; }
};

template <class T>
struct MaxOp {
    __device__ T operator()(T const& a, T const& b) const { return a > b ? a : b; }
};

// A reduction over lanes that halves its template argument, down to a specialisation.
template <int THREADS>
struct Allreduce {
    template <class T, class Operator>
    static __device__ __forceinline__ T run(T x, Operator& op) {
        constexpr int OFFSET = THREADS / 2;
        x = op(x, __shfl_xor_sync(uint32_t(-1), x, OFFSET));
        return Allreduce<OFFSET>::run(x, op);
    }
};
template <>
struct Allreduce<1> {
    template <class T, class Operator>
    static __device__ __forceinline__ T run(T x, Operator&) {
        return x;
    }
};

template <class... Types>
__device__ long long total(Types... values) {
    return (static_cast<long long>(values) + ...);
}

template <int N>
__device__ int sum_of(const int (&values)[N]) {
    int sum = 0;
    for (auto value : values) sum += value;
    return sum;
}

__device__ __noinline__ int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

union Word {
    unsigned whole;
    struct {
        unsigned low : 16, high : 16;
    } halves;
    unsigned char bytes[4];
};

template <int BEGIN, int END, class Function>
__device__ void static_for(Function function) {
    if constexpr (BEGIN < END) {
        function(std::integral_constant<int, BEGIN>{});
        static_for<BEGIN + 1, END>(function);
    }
}

extern "C" {

// out [4, 32]
__global__ void generic_code(long long* out, const int* x) {
    const int lane = threadIdx.x;
    MaxOp<int> op;
    out[lane] = Allreduce<32>::run(x[lane], op) + Allreduce<4>::run(x[lane], op);
    Array<int, 4> squares{};
    static_for<0, decltype(squares)::size>(
        [&](auto i) { squares[decltype(i)::value] = x[lane] * decltype(i)::value; });
    const int rows[3] = {squares[1], squares[2], squares[3]};
    out[32 + lane] = total(squares[3], 1u, 2.9f, static_cast<short>(-3)) + sum_of(rows);
    Word word;
    word.whole = static_cast<unsigned>(x[lane]) * 2654435761u;
    out[64 + lane] = word.halves.high + (static_cast<long long>(word.bytes[0]) << 20);
    switch (lane & 3) {
        case 0:
            out[96 + lane] = fibonacci(lane / 2);
            break;
        case 1:
            out[96 + lane] = 1;
            [[fallthrough]];
        case 2:
            out[96 + lane] = lane > 16 ? 5 : 6;
            break;
        default:
            int steps = 0;
            for (unsigned n = lane + 1u; n != 1; steps++) n = n % 2 ? 3 * n + 1 : n / 2;
            out[96 + lane] = steps;
    }
}

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
