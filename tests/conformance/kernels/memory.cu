// Memory: shared in all its forms, constant and global variables, vectors, loads and stores with hints.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define TILE 16

__constant__ float weights[8];
__constant__ const int primes[5] = {2, 3, 5, 7, 11};
__constant__ float scale = 2.0f;
__constant__ int2 corner;
__device__ int counter = 3;
__device__ const unsigned masks[] = {1, 3, 7, 15};
__device__ float table[4][8];
static __device__ long long total;
__device__ constexpr int SQUARES[] = {0, 1, 4, 9};

__shared__ int file_scope[64];
extern __shared__ unsigned char whole[];

struct Particle {
    float3 position;
    float mass;
    int id;

    __device__ float weighted(float factor) const {
        return (position.x + position.y + position.z) * mass * factor;
    }
};

struct Parameters {
    float scale;
    int offset;
    int2 extent;
    unsigned char flags[4];
};

// Hands out an untyped buffer piece by piece.
struct Arena {
    unsigned char* next;

    template <class T>
    __device__ T* take(int count) {
        T* taken = reinterpret_cast<T*>(next);
        next += count * sizeof(T);
        return taken;
    }
};

template <class T>
struct SharedBuffer {
    __device__ operator T*() const {
        extern __shared__ int raw[];
        return reinterpret_cast<T*>(raw);
    }
};

template <class T, int N>
__device__ T reversed(T value) {
    __shared__ T row[N];
    row[threadIdx.x] = value;
    __syncthreads();
    return row[N - 1 - threadIdx.x];
}

template <class T>
__device__ T neighbour(T value) {
    SharedBuffer<T> buffer;
    T* row = buffer;
    row[threadIdx.x] = value;
    __syncthreads();
    const T result = row[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();  // before the buffer is used again
    return result;
}

__device__ void fill_file_scope(int value) {
    file_scope[threadIdx.x] = value;
    __syncthreads();
}

extern "C" {

// out [columns, rows] = x [rows, columns] transposed
__global__ void transpose(float* out, const float* x, int rows, int columns) {
    __shared__ float tile[TILE][TILE + 1];
    const int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
    __syncthreads();
    const int out_row = blockIdx.x * TILE + threadIdx.y, out_column = blockIdx.y * TILE + threadIdx.x;
    if (out_row < columns && out_column < rows) {
        out[out_row * rows + out_column] = tile[threadIdx.x][threadIdx.y];
    }
}

__global__ void static_shared(int* out, const int* x) {
    __shared__ int scalar;
    __shared__ __align__(16) unsigned char bytes[64 * sizeof(int)];
    __shared__ union {
        int as_int[64];
        float as_float[64];
    } both;
    int* ints = reinterpret_cast<int*>(bytes);
    const int t = threadIdx.x;
    if (t == 0) scalar = x[0];
    ints[t] = x[t];
    both.as_float[t] = 1.0f;
    fill_file_scope(x[t] * 2);  // and a barrier
    const int bits = both.as_int[63 - t];
    out[t] = scalar + ints[63 - t] + file_scope[63 - t] + (bits == 0x3f800000);
    out[64 + t] = reversed<int, 64>(x[t]) + static_cast<int>(reversed<double, 64>(x[t] * 0.5) * 2);
}

// Four views of one dynamic buffer: at file scope, by an offset, by a struct, by a template.
__global__ void dynamic_shared(int* out, float* sums, const int* x, int n) {
    extern __shared__ float floats[];
    int* ints = reinterpret_cast<int*>(&floats[n]);
    short* shorts = (short*)(ints + n);
    const int t = threadIdx.x;
    floats[t] = x[t] * 0.5f;
    ints[t] = x[t];
    shorts[t] = static_cast<short>(x[t] + 1);
    __syncthreads();
    out[t] = ints[n - 1 - t] + shorts[(t + 1) % n] + static_cast<int>(floats[t] * 2);
    sums[t] = reinterpret_cast<float*>(whole)[n - 1 - t];
    __syncthreads();  // the buffer is free
    Arena arena{whole};
    double* doubles = arena.take<double>(n);
    unsigned char* bytes = arena.take<unsigned char>(n);
    doubles[t] = x[t];
    bytes[t] = static_cast<unsigned char>(t);
    __syncthreads();
    out[n + t] = static_cast<int>(doubles[n - 1 - t]) + bytes[n - 1 - t];
    __syncthreads();
    out[2 * n + t] = neighbour(x[t]) + static_cast<int>(neighbour(static_cast<double>(x[t])));
}

// More than 48 KB, as rows: out [blockDim.x] sums one column each.
__global__ void large_dynamic_shared(int* out, int rows) {
    extern __shared__ int matrix[][64];
    for (int row = 0; row < rows; row++) matrix[row][threadIdx.x] = row ^ threadIdx.x;
    __syncthreads();
    int sum = 0;
    for (int row = 0; row < rows; row++) sum += matrix[row][63 - threadIdx.x];
    out[threadIdx.x] = sum;
}

__global__ void variables(float* out, const float* x) {
    const int t = threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += weights[i] * x[t + i];
    out[t] = sum * scale + primes[t % 5] + static_cast<float>(masks[t % 4]) + SQUARES[t % 4] + corner.y;
    table[t / 8 % 4][t % 8] = x[t];
    atomicAdd(&counter, 2);
    if (t == 0) total += primes[4] * 3ll;
}

__global__ void struct_arguments(Parameters parameters, float* out, const Particle* particles, int n) {
    const int i = threadIdx.x;
    if (i >= n) return;
    const Particle p = particles[i];
    const int area = parameters.extent.x * parameters.extent.y;
    out[i] = p.weighted(parameters.scale) + (p.id + parameters.offset) * area + parameters.flags[i % 4];
}

// Sixteen, eight and four bytes at a time; x [4 n] floats, pairs [2 n] ints.
__global__ void vector_loads(float* out, int* swapped, const float* x, const int* pairs, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x += 1.0f;
    v.w *= v.y;
    const float4 turned = make_float4(v.w, v.z, v.y, v.x);
    *reinterpret_cast<float4*>(&out[4 * i]) = turned;
    const int2 pair = __ldg(reinterpret_cast<const int2*>(pairs) + i);
    reinterpret_cast<int2*>(swapped)[i] = make_int2(pair.y, pair.x);
}

__global__ void hinted(int* out, const int* x, int n) {
    const int i = threadIdx.x;
    const int sum = __ldg(x + i) + __ldg(&x[i]) + __ldca(x + i) + __ldcg(x + i) + __ldcs(x + i) +
                    __ldlu(x + i) + __ldcv(x + i);
    __stwb(out + i, sum);
    __stcg(out + n + i, sum + 1);
    __stcs(out + 2 * n + i, sum + 2);
    __stwt(out + 3 * n + i, sum + 3);
    const int4 four = __ldcs(reinterpret_cast<const int4*>(x) + i % (n / 4));
    __stcs(reinterpret_cast<int2*>(out + 4 * n) + i, make_int2(four.x + four.y, four.z + four.w));
}

// Sums of the parts of a vector of each type, and their sizes and alignments.
__global__ void vector_types(long long* out, const signed char* x) {
    const int a = x[0], b = x[1], c = x[2], d = x[3];
    const char4 c4 = make_char4(a, b, c, d);
    const uchar3 uc3 = make_uchar3(a, b, c);
    const short2 s2 = make_short2(a, b);
    const ushort4 us4 = make_ushort4(a, b, c, d);
    const int3 i3 = make_int3(a, b, c);
    const uint2 u2 = {static_cast<unsigned>(a), static_cast<unsigned>(b)};
    const longlong2 l2 = make_longlong2(a, b);
    const double2 d2 = make_double2(a, b);
    const float3 f3 = make_float3(a, b, c);
    const float1 f1 = make_float1(a);
    const int sizes[] = {sizeof(char4),      sizeof(uchar3),   sizeof(short2),    sizeof(ushort4),
                         sizeof(int3),       sizeof(uint2),    sizeof(longlong2), sizeof(double2),
                         sizeof(float3),     sizeof(float1),   alignof(char4),    alignof(uchar3),
                         alignof(short2),    alignof(ushort4), alignof(int3),     alignof(uint2),
                         alignof(longlong2), alignof(double2), alignof(float3),   alignof(float4)};
    for (int i = 0; i < 20; i++) out[i] = sizes[i];
    out[20] = c4.x + c4.y + c4.z + c4.w;
    out[21] = uc3.x + uc3.y + uc3.z;
    out[22] = s2.x + s2.y;
    out[23] = us4.x + us4.w;
    out[24] = i3.x + i3.y + i3.z;
    out[25] = u2.x + u2.y;
    out[26] = l2.x + l2.y;
    out[27] = static_cast<long long>(d2.x + d2.y);
    out[28] = static_cast<long long>(f3.x + f3.y + f3.z + f1.x);
}

// Pairs of 16-bit numbers, eight in a load of sixteen bytes.
__global__ void packed_halves(__nv_bfloat16* out, const __nv_bfloat16* x, __half2* halves, int n) {
    const int i = threadIdx.x;
    const uint4 raw = reinterpret_cast<const uint4*>(x)[i];
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&raw);
    uint4 result;
    __nv_bfloat162* doubled = reinterpret_cast<__nv_bfloat162*>(&result);
    for (int k = 0; k < 4; k++) {
        const float2 wide = __bfloat1622float2(pairs[k]);
        doubled[k] = __floats2bfloat162_rn(wide.x * 2, -wide.y);
    }
    reinterpret_cast<uint4*>(out)[i] = result;
    halves[i] = __halves2half2(__high2half(halves[i]), __low2half(halves[i]));
}
}
