// A whole program: nvcc and the emulator take its kernels from it, and leave out what is for the host.
#include <cooperative_groups.h>
#include <cuComplex.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#define CHECK(call)                                                        \
    do {                                                                   \
        const cudaError_t error = call;                                    \
        if (error != cudaSuccess) {                                        \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)
#define DEVICE_FUNCTION __device__ __forceinline__

namespace cg = cooperative_groups;

static cudaStream_t stream;
float *input, *output;
dim3 num_blocks(2), num_threads(32);
int table[3] = {1, 2, 3};

struct Timer {
    cudaEvent_t begin;
    Timer() { cudaEventCreate(&begin); }
    void start() { cudaEventRecord(begin, stream); }
};

DEVICE_FUNCTION float doubled(float x) {
    return 2 * x;
}

// A function of the host that names nothing of the host's.
void double_all(float* x, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) x[i] = 2 * x[i];
}

template <class T>
std::vector<T> drawn(int n) {
    std::mt19937 engine(1);
    std::vector<T> values(n);
    for (T& value : values) value = static_cast<T>(engine() % 100);
    return values;
}

extern "C" __global__ void double_in_grid(float* x, int n) {
    cg::grid_group grid = cg::this_grid();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = doubled(x[i]);
}

extern "C" __global__ void normal_values(double* out, const double* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = normcdf(x[i]);
    out[n + i] = normcdfinv(normcdf(x[i])) - x[i];
    out[2 * n + i] = erfinv(erf(x[i] / 8)) * rhypot(3.0, 4.0) + rcbrt(8.0) + umin(umax(2u, 7u), 9u);
}

// Kernels that macros write.
#define KERNEL extern "C" __global__ void
#define ELEMENTWISE(NAME, TYPE, ...)                                                \
    KERNEL NAME##_##TYPE(TYPE* out, const TYPE* x, const TYPE* y, int n) {          \
        const int i = blockIdx.x * blockDim.x + threadIdx.x; /* one element each */ \
        if (i < n) {                                                                \
            const TYPE a = x[i], b = y[i];                                          \
            out[i] = __VA_ARGS__ + (#NAME[0] - 'a');                                \
        }                                                                           \
    }
#define ELEMENTWISE_OF_BOTH(NAME, ...)    \
    ELEMENTWISE(NAME, float, __VA_ARGS__) \
    ELEMENTWISE(NAME, int, __VA_ARGS__)

ELEMENTWISE_OF_BOTH(larger, max(a, b))
ELEMENTWISE_OF_BOTH(add, a + b)

extern "C" __global__ void steps_to_escape(int* out, const cuFloatComplex* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    cuComplex z = make_cuComplex(0, 0);
    int steps = 0;
    while (steps < 50 && cuCabsf(z) < 2) z = cuCaddf(cuCmulf(z, z), c[i]), steps++;
    out[i] =
        steps + static_cast<int>(cuCreal(cuCdiv(make_cuDoubleComplex(8, 8), make_cuDoubleComplex(2, 2))));
}

float* on_device(const std::vector<float>& values) {
    float* copy;
    CHECK(cudaMalloc(&copy, values.size() * sizeof(float)));
    CHECK(cudaMemcpy(copy, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
    return copy;
}

int main() {
    const auto values = drawn<float>(100);
    float* x = on_device(values);
    Timer timer;
    timer.start();
#ifdef TWICE
    double_in_grid<<<2, 32>>>(x, 100);
#endif
    double_in_grid<<<num_blocks, num_threads, 0, stream>>>(x, 100);
    CHECK(cudaDeviceSynchronize());
    std::cout << "done" << std::endl;
    return 0;
}
