// Kernels of language models that work on rows, as public training code writes them.
#include <assert.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <float.h>
#include <stdint.h>

namespace cg = cooperative_groups;

#define WARP_SIZE 32U
#define lerp_floats(a, b, t) fma((t), (b), fma(-(t), (a), (a)))

using floatX = __nv_bfloat16;

// Sixteen bytes of a type, loaded and stored at once.
template <class ElementType>
struct alignas(16) Packed128 {
    Packed128() = default;
    __device__ explicit Packed128(int4 bits) {
        static_assert(sizeof(bits) == sizeof(payload), "Size mismatch.");
        memcpy(&payload, &bits, sizeof(bits));
    }
    __device__ static Packed128 constant(ElementType value) {
        Packed128 result;
        for (int k = 0; k < size; ++k) result.payload[k] = value;
        return result;
    }
    __device__ static Packed128 zeros() { return constant(0.f); }
    __device__ ElementType& operator[](int index) { return payload[index]; }
    __device__ const ElementType& operator[](int index) const { return payload[index]; }
    __device__ int4 get_bits() const {
        int4 bits;
        static_assert(sizeof(bits) == sizeof(payload), "Size mismatch.");
        memcpy(&bits, &payload, sizeof(bits));
        return bits;
    }
    static constexpr const size_t size = sizeof(int4) / sizeof(ElementType);
    ElementType payload[size];
};

template <class ElementType>
__device__ Packed128<ElementType> load128(const ElementType* address) {
    return Packed128<ElementType>{*reinterpret_cast<const int4*>(address)};
}
template <class ElementType>
__device__ Packed128<ElementType> load128cs(const ElementType* address) {
    return Packed128<ElementType>{__ldcs(reinterpret_cast<const int4*>(address))};
}
template <class ElementType>
__device__ void store128(ElementType* target, Packed128<ElementType> value) {
    *reinterpret_cast<int4*>(target) = value.get_bits();
}
template <class ElementType>
__device__ void store128cs(ElementType* target, Packed128<ElementType> value) {
    __stcs(reinterpret_cast<int4*>(target), value.get_bits());
}
typedef Packed128<float> f128;
typedef Packed128<floatX> x128;

__device__ inline float warpReduceSum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xFFFFFFFF, value, offset);
    return value;
}
__device__ inline float warpReduceMax(float value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
    return value;
}

// A reduction is a template argument.
using reduction_func_t = float (*)(float);
template <reduction_func_t warp_reduction>
__device__ inline float blockReduce(float value, bool final_sync = false, float out_of_bounds = 0.0f) {
    __shared__ float shared[WARP_SIZE];
    const int lane_id = threadIdx.x % WARP_SIZE;
    const int warp_id = threadIdx.x / WARP_SIZE;
    const int num_warps = blockDim.x / WARP_SIZE;
    const float of_warp = warp_reduction(value);
    if (lane_id == 0) shared[warp_id] = of_warp;
    __syncthreads();
    value = (lane_id < num_warps) ? shared[lane_id] : out_of_bounds;
    const float of_block = warp_reduction(value);
    if (final_sync) __syncthreads();  // only needed where shared memory is used again
    return of_block;
}

// Rounds down or up at random, with probabilities that keep the mean.
__device__ __forceinline__ unsigned int squirrel_noise(unsigned int position, unsigned int seed) {
    constexpr unsigned int BITS_1 = 0xB5297A4D, BITS_2 = 0x68E31DA4, BITS_3 = 0x1B56C4E9;
    unsigned int mangled = position * BITS_1;
    mangled += seed;
    mangled ^= mangled >> 8;
    mangled += BITS_2;
    mangled ^= mangled << 8;
    mangled *= BITS_3;
    return mangled ^ (mangled >> 8);
}
__device__ __forceinline__ void stochastic_rounding(float in, __nv_bfloat16* out, unsigned int seed) {
    const unsigned int threshold = squirrel_noise(threadIdx.x + blockIdx.x * blockDim.x, seed) & 0xFFFF;
    const unsigned int bits = __float_as_uint(in), rounded = bits & 0x0000FFFF;
    *out = __float2bfloat16_rn(__uint_as_float(rounded > threshold ? (bits | 0xFFFF) + 1 : bits & ~0xFFFFu));
}
__device__ __forceinline__ void stochastic_rounding(float in, float* out, unsigned int) {
    *out = in;
}

template <typename Tp, typename Tg>
__device__ void adamw_update(Tp* parameters, float* master, Tg* gradients, float* m_memory, float* v_memory,
                             size_t n, float learning_rate, float beta1, float beta2, float correction1,
                             float correction2, float eps, float weight_decay, unsigned int seed) {
    const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float gradient = (float)gradients[i];
    float m = lerp_floats(gradient, m_memory[i], beta1);
    float v = lerp_floats(gradient * gradient, v_memory[i], beta2);
    m_memory[i] = m;
    v_memory[i] = v;
    m /= correction1;
    v /= correction2;
    const float old = (master != NULL) ? master[i] : (float)parameters[i];
    const float updated = old - (learning_rate * (m / (sqrtf(v) + eps) + weight_decay * old));
    stochastic_rounding(updated, &parameters[i], seed);
    if (master != NULL) master[i] = updated;
}

struct SoftmaxParams {
    float Scale;
    float Offset;
};

__device__ SoftmaxParams prepare_softmax(int64_t row, const floatX* input, int V, int P) {
    const floatX* x = input + row * P;
    float largest = -INFINITY, sum = 0.0f;
    for (int i = (V + x128::size - 1) / x128::size + threadIdx.x - blockDim.x; i >= 0; i -= blockDim.x) {
        const x128 packed = load128(x + i * x128::size);
        for (int k = 0; k < x128::size; ++k) {
            if (i * x128::size + k >= V) continue;
            const float v = (float)packed[k], old = largest;
            largest = fmaxf(largest, v);
            sum *= expf(old - largest);
            sum += expf(v - largest);
        }
    }
    const float block_max = blockReduce<warpReduceMax>(largest, false, -FLT_MAX);
    sum *= expf(largest - block_max);
    return SoftmaxParams{1.f / blockReduce<warpReduceSum>(sum), block_max};
}

struct __align__(8) MD {
    float m;
    float d;
};
__device__ __forceinline__ MD reduce_md(MD a, MD b) {
    const bool is_a_larger = (a.m > b.m);
    const MD larger = is_a_larger ? a : b, smaller = is_a_larger ? b : a;
    MD result;
    result.d = larger.d + smaller.d * __expf(smaller.m - larger.m);
    result.m = larger.m;
    return result;
}

extern "C" {

// out [B, T, C] = wte [V, C] at inp [B, T] + wpe [T, C]
__global__ void encoder_forward(floatX* out, const int* inp, const floatX* wte, const floatX* wpe, int B,
                                int T, int C) {
    const int idx = (blockIdx.x * blockDim.x + threadIdx.x) * x128::size;
    if (idx >= B * T * C) return;
    const int bt = idx / C, b = bt / T, t = bt % T, c = idx % C;
    const x128 token = load128cs(wte + inp[b * T + t] * C + c), position = load128cs(wpe + t * C + c);
    x128 packed_out;
#pragma unroll
    for (int k = 0; k < x128::size; k++) packed_out[k] = (floatX)((float)token[k] + (float)position[k]);
    store128(out + b * T * C + t * C + c, packed_out);
}

// A warp a row.
__global__ void layernorm_forward(float* __restrict__ out, float* __restrict__ mean, float* __restrict__ rstd,
                                  const float* __restrict__ inp, const float* __restrict__ weight,
                                  const float* __restrict__ bias, int N, int C) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    const int idx = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (idx >= N) return;
    const float* x = inp + idx * C;
    float sum = 0.0f;
    for (int i = warp.thread_rank(); i < C; i += warp.size()) sum += x[i];
    sum = cg::reduce(warp, sum, cg::plus<float>{});
    const float m = sum / C;
    if (warp.thread_rank() == 0 && mean != nullptr) __stcs(mean + idx, m);
    sum = 0.0f;
    for (int i = warp.thread_rank(); i < C; i += warp.size()) {
        const float diff = x[i] - m;
        sum += diff * diff;
    }
    sum = cg::reduce(warp, sum, cg::plus<float>{});
    const float s = rsqrtf(sum / C + 1e-5f);
    if (warp.thread_rank() == 0 && rstd != nullptr) __stcs(rstd + idx, s);
    float* o = out + idx * C;
    for (int c = warp.thread_rank(); c < C; c += warp.size()) {
        const float n = s * (__ldcs(x + c) - m);
        __stcs(o + c, n * weight[c] + bias[c]);
    }
}

// residual = inp1 + inp2, normed = its layer norm; a warp of a two-dimensional block a row, weights in shared memory.
__global__ void fused_residual_forward(floatX* residual, floatX* normed, const floatX* inp1,
                                       const floatX* inp2, const floatX* weight, const floatX* bias, int N,
                                       int C) {
    extern __shared__ char* params[];
    x128* s_weight = reinterpret_cast<x128*>(params);
    x128* s_bias = reinterpret_cast<x128*>(params) + (C / x128::size);
    x128* s_res = reinterpret_cast<x128*>(params) + ((2 + threadIdx.y) * C / x128::size);
    const int sidx = (threadIdx.x + WARP_SIZE * threadIdx.y) * x128::size;
    for (int i = sidx; i < C; i += blockDim.y * WARP_SIZE * x128::size) {
        s_weight[i / x128::size] = load128(weight + i);
        s_bias[i / x128::size] = load128(bias + i);
    }
    __syncthreads();
    const int idx = blockIdx.x * blockDim.y + threadIdx.y;
    if (idx >= N) return;
    residual += C * idx;
    normed += C * idx;
    inp1 += C * idx;
    inp2 += C * idx;
    const float eps = 1e-5f;
    float sum = 0.0f;
    for (int c = threadIdx.x * x128::size; c < C; c += WARP_SIZE * x128::size) {
        const x128 in1 = load128cs(inp1 + c), in2 = load128cs(inp2 + c);
        x128 out;
        for (int k = 0; k < x128::size; ++k) {
            out[k] = (float)in1[k] + (float)in2[k];
            sum += (float)out[k];
        }
        store128cs(residual + c, out);
        s_res[c / x128::size] = out;
    }
    sum = warpReduceSum(sum);
    const float m = sum / C;
    float v = 0.f;
    for (int c = threadIdx.x * x128::size; c < C; c += WARP_SIZE * x128::size) {
        const x128 res = s_res[c / x128::size];
        for (int k = 0; k < x128::size; ++k) v += ((float)res[k] - m) * ((float)res[k] - m);
    }
    v = warpReduceSum(v) / C;
    const float s = rsqrtf(v + eps);
    for (int c = threadIdx.x * x128::size; c < C; c += WARP_SIZE * x128::size) {
        const x128 res = s_res[c / x128::size], w = s_weight[c / x128::size], b = s_bias[c / x128::size];
        x128 out;
        for (int k = 0; k < x128::size; ++k) {
            const float n = s * ((float)res[k] - m);
            out[k] = n * (float)w[k] + (float)b[k];
        }
        store128cs(normed + c, out);
    }
}

__global__ void adamw_bf16(__nv_bfloat16* parameters, float* master, __nv_bfloat16* gradients, float* m,
                           float* v, unsigned long n, float learning_rate, unsigned int seed) {
    adamw_update(parameters, master, gradients, m, v, n, learning_rate, 0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 0.1f,
                 seed);
}
__global__ void adamw_float(float* parameters, float* gradients, float* m, float* v, unsigned long n) {
    adamw_update(parameters, (float*)NULL, gradients, m, v, n, 1e-2f, 0.9f, 0.95f, 0.1f, 0.05f, 1e-8f, 0.0f,
                 0);
}

// losses [rows] and logits [rows, P] → their gradients; a block a row, the last row first.
__global__ void __launch_bounds__(256)
    fused_classifier(floatX* logits, float* losses, const float dloss, const int* targets, int V, int P) {
    const int64_t idx = gridDim.x - (blockIdx.x + 1);
    const int ix = targets[idx];
    const SoftmaxParams sp = prepare_softmax(idx, logits, V, P);
    if (threadIdx.x == 0) losses[idx] -= logf(expf((float)logits[idx * P + ix] - sp.Offset) * sp.Scale);
    __syncthreads();  // logits [ix] has been read
    for (int i = threadIdx.x; i < V; i += blockDim.x) {
        const float prob = expf((float)__ldcs(&logits[idx * P + i]) - sp.Offset) * sp.Scale;
        __stcs(&logits[idx * P + i], (floatX)((prob - (i == ix ? 1.0f : 0.0f)) * dloss));
    }
}

// A softmax in one pass over each row: maximum and sum are one struct of eight bytes in the tile's reduction.
__global__ void softmax_online(float* out, const float* inp, int N, int C) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    const int idx = blockIdx.x * warp.meta_group_size() + warp.meta_group_rank();
    if (idx >= N) return;
    const float* x = inp + idx * C;
    MD partial = {-FLT_MAX, 0.0f};
    for (int i = warp.thread_rank(); i < C; i += warp.num_threads())
        partial = reduce_md(partial, MD{x[i], 1.0f});
    const MD total = cg::reduce(warp, partial, reduce_md);
    for (int i = warp.thread_rank(); i < C; i += warp.num_threads()) {
        __stcs(out + idx * C + i, __expf(x[i] - total.m) * __fdividef(1.0f, total.d));
    }
}

// Pairs (x, y) of q [T, heads, D] turn by angles freqs [T, D / 2] as (cos, sin).
__global__ void rope_pairs(float* q, const float2* freqs, int T, int heads, int D) {
    const int pair = blockIdx.x * blockDim.x + threadIdx.x, half = D / 2;
    if (pair >= T * heads * half) return;
    const int t = pair / (heads * half), d = pair % half;
    float2* values = reinterpret_cast<float2*>(q) + pair;
    const float2 v = *values, f = __ldg(&freqs[t * half + d]);
    *values = make_float2(v.x * f.x - v.y * f.y, v.x * f.y + v.y * f.x);
}

__global__ void gelu_forward(floatX* out, const floatX* inp, int n) {
    const int idx = (blockIdx.x * blockDim.x + threadIdx.x) * x128::size;
    if (idx >= n) return;
    const x128 packed = load128cs(inp + idx);
    x128 result = x128::zeros();
    for (int k = 0; k < packed.size; ++k) {
        const float xi = (float)packed[k], cube = 0.044715f * xi * xi * xi;
        result[k] = (floatX)(0.5f * xi * (1.0f + tanhf(sqrtf(2.0f / M_PI) * (xi + cube))));
    }
    store128(out + idx, result);
}
}
