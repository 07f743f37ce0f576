// flash_decode_attention: decode_attention in one pass over the keys: out[b, h] = sum over positions j of
//                p[j] · value[j, g], p = softmax over j of scale · q[b, h] · key[j, g],
//                j = 0 … context_lens[b] − 1 of row slots[b] of the caches
//
// out, q         [num_sequences, num_heads, head_dim] bf16, contiguous; out is written
// key_cache, value_cache   [num_slots, length, num_kv_heads, head_dim] bf16; query head h uses head
//                g = h / (num_heads / num_kv_heads). Behind a context they hold anything, NaN too: never
//                read it
// slots, context_lens   [num_sequences] int32; a context of 0 gives zeros
// Launch         launch.toml [flash_decode_attention], over B, length, Hq, Hkv, D. Suggested: a block per
//                (sequence, head); tiles of as many keys as it has threads; a thread per key for scores,
//                then per 8 elements of every so many-th value
// Must hold      head_dim is a multiple of 8, at most 128, so rows begin at multiples of 16 bytes; a cache
//                may have more than 2^31 elements: compute addresses in 64 bits; shared memory does not grow
//                with the context; keys and values are requested once per head
// Numerics       scores, exponentials and sums stay float32; rounded once to bf16.
#include <cuda_bf16.h>

#include "warp.cuh"

// s11.2: the tile and its vectors
constexpr int MAX_HEAD_DIM = 128;
constexpr int TILE = 128;  // keys of a tile and threads of a block, as in launch.toml
constexpr int VECTOR = 8;  // bf16 numbers in 16 bytes, the widest load

// The 8 numbers of a vector; a bf16 number is the upper half of the float32 number of the same value.
__device__ void unpack(const uint4& vector, float (&numbers)[VECTOR]) {
    const unsigned pairs[VECTOR / 2] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < VECTOR / 2; i++) {
        numbers[2 * i] = __uint_as_float(pairs[i] << 16);
        numbers[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
}

// query · key, over a row of this many vectors
__device__ __forceinline__ float dot(const float* query, const uint4* key, int chunks) {
    float sum = 0.0f;
#pragma unroll 4
    for (int c = 0; c < chunks; c++) {
        float numbers[VECTOR];
        const uint4 vector = key[c];
        unpack(vector, numbers);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            sum += query[c * VECTOR + i] * numbers[i];
        }
    }
    return sum;
}

// m_new = max(m, tile's maximum); the scores S become P = exp(S - m_new); l shrinks by the factor exp(m - m_new), and so
// must o: it is returned. All lanes of a warp take part; each adds its own keys to its l.
__device__ __forceinline__ float update_softmax(float* scores, int tile_keys, float& m, float& l) {
    const int lane = threadIdx.x % 32;
    float m_new = m;
    for (int key = lane; key < tile_keys; key += 32) {
        m_new = fmaxf(m_new, scores[key]);
    }
    m_new = warp_max(m_new);
    const float factor = expf(m - m_new);
    m = m_new;
    l *= factor;
    for (int key = lane; key < tile_keys; key += 32) {
        scores[key] = expf(scores[key] - m);
        l += scores[key];
    }
    return factor;
}

// o += probability · value, over one vector of every step-th value of the tile from `begin` on
__device__ __forceinline__ void add_values(float (&o)[VECTOR], const float* probabilities,
                                           const __nv_bfloat16* column, long long stride, int begin, int step,
                                           int tile_keys) {
#pragma unroll 4
    for (int key = begin; key < tile_keys; key += step) {
        float numbers[VECTOR];
        const uint4 vector = *reinterpret_cast<const uint4*>(column + key * stride);
        unpack(vector, numbers);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            o[i] += probabilities[key] * numbers[i];
        }
    }
}

// out = sum of the threads' o / sum of the first warp's l; zeros for an empty context. All threads of the block take part.
__device__ __forceinline__ void write_output(__nv_bfloat16* out, const float (&o)[VECTOR], float l, int chunk,
                                             int key_group, int head_dim, int context) {
    __shared__ float partial[TILE * VECTOR];  // [key group][head_dim]
    __shared__ float sum;
    const int thread = threadIdx.x, num_key_groups = TILE / (head_dim / VECTOR);
    if (thread < 32) {
        l = warp_sum(l);
        if (thread == 0) {
            sum = l;
        }
    }
    if (key_group < num_key_groups) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            partial[key_group * head_dim + chunk * VECTOR + i] = o[i];
        }
    }
    __syncthreads();  // the sum and all parts are there
    if (thread < head_dim) {
        float total = 0.0f;
        for (int group = 0; group < num_key_groups; group++) {
            total += partial[group * head_dim + thread];
        }
        out[thread] = __float2bfloat16(context > 0 ? total / sum : 0.0f);
    }
}

extern "C" __global__ void flash_decode_attention(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
    const __nv_bfloat16* __restrict__ key_cache, const __nv_bfloat16* __restrict__ value_cache,
    const int* __restrict__ slots, const int* __restrict__ context_lens, int num_sequences, int length,
    int num_heads, int num_kv_heads, int head_dim, float scale) {
    const int sequence = blockIdx.x, head = blockIdx.y;
    const int thread = threadIdx.x;
    const int kv_head = head / (num_heads / num_kv_heads);
    const long long kv_stride = static_cast<long long>(num_kv_heads) * head_dim;  // from one key to the next
    const long long q_start = (static_cast<long long>(sequence) * num_heads + head) * head_dim;
    // s11.2: tile by tile: scores, new maximum, rescaled sums
    __shared__ float query[MAX_HEAD_DIM], probabilities[TILE];  // probabilities hold the scores first
    __shared__ float tile_factor;
    const int context = context_lens[sequence];
    const long long first = slots[sequence] * length * kv_stride + kv_head * head_dim;
    const __nv_bfloat16* keys = key_cache + first;
    const __nv_bfloat16* values = value_cache + first;

    // A thread sums up 8 elements of the output, over every num_key_groups-th key.
    const int chunks = head_dim / VECTOR, num_key_groups = TILE / chunks;
    const int chunk = thread % chunks, key_group = thread / chunks;
    float m = -INFINITY, l = 0.0f, o[VECTOR] = {};  // running maximum, sum (of a lane's keys) and output
    if (thread < head_dim) {
        query[thread] = __bfloat162float(q[q_start + thread]);
    }
    for (int start = 0; start < context; start += TILE) {
        const int tile_keys = min(TILE, context - start);
        __syncthreads();  // the query is there; no thread needs the last tile's probabilities any more
        if (thread < tile_keys) {
            const uint4* key = reinterpret_cast<const uint4*>(keys + (start + thread) * kv_stride);
            probabilities[thread] = dot(query, key, chunks) * scale;
        }
        __syncthreads();  // all scores of the tile are there

        if (thread < 32) {
            const float factor = update_softmax(probabilities, tile_keys, m, l);
            if (thread == 0) {
                tile_factor = factor;
            }
        }
        __syncthreads();  // the probabilities and the factor are there

        if (key_group < num_key_groups) {
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                o[i] *= tile_factor;
            }
            add_values(o, probabilities, values + start * kv_stride + chunk * VECTOR, kv_stride, key_group,
                       num_key_groups, tile_keys);
        }
    }

    write_output(out + q_start, o, l, chunk, key_group, head_dim, context);
}
