// FlashAttention's pass over the keys for one tile of queries: what flash_attention and attention_varlen share.
// They differ in where a block finds its tile.
//
// Block      SIDE x SIDE threads. A thread has SHARE queries and SHARE keys of a tile, every SIDE-th one, and
//            PIECES times 4 elements of each of its queries' output
// Shared     [2][TILE][head_dim + PADDING] floats from the launch, and 5.5 KB of attend's own
// Numerics   scores, exponentials and sums stay float32; rounded once to bf16.
#pragma once
#include <cuda_bf16.h>

// s11.1: the tiles, how rows get there, and the pass over the keys
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

// What a thread knows of its queries after the tiles so far.
struct Running {
    float m[SHARE];             // the largest score
    float l[SHARE];             // the sum of exp(score - m), over this thread's keys
    float o[SHARE][PIECES][4];  // the sum of exp(score - m) · value
};

// scores[i][j] += query i · key j; 4 numbers of a row at a time
__device__ __forceinline__ void add_products(float (&scores)[SHARE][SHARE], const float* q_tile,
                                             const float* k_tile, int head_dim) {
    const int width = head_dim + PADDING;
    for (int d = 0; d < head_dim; d += 4) {
        float4 query[SHARE], key[SHARE];
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            query[i] = *reinterpret_cast<const float4*>(q_tile + (threadIdx.y + SIDE * i) * width + d);
            key[i] = *reinterpret_cast<const float4*>(k_tile + (threadIdx.x + SIDE * i) * width + d);
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
}

// Scales the scores of the keys that query i sees, the first visible[i] of the tile, and makes the others -infinity.
// maxima[query][thread] = the largest of the thread's scores.
__device__ __forceinline__ void mask(float (&scores)[SHARE][SHARE], float (*maxima)[SIDE],
                                     const int (&visible)[SHARE], float scale) {
    const int x = threadIdx.x, y = threadIdx.y;
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        float maximum = -INFINITY;
#pragma unroll
        for (int j = 0; j < SHARE; j++) {
            scores[i][j] = x + SIDE * j < visible[i] ? scores[i][j] * scale : -INFINITY;
            maximum = fmaxf(maximum, scores[i][j]);
        }
        maxima[y + SIDE * i][x] = maximum;
    }
}

// m_new = max(m, row's maximum); the scores S become P = exp(S - m_new); l and o shrink by exp(m - m_new).
__device__ __forceinline__ void update_softmax(Running& running, float (&scores)[SHARE][SHARE],
                                               const float (*maxima)[SIDE]) {
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        float m_new = running.m[i];
#pragma unroll
        for (int t = 0; t < SIDE; t++) {
            m_new = fmaxf(m_new, maxima[threadIdx.y + SIDE * i][t]);
        }
        // Where a query has seen no key yet, both are -infinity, and their difference would be NaN.
        const float base = m_new == -INFINITY ? 0.0f : m_new;
        const float factor = expf(running.m[i] - base);
        running.m[i] = m_new;
        running.l[i] *= factor;
#pragma unroll
        for (int j = 0; j < SHARE; j++) {
            scores[i][j] = expf(scores[i][j] - base);
            running.l[i] += scores[i][j];
        }
#pragma unroll
        for (int c = 0; c < PIECES; c++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                running.o[i][c][e] *= factor;
            }
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

// O = O + P · V, without the values that a query does not see: 0 · NaN would be NaN.
__device__ __forceinline__ void add_values(float (&o)[SHARE][PIECES][4],
                                           const float4 (*probabilities)[SIDE + 1], const float* v_tile,
                                           const int (&visible)[SHARE], int tile_keys, int head_dim) {
    const int width = head_dim + PADDING;
    const int common = max(0, visible[0]);  // the thread's later queries see more
    for (int key = 0; key < common; key++) {
        add_value(o, probabilities[key][threadIdx.y], v_tile + key * width, head_dim, 0);
    }
    for (int key = common; key < tile_keys; key++) {
        int blind = 0;
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            blind += key >= visible[i];
        }
        add_value(o, probabilities[key][threadIdx.y], v_tile + key * width, head_dim, blind);
    }
}

// out = o / l, where sums[query] has the l of each of the query's threads
__device__ __forceinline__ void write_output(__nv_bfloat16* out, const float (&o)[SHARE][PIECES][4],
                                             const float (*sums)[SIDE], long long q_stride, int num_queries,
                                             int head_dim) {
#pragma unroll
    for (int i = 0; i < SHARE; i++) {
        const int query = threadIdx.y + SIDE * i;
        float sum = 0.0f;
        for (int t = 0; t < SIDE; t++) {
            sum += sums[query][t];
        }
        if (query >= num_queries) {
            continue;
        }
        const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
        for (int c = 0; c < PIECES; c++) {
            const int d = 4 * (threadIdx.x + SIDE * c);
            if (d < head_dim) {
                for (int e = 0; e < 4; e++) {
                    out[query * q_stride + d + e] = __float2bfloat16(o[i][c][e] * inverse);
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
    float* q_tile = tiles;
    float* kv_tile = q_tile + TILE * (head_dim + PADDING);
    const int num_keys = num_before + num_queries;  // those that the last query sees

    Running running = {};
    for (int i = 0; i < SHARE; i++) {
        running.m[i] = -INFINITY;
    }
    load_tile(q_tile, q, q_stride, num_queries, head_dim);
    for (int start = 0; start < num_keys; start += TILE) {
        const int tile_keys = min(TILE, num_keys - start);
        __syncthreads();  // no thread reads the last tile of values any more
        load_tile(kv_tile, k + start * kv_stride, kv_stride, tile_keys, head_dim);
        __syncthreads();  // the queries and keys are there

        // S = scale · Q · Kᵀ, masked
        float scores[SHARE][SHARE] = {};
        add_products(scores, q_tile, kv_tile, head_dim);
        int visible[SHARE];  // keys of this tile that a query sees
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
            visible[i] = min(tile_keys, num_before + y + SIDE * i + 1 - start);
        }
        mask(scores, maxima, visible, scale);
        __syncthreads();  // all maxima are there; no thread reads the keys any more
        load_tile(kv_tile, v + start * kv_stride, kv_stride, tile_keys, head_dim);

        // P = exp(S - m_new)
        update_softmax(running, scores, maxima);
#pragma unroll
        for (int j = 0; j < SHARE; j++) {
            probabilities[x + SIDE * j][y] =
                make_float4(scores[0][j], scores[1][j], scores[2][j], scores[3][j]);
        }
        __syncthreads();  // the probabilities and values are there
        add_values(running.o, probabilities, kv_tile, visible, tile_keys, head_dim);
    }

    // Each thread of a row has summed its own keys. Since the last barrier no thread reads the maxima.
    for (int i = 0; i < SHARE; i++) {
        maxima[y + SIDE * i][x] = running.l[i];
    }
    __syncthreads();  // the sums are there
    write_output(out, running.o, maxima, q_stride, num_queries, head_dim);
}
