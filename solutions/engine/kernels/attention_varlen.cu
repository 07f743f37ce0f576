// attention_varlen: flash_attention over sequences packed one behind the other: out[i, h] = sum over keys j
//            of i's own sequence of p[j] · v[j, g], p = softmax over j of scale · q[i, h] · k[j, g]
//
// out, q     [num_tokens, num_heads, head_dim] bf16, contiguous; out is written
// k, v       [number of keys, num_kv_heads, head_dim] bf16; query head h uses head
//            g = h / (num_heads / num_kv_heads)
// cu_seqlens_q, cu_seqlens_k   [num_sequences + 1] int32: sequence b has the queries cu_seqlens_q[b] …
//            cu_seqlens_q[b + 1] − 1 and likewise its keys; they begin with 0, and a sequence may be empty
// Mask       causal, in each sequence aligned at the bottom right: query i of its L sees the keys
//            0 … S − L + i of its S; none gives zeros
// Launch     launch.toml [attention_varlen], over B, T, Hq, Hkv, D. Suggested: the blocks of flash_attention;
//            each finds its sequence and tile in cu_seqlens_q, as the launch knows only the sum of lengths
// Must hold  head_dim is a multiple of 8, at most 128, so rows begin at multiples of 16 bytes; shared memory
//            does not grow with the lengths; up to 256 sequences cost a block little; masked keys and values,
//            and those of other sequences, count for nothing, NaN too
// Numerics   scores, exponentials and sums stay float32; rounded once to bf16.
#include <cuda_bf16.h>

// s12.1: the tiles, and how rows get there
constexpr int MAX_HEAD_DIM = 128;
constexpr int TILE = 32;            // queries of a block, and keys or values it holds at a time
constexpr int SIDE = 8;             // SIDE x SIDE threads form a block, as in launch.toml
constexpr int SHARE = TILE / SIDE;  // a thread has SHARE queries and SHARE keys: every SIDE-th one
constexpr int PIECES = MAX_HEAD_DIM / (4 * SIDE);  // a thread has so many times 4 elements of the output
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

extern "C" __global__ void attention_varlen(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q, const __nv_bfloat16* __restrict__ k,
    const __nv_bfloat16* __restrict__ v, const int* __restrict__ cu_seqlens_q,
    const int* __restrict__ cu_seqlens_k, int num_sequences, int num_tokens, int num_heads, int num_kv_heads,
    int head_dim, float scale) {
    const int head = blockIdx.y, kv_head = head / (num_heads / num_kv_heads);
    const long long q_stride = static_cast<long long>(num_heads) * head_dim;  // from one query to the next
    const long long kv_stride = static_cast<long long>(num_kv_heads) * head_dim;  // from one key to the next
    // s12.1: tile by tile: scores, new maximum, rescaled sums
    // Sequence b has the blocks from cu_seqlens_q[b] / TILE + b on, always enough for its tiles. Their starts
    // rise with b, so a binary search finds the last one that is not behind this block.
    const int block = blockIdx.x;
    int sequence = 0;
    for (int end = num_sequences; end - sequence > 1;) {
        const int middle = (sequence + end) / 2;
        if (cu_seqlens_q[middle] / TILE + middle <= block) {
            sequence = middle;
        } else {
            end = middle;
        }
    }
    const int q_start = cu_seqlens_q[sequence], L = cu_seqlens_q[sequence + 1] - q_start;
    const int k_start = cu_seqlens_k[sequence], S = cu_seqlens_k[sequence + 1] - k_start;
    const int first = (block - (q_start / TILE + sequence)) * TILE;  // query of the block, in the sequence
    if (first >= L) {
        return;  // a block more than needed
    }
    extern __shared__ float4 tiles[];                 // [2][TILE][head_dim + PADDING] floats
    __shared__ float4 probabilities[TILE][SIDE + 1];  // [key][thread]: those of its four queries
    __shared__ float maxima[TILE][SIDE];              // [query][thread]: the largest of its four scores
    const int x = threadIdx.x, y = threadIdx.y;
    const int width = head_dim + PADDING;
    float* q_tile = reinterpret_cast<float*>(tiles);
    float* kv_tile = q_tile + TILE * width;
    const int num_queries = min(TILE, L - first);
    const int num_keys = S - L + first + num_queries;  // those that the block's last query sees
    // Where the rows of the block's first query begin, in q and out.
    const long long offset = (q_start + first) * q_stride + head * head_dim;
    const long long kv_offset = k_start * kv_stride + kv_head * head_dim;
    const __nv_bfloat16* keys = k + kv_offset;
    const __nv_bfloat16* values = v + kv_offset;

    // The running state of each of this thread's queries: maximum m, sum l (this thread's keys), output o.
    float m[SHARE], l[SHARE] = {}, o[SHARE][PIECES][4] = {};
    for (int i = 0; i < SHARE; i++) {
        m[i] = -INFINITY;
    }
    load_tile(q_tile, q + offset, q_stride, num_queries, head_dim);
    for (int start = 0; start < num_keys; start += TILE) {
        const int tile_keys = min(TILE, num_keys - start);
        __syncthreads();  // no thread reads the last tile of values any more
        load_tile(kv_tile, keys + start * kv_stride, kv_stride, tile_keys, head_dim);
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
            visible[i] = min(tile_keys, S - L + first + y + SIDE * i + 1 - start);
            float maximum = -INFINITY;
#pragma unroll
            for (int j = 0; j < SHARE; j++) {
                scores[i][j] = x + SIDE * j < visible[i] ? scores[i][j] * scale : -INFINITY;
                maximum = fmaxf(maximum, scores[i][j]);
            }
            maxima[y + SIDE * i][x] = maximum;
        }
        __syncthreads();  // all maxima are there; no thread reads the keys any more
        load_tile(kv_tile, values + start * kv_stride, kv_stride, tile_keys, head_dim);

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
                    out[offset + query * q_stride + d + e] = __float2bfloat16(o[i][c][e] * inverse);
                }
            }
        }
    }
}
