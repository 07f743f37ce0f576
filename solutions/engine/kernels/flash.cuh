// FlashAttention's pass over the keys for one tile of queries: what flash_attention and attention_varlen share.
// They differ in where a block finds its tile.
//
// Block      SIDE x SIDE threads. A thread has SHARE queries and SHARE keys of a tile, every SIDE-th one, and
//            PIECES times 4 elements of each of its queries' output
// Shared     [2][TILE][head_dim + PADDING] floats from the launch, and 5.5 KB of attend's own
// Numerics   scores, exponentials and sums stay float32; rounded once to bf16.
#pragma once
#include <cuda_bf16.h>

constexpr int MAX_HEAD_DIM = 128;
constexpr int TILE = 32;            // queries of a block, and keys or values it holds at a time
constexpr int SIDE = 8;             // SIDE x SIDE threads form a block, as in launch.toml
constexpr int SHARE = TILE / SIDE;  // a thread has SHARE queries and SHARE keys: every SIDE-th one
constexpr int PIECES = MAX_HEAD_DIM / (4 * SIDE);  // a thread has this many times 4 elements of the output
constexpr int PADDING = 4;                         // floats behind a row: SIDE rows lie in different banks

// Brings rows to shared memory as float32; zeros follow them. All threads of the block take part.
__device__ void load_tile(float* tile, const __nv_bfloat16* rows, long long stride, int num_rows,
                          int head_dim) {
    for (int d = 8 * threadIdx.x; d < head_dim; d += 8 * SIDE) {
        uint4 vectors[SHARE];  // all requested before the first is used
#pragma unroll
        for (int r = 0; r < SHARE; r++) {
            const int row = threadIdx.y + SIDE * r;
            vectors[r] = make_uint4(0, 0, 0, 0);
            if (row < num_rows) {
                vectors[r] = *reinterpret_cast<const uint4*>(rows + row * stride + d);
            }
        }
#pragma unroll
        for (int r = 0; r < SHARE; r++) {
            // A bf16 number is the upper half of the float32 number of the same value.
            const uint4 pairs = vectors[r];
            float* target = tile + (threadIdx.y + SIDE * r) * (head_dim + PADDING) + d;
            *reinterpret_cast<uint4*>(target) =
                make_uint4(pairs.x << 16, pairs.x & 0xffff0000u, pairs.y << 16, pairs.y & 0xffff0000u);
            *reinterpret_cast<uint4*>(target + 4) =
                make_uint4(pairs.z << 16, pairs.z & 0xffff0000u, pairs.w << 16, pairs.w & 0xffff0000u);
        }
    }
}

// Adds p times one value to the outputs of the thread's queries, from query `first` of the four on.
__device__ __forceinline__ void add_value(float (&o)[SHARE][PIECES][4], const float4& p, const float* value,
                                          int head_dim, int first) {
    const float weights[SHARE] = {p.x, p.y, p.z, p.w};
#pragma unroll
    for (int c = 0; c < PIECES; c++) {
        const int d = 4 * (threadIdx.x + SIDE * c);
        if (d < head_dim) {
            const float4 piece = *reinterpret_cast<const float4*>(value + d);
#pragma unroll
            for (int i = 0; i < SHARE; i++) {
                if (i >= first) {
                    o[i][c][0] += weights[i] * piece.x;
                    o[i][c][1] += weights[i] * piece.y;
                    o[i][c][2] += weights[i] * piece.z;
                    o[i][c][3] += weights[i] * piece.w;
                }
            }
        }
    }
}

// out = softmax(scale · Q · Kᵀ) · V for one head of a tile of 1 … TILE queries, in one pass over tiles of keys, with the
// online softmax of the FlashAttention paper. All threads of the block take part, once.
//
// out, q     where the rows of the tile's first query begin; q_stride elements from one query to the next
// k, v       where the rows of the sequence's first key begin; kv_stride elements from one key to the next
// Mask       query i of the tile sees the keys 0 … num_before + i; none gives zeros
// tiles      [2][TILE][head_dim + PADDING] floats of shared memory
__device__ __forceinline__ void attend(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
                                       const __nv_bfloat16* __restrict__ k,
                                       const __nv_bfloat16* __restrict__ v, long long q_stride,
                                       long long kv_stride, int num_queries, int num_before, int head_dim,
                                       float scale, float* tiles) {
    __shared__ float4 probabilities[TILE][SIDE + 1];  // [key][thread]: those of its four queries
    __shared__ float maxima[TILE][SIDE];              // [query][thread]: the largest of its four scores
    const int x = threadIdx.x, y = threadIdx.y;
    const int width = head_dim + PADDING;
    float* q_tile = tiles;
    float* kv_tile = q_tile + TILE * width;
    const int num_keys = num_before + num_queries;  // those that the last query sees

    // The running state of each of this thread's queries: maximum m, sum l (this thread's keys), output o.
    float m[SHARE], l[SHARE] = {}, o[SHARE][PIECES][4] = {};
    for (int i = 0; i < SHARE; i++) {
        m[i] = -INFINITY;
    }
    load_tile(q_tile, q, q_stride, num_queries, head_dim);
    for (int start = 0; start < num_keys; start += TILE) {
        const int tile_keys = min(TILE, num_keys - start);
        __syncthreads();  // no thread reads the last tile of values any more
        load_tile(kv_tile, k + start * kv_stride, kv_stride, tile_keys, head_dim);
        __syncthreads();  // the queries and keys are there

        // S = scale · Q · Kᵀ, masked; 4 numbers of a row at a time.
        float scores[SHARE][SHARE] = {};
        for (int d = 0; d < head_dim; d += 4) {
            float4 query[SHARE], key[SHARE];
#pragma unroll
            for (int i = 0; i < SHARE; i++) {
                query[i] = *reinterpret_cast<const float4*>(q_tile + (y + SIDE * i) * width + d);
                key[i] = *reinterpret_cast<const float4*>(kv_tile + (x + SIDE * i) * width + d);
            }
#pragma unroll
            for (int i = 0; i < SHARE; i++) {
#pragma unroll
                for (int j = 0; j < SHARE; j++) {
                    scores[i][j] += query[i].x * key[j].x;
                    scores[i][j] += query[i].y * key[j].y;
                    scores[i][j] += query[i].z * key[j].z;
                    scores[i][j] += query[i].w * key[j].w;
                }
            }
        }
        int visible[SHARE];  // keys of this tile that a query sees
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            visible[i] = min(tile_keys, num_before + y + SIDE * i + 1 - start);
            float maximum = -INFINITY;
#pragma unroll
            for (int j = 0; j < SHARE; j++) {
                scores[i][j] = x + SIDE * j < visible[i] ? scores[i][j] * scale : -INFINITY;
                maximum = fmaxf(maximum, scores[i][j]);
            }
            maxima[y + SIDE * i][x] = maximum;
        }
        __syncthreads();  // all maxima are there; no thread reads the keys any more
        load_tile(kv_tile, v + start * kv_stride, kv_stride, tile_keys, head_dim);

        // m_new = max(m, row's maximum); P = exp(S - m_new); l and o shrink by exp(m - m_new).
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            float m_new = m[i];
#pragma unroll
            for (int t = 0; t < SIDE; t++) {
                m_new = fmaxf(m_new, maxima[y + SIDE * i][t]);
            }
            // Where a query has seen no key yet, both are -infinity, and their difference would be NaN.
            const float base = m_new == -INFINITY ? 0.0f : m_new;
            const float factor = expf(m[i] - base);
            m[i] = m_new;
            l[i] *= factor;
#pragma unroll
            for (int j = 0; j < SHARE; j++) {
                scores[i][j] = expf(scores[i][j] - base);
                l[i] += scores[i][j];
            }
#pragma unroll
            for (int c = 0; c < PIECES; c++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    o[i][c][e] *= factor;
                }
            }
        }
#pragma unroll
        for (int j = 0; j < SHARE; j++) {
            probabilities[x + SIDE * j][y] =
                make_float4(scores[0][j], scores[1][j], scores[2][j], scores[3][j]);
        }
        __syncthreads();  // the probabilities and values are there

        // O = O + P · V, without the values that a query does not see: 0 · NaN would be NaN.
        const int common = max(0, visible[0]);  // the thread's later queries see more
        for (int key = 0; key < common; key++) {
            add_value(o, probabilities[key][y], kv_tile + key * width, head_dim, 0);
        }
        for (int key = common; key < tile_keys; key++) {
            int blind = 0;
#pragma unroll
            for (int i = 0; i < SHARE; i++) {
                blind += key >= visible[i];
            }
            add_value(o, probabilities[key][y], kv_tile + key * width, head_dim, blind);
        }
    }

    // Each thread of a row has summed its own keys: add those up, then divide once. Since the last barrier no thread reads
    // the maxima.
    for (int i = 0; i < SHARE; i++) {
        maxima[y + SIDE * i][x] = l[i];
    }
    __syncthreads();  // the sums are there
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        const int query = y + SIDE * i;
        float sum = 0.0f;
        for (int t = 0; t < SIDE; t++) {
            sum += maxima[query][t];
        }
        if (query >= num_queries) {
            continue;
        }
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
        for (int c = 0; c < PIECES; c++) {
            const int d = 4 * (x + SIDE * c);
            if (d < head_dim) {
                for (int e = 0; e < 4; e++) {
                    out[query * q_stride + d + e] = __float2bfloat16(o[i][c][e] * inverse);
                }
            }
        }
    }
}
