// Attention: one minimal kernel with tiles in shared memory, and a paged one with vectors of sixteen bytes.
#include <cuda_bf16.h>
#include <float.h>
#include <stdint.h>

#define DIVIDE_ROUND_UP(a, b) (((a) + (b) - 1) / (b))
#define SHFL_XOR_SYNC(value, lanes) __shfl_xor_sync(uint32_t(-1), value, lanes)
#define WARP_SIZE 32
#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif

namespace vllm_style {

// A vector of a scalar type, by its length; and the float vector to which it is widened.
template <typename T, int VEC_SIZE>
struct Vec {};
template <typename T>
struct FloatVec {};

struct bf16_4_t {
    __nv_bfloat162 x;
    __nv_bfloat162 y;
};
struct bf16_8_t {
    __nv_bfloat162 x, y, z, w;
};
struct Float8_ {
    float2 x, y, z, w;
};
template <>
struct Vec<__nv_bfloat16, 4> {
    using Type = bf16_4_t;
};
template <>
struct Vec<__nv_bfloat16, 8> {
    using Type = bf16_8_t;
};
template <>
struct FloatVec<bf16_8_t> {
    using Type = Float8_;
};

template <typename Acc, typename A, typename B>
inline __device__ Acc mul(A a, B b);
template <>
inline __device__ float2 mul(__nv_bfloat162 a, __nv_bfloat162 b) {
    const float2 fa = __bfloat1622float2(a), fb = __bfloat1622float2(b);
    return make_float2(fa.x * fb.x, fa.y * fb.y);
}
inline __device__ float2 fma(__nv_bfloat162 a, __nv_bfloat162 b, float2 c) {
    const float2 product = mul<float2, __nv_bfloat162, __nv_bfloat162>(a, b);
    return make_float2(product.x + c.x, product.y + c.y);
}
inline __device__ float sum(float2 v) {
    return v.x + v.y;
}

template <int THREAD_GROUP_SIZE, typename Vec, int N>
inline __device__ float qk_dot(const Vec (&q)[N], const Vec (&k)[N]) {
    float2 acc = mul<float2>(q[0].x, k[0].x);
    acc = fma(q[0].y, k[0].y, acc);
#pragma unroll
    for (int i = 1; i < N; ++i) {
        acc = fma(q[i].x, k[i].x, acc);
        acc = fma(q[i].y, k[i].y, acc);
    }
    float qk = sum(acc);
#pragma unroll
    for (int mask = THREAD_GROUP_SIZE / 2; mask >= 1; mask /= 2) qk += SHFL_XOR_SYNC(qk, mask);
    return qk;
}

template <int NUM_WARPS>
inline __device__ float block_sum(float* red_smem, float sum) {
    const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int mask = WARP_SIZE / 2; mask >= 1; mask /= 2) sum += SHFL_XOR_SYNC(sum, mask);
    if (lane == 0) red_smem[warp] = sum;
    __syncthreads();
    if (lane < NUM_WARPS) sum = red_smem[lane];
#pragma unroll
    for (int mask = NUM_WARPS / 2; mask >= 1; mask /= 2) sum += SHFL_XOR_SYNC(sum, mask);
    return __shfl_sync(uint32_t(-1), sum, 0);
}

// out [seqs, heads, HEAD_SIZE]; k_cache [blocks, kv_heads, HEAD_SIZE / x, BLOCK_SIZE, x] with x elements in 16 bytes,
// v_cache [blocks, kv_heads, HEAD_SIZE, BLOCK_SIZE]. A block of threads a (head, sequence).
template <typename scalar_t, int HEAD_SIZE, int BLOCK_SIZE, int NUM_THREADS>
__device__ void paged_attention_kernel(scalar_t* __restrict__ out, const scalar_t* __restrict__ q,
                                       const scalar_t* __restrict__ k_cache,
                                       const scalar_t* __restrict__ v_cache, const int num_kv_heads,
                                       const float scale, const int* __restrict__ block_tables,
                                       const int* __restrict__ context_lens,
                                       const int max_num_blocks_per_seq) {
    const int seq_idx = blockIdx.y, head_idx = blockIdx.x, num_heads = gridDim.x, thread_idx = threadIdx.x;
    const int context_len = context_lens[seq_idx];
    const int num_context_blocks = DIVIDE_ROUND_UP(context_len, BLOCK_SIZE);
    constexpr int THREAD_GROUP_SIZE = MAX(WARP_SIZE / BLOCK_SIZE, 1);
    constexpr int NUM_WARPS = NUM_THREADS / WARP_SIZE;
    const int warp_idx = thread_idx / WARP_SIZE, lane = thread_idx % WARP_SIZE;
    const int kv_head_idx = head_idx / (num_heads / num_kv_heads);

    // A group of threads reads 16 bytes of a key at a time.
    constexpr int VEC_SIZE = MAX(16 / (THREAD_GROUP_SIZE * sizeof(scalar_t)), 1);
    using K_vec = typename Vec<scalar_t, VEC_SIZE>::Type;
    constexpr int NUM_ELEMS_PER_THREAD = HEAD_SIZE / THREAD_GROUP_SIZE;
    constexpr int NUM_VECS_PER_THREAD = NUM_ELEMS_PER_THREAD / VEC_SIZE;
    const int group_idx = thread_idx / THREAD_GROUP_SIZE % BLOCK_SIZE,
              group_offset = thread_idx % THREAD_GROUP_SIZE;
    const scalar_t* q_ptr = q + (seq_idx * num_heads + head_idx) * HEAD_SIZE;
    K_vec q_vecs[NUM_VECS_PER_THREAD];
#pragma unroll
    for (int i = 0; i < NUM_VECS_PER_THREAD; ++i) {
        q_vecs[i] =
            *reinterpret_cast<const K_vec*>(q_ptr + (group_offset + i * THREAD_GROUP_SIZE) * VEC_SIZE);
    }

    extern __shared__ char shared_mem[];
    float* logits = reinterpret_cast<float*>(shared_mem);
    __shared__ float red_smem[2 * NUM_WARPS];
    constexpr int x = 16 / sizeof(scalar_t);
    float qk_max = -FLT_MAX;
    const int* block_table = block_tables + seq_idx * max_num_blocks_per_seq;
    for (int block_idx = warp_idx; block_idx < num_context_blocks; block_idx += NUM_WARPS) {
        const int64_t physical = block_table[block_idx];
        const int token_idx = block_idx * BLOCK_SIZE + group_idx;
        const scalar_t* k_ptr =
            k_cache + (physical * num_kv_heads + kv_head_idx) * HEAD_SIZE * BLOCK_SIZE + group_idx * x;
        K_vec k_vecs[NUM_VECS_PER_THREAD];
#pragma unroll
        for (int j = 0; j < NUM_VECS_PER_THREAD; j++) {
            const int vec_idx = (group_offset + j * THREAD_GROUP_SIZE) * VEC_SIZE;
            k_vecs[j] = *reinterpret_cast<const K_vec*>(k_ptr + vec_idx / x * BLOCK_SIZE * x + vec_idx % x);
        }
        const float qk = scale * qk_dot<THREAD_GROUP_SIZE>(q_vecs, k_vecs);
        if (group_offset == 0) {
            const bool mask = token_idx >= context_len;
            logits[token_idx] = mask ? 0.f : qk;
            qk_max = mask ? qk_max : fmaxf(qk_max, qk);
        }
    }
#pragma unroll
    for (int mask = WARP_SIZE / 2; mask >= THREAD_GROUP_SIZE; mask /= 2) {
        qk_max = fmaxf(qk_max, SHFL_XOR_SYNC(qk_max, mask));
    }
    if (lane == 0) red_smem[warp_idx] = qk_max;
    __syncthreads();
    qk_max = lane < NUM_WARPS ? red_smem[lane] : -FLT_MAX;
#pragma unroll
    for (int mask = NUM_WARPS / 2; mask >= 1; mask /= 2) qk_max = fmaxf(qk_max, SHFL_XOR_SYNC(qk_max, mask));
    qk_max = __shfl_sync(uint32_t(-1), qk_max, 0);

    float exp_sum = 0.f;
    for (int i = thread_idx; i < context_len; i += NUM_THREADS) {
        const float val = __expf(logits[i] - qk_max);
        logits[i] = val;
        exp_sum += val;
    }
    exp_sum = block_sum<NUM_WARPS>(&red_smem[NUM_WARPS], exp_sum);
    const float inv_sum = __fdividef(1.f, exp_sum + 1e-6f);
    for (int i = thread_idx; i < context_len; i += NUM_THREADS) logits[i] *= inv_sum;
    __syncthreads();

    for (int row = thread_idx; row < HEAD_SIZE; row += NUM_THREADS) {
        float acc = 0.f;
        for (int block_idx = 0; block_idx < num_context_blocks; ++block_idx) {
            const int64_t physical = block_table[block_idx];
            const scalar_t* v_ptr =
                v_cache + ((physical * num_kv_heads + kv_head_idx) * HEAD_SIZE + row) * BLOCK_SIZE;
            for (int j = 0; j < BLOCK_SIZE; j += 8) {
                using V_vec = typename Vec<scalar_t, 8>::Type;
                const V_vec v_vec = *reinterpret_cast<const V_vec*>(v_ptr + j);
                const scalar_t* v = reinterpret_cast<const scalar_t*>(&v_vec);
                const int tokens = min(8, context_len - block_idx * BLOCK_SIZE - j);
                for (int k = 0; k < tokens; ++k)
                    acc += logits[block_idx * BLOCK_SIZE + j + k] * __bfloat162float(v[k]);
            }
        }
        out[(seq_idx * num_heads + head_idx) * HEAD_SIZE + row] = __float2bfloat16(acc);
    }
}

}  // namespace vllm_style

extern "C" {

// O [B, nh, N, d]: a block of Bc threads a head; K, V and Q tiles and the scores lie in one dynamic array.
__global__ void flash_forward(float* O, const float* Q, const float* K, const float* V, float* l, float* m,
                              const int N, const int d, const int Tc, const int Tr, const int Bc,
                              const int Br, const float softmax_scale) {
    const int tx = threadIdx.x, bx = blockIdx.x, by = blockIdx.y;
    const int qkv_offset = (bx * gridDim.y * N * d) + (by * N * d),
              lm_offset = (bx * gridDim.y * N) + (by * N);
    extern __shared__ float sram[];
    const int tile_size = Bc * d;
    float* Qi = sram;
    float* Kj = &sram[tile_size];
    float* Vj = &sram[tile_size * 2];
    float* S = &sram[tile_size * 3];
    for (int j = 0; j < Tc; j++) {
        for (int x = 0; x < d; x++) {
            Kj[(tx * d) + x] = K[qkv_offset + (tile_size * j) + (tx * d) + x];
            Vj[(tx * d) + x] = V[qkv_offset + (tile_size * j) + (tx * d) + x];
        }
        __syncthreads();
        for (int i = 0; i < Tr; i++) {
            for (int x = 0; x < d; x++) Qi[(tx * d) + x] = Q[qkv_offset + (tile_size * i) + (tx * d) + x];
            const float row_m_prev = m[lm_offset + (Br * i) + tx], row_l_prev = l[lm_offset + (Br * i) + tx];
            float row_m = -INFINITY;
            for (int y = 0; y < Bc; y++) {
                float sum = 0;
                for (int x = 0; x < d; x++) sum += Qi[(tx * d) + x] * Kj[(y * d) + x];
                sum *= softmax_scale;
                S[(Bc * tx) + y] = sum;
                if (sum > row_m) row_m = sum;
            }
            float row_l = 0;
            for (int y = 0; y < Bc; y++) {
                S[(Bc * tx) + y] = __expf(S[(Bc * tx) + y] - row_m);
                row_l += S[(Bc * tx) + y];
            }
            const float row_m_new = max(row_m_prev, row_m);
            const float row_l_new =
                (__expf(row_m_prev - row_m_new) * row_l_prev) + (__expf(row_m - row_m_new) * row_l);
            for (int x = 0; x < d; x++) {
                float pv = 0;
                for (int y = 0; y < Bc; y++) pv += S[(Bc * tx) + y] * Vj[(y * d) + x];
                float& o = O[qkv_offset + (tile_size * i) + (tx * d) + x];
                o = (1 / row_l_new) *
                    ((row_l_prev * __expf(row_m_prev - row_m_new) * o) + (__expf(row_m - row_m_new) * pv));
            }
            m[lm_offset + (Br * i) + tx] = row_m_new;
            l[lm_offset + (Br * i) + tx] = row_l_new;
        }
        __syncthreads();
    }
}

__global__ void paged_attention(__nv_bfloat16* out, const __nv_bfloat16* q, const __nv_bfloat16* k_cache,
                                const __nv_bfloat16* v_cache, int num_kv_heads, float scale,
                                const int* block_tables, const int* context_lens,
                                int max_num_blocks_per_seq) {
    vllm_style::paged_attention_kernel<__nv_bfloat16, 64, 16, 128>(
        out, q, k_cache, v_cache, num_kv_heads, scale, block_tables, context_lens, max_num_blocks_per_seq);
}
}
