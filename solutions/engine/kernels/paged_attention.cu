// paged_attention: out[b, h] = sum over positions j of p[j] · value[j, g], p = softmax over j of
//                  scale · q[b, h] · key[j, g], j = 0 … context_lens[b] − 1; position j of sequence b is row
//                  j % block_size of block block_tables[b, j / block_size] of the caches
//
// out, q         [num_sequences, num_heads, head_dim] bf16, contiguous; out is written
// key_cache, value_cache   [num_blocks, block_size, num_kv_heads, head_dim] bf16; query head h uses head
//                g = h / (num_heads / num_kv_heads). Behind a context they hold anything, NaN too: do not read it
// block_tables   [num_sequences, table_width] int32, meaningless behind the blocks that a context needs
// context_lens   [num_sequences] int32; 0 gives zeros
// Launch         launch.toml [paged_attention], over B, M, block_size, Hq, Hkv, D. Suggested: as
//                flash_decode_attention, a block per (sequence, query head); one pass over tiles of keys with
//                the online softmax; a thread per key for scores, then the threads share out the values
// Must hold      head_dim is a multiple of 8, at most 128, so rows begin at multiples of 16 bytes; a pool may
//                have more than 2^31 elements: compute addresses in 64 bits; shared memory does not grow with
//                the context
// Numerics       scores, exponentials and sums stay float32; rounded once to bf16.
#include <cuda_bf16.h>

#include "warp.cuh"

// s15.1: sizes of a block's work, and what a thread does with 16 bytes of a key or a value
// Faster than the suggested plan: a block has several query heads of one key/value head, which share what is loaded.
constexpr int HEADS = 4;             // query heads of a block, one for each of its warps
constexpr int THREADS = 32 * HEADS;  // of a block, as in launch.toml
constexpr int TILE = THREADS;        // keys of a tile, one for each thread
constexpr int VECTOR = 8;            // bf16 numbers in 16 bytes, the widest load
constexpr int BATCH = 8;             // vectors that a thread asks for before it waits for the first of them
constexpr int MAX_HEAD_DIM = 128;

__device__ __forceinline__ void unpack(const uint4& vector, float (&numbers)[VECTOR]) {
    const __nv_bfloat16* elements = reinterpret_cast<const __nv_bfloat16*>(&vector);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        numbers[i] = __bfloat162float(elements[i]);
    }
}

// dots[h] += query of head h · key, over one vector of both
__device__ __forceinline__ void add_products(float (&dots)[HEADS], const uint4& key,
                                             const float (*queries)[HEADS]) {
    float numbers[VECTOR];
    unpack(key, numbers);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            dots[h] += queries[i][h] * numbers[i];
        }
    }
}

// sums[h] += weight of head h · value, over one vector of both
__device__ __forceinline__ void add_weighted(float (&sums)[HEADS][VECTOR], const uint4& value,
                                             const float (&weights)[HEADS]) {
    float numbers[VECTOR];
    unpack(value, numbers);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            sums[h][i] += weights[h] * numbers[i];
        }
    }
}

// Brings the queries to shared memory. Heads that the block does not have are zeros. The scale is multiplied in here once,
// not once a key.
__device__ __forceinline__ void load_queries(float (*queries)[HEADS], const __nv_bfloat16* q, int heads,
                                             int head_dim, float scale) {
    for (int d = threadIdx.x; d < head_dim; d += THREADS) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            queries[d][h] = h < heads ? scale * __bfloat162float(q[h * head_dim + d]) : 0.0f;
        }
    }
}

// scores[h] = query of head h · key, a batch of vectors at a time
__device__ __forceinline__ void score_key(float (&scores)[HEADS], const uint4* key,
                                          const float (*queries)[HEADS], int chunks) {
    float dots[HEADS] = {};
    for (int first = 0; first < chunks; first += BATCH) {
        uint4 vectors[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (first + b < chunks) {
                vectors[b] = key[first + b];
            }
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (first + b < chunks) {
                add_products(dots, vectors[b], queries + (first + b) * VECTOR);
            }
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        scores[h] = dots[h];
    }
}

// The online softmax of one head: the new maximum, then exponentials in the place of the scores. What was summed before
// shrinks by the factor that is returned. All lanes of a warp take part; each adds its own keys to its total.
__device__ __forceinline__ float update_softmax(float (*weights)[HEADS], int head, int keys, float& maximum,
                                                float& total) {
    const int lane = threadIdx.x % 32;
    float largest = maximum;
    for (int key = lane; key < keys; key += 32) {
        largest = fmaxf(largest, weights[key][head]);
    }
    largest = warp_max(largest);
    const float factor = expf(maximum - largest);
    maximum = largest;
    total *= factor;
    for (int key = lane; key < keys; key += 32) {
        weights[key][head] = expf(weights[key][head] - maximum);
        total += weights[key][head];
    }
    return factor;
}

// sums[h] *= factor of head h, now that its exponentials of earlier tiles are too large
__device__ __forceinline__ void rescale(float (&sums)[HEADS][VECTOR], const float* factors, int heads) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        const float factor = h < heads ? factors[h] : 0.0f;
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            sums[h][i] *= factor;
        }
    }
}

// sums[h] += weight of head h · value, over vector `chunk` of every step-th value of the tile from `begin` on, a batch at
// a time; rows[key] is where a key's row begins
__device__ __forceinline__ void add_values(float (&sums)[HEADS][VECTOR], const __nv_bfloat16* values,
                                           int chunk, const long long* rows, const float (*weights)[HEADS],
                                           int begin, int step, int keys) {
    // The compiler would not unroll this, which costs 6 % of the kernel's time on an H200.
#pragma unroll 2
    for (int first = begin; first < keys; first += BATCH * step) {
        uint4 vectors[BATCH];
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int key = first + b * step;
            if (key < keys) {
                vectors[b] = reinterpret_cast<const uint4*>(values + rows[key])[chunk];
            }
        }
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            const int key = first + b * step;
            if (key < keys) {
                add_weighted(sums, vectors[b], weights[key]);
            }
        }
    }
}

// out = sum of the threads' sums / sum of the lanes' totals; zeros for an empty context. The sums meet in shared memory,
// the totals in registers. All threads of the block take part.
__device__ __forceinline__ void write_output(__nv_bfloat16* out, const float (&sums)[HEADS][VECTOR],
                                             float total, int chunk, int key_group, int heads, int head_dim,
                                             int context) {
    __shared__ __align__(16) float partial[THREADS * HEADS * VECTOR];  // [key group][head][head_dim]
    __shared__ float totals[HEADS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int num_key_groups = THREADS / (head_dim / VECTOR);
    if (key_group < num_key_groups) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float* sum = partial + (key_group * HEADS + h) * head_dim + chunk * VECTOR;
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                sum[i] = sums[h][i];
            }
        }
    }
    if (warp < heads) {
        total = warp_sum(total);
        if (lane == 0) {
            totals[warp] = total;
        }
    }
    __syncthreads();  // all sums and totals are written
    for (int i = threadIdx.x; i < heads * head_dim; i += THREADS) {
        float sum = 0.0f;
        for (int g = 0; g < num_key_groups; g++) {
            sum += partial[g * HEADS * head_dim + i];
        }
        out[i] = __float2bfloat16(context > 0 ? sum / totals[i / head_dim] : 0.0f);
    }
}

extern "C" __global__ void paged_attention(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
    const __nv_bfloat16* __restrict__ key_cache, const __nv_bfloat16* __restrict__ value_cache,
    const int* __restrict__ block_tables, const int* __restrict__ context_lens, int num_sequences,
    int table_width, int block_size, int num_heads, int num_kv_heads, int head_dim, float scale) {
    const int sequence = blockIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // s15.1: tile by tile: scores, new maximum, rescaled sums
    __shared__ __align__(16) float queries[MAX_HEAD_DIM][HEADS];  // heads innermost, as a thread needs them
    __shared__ __align__(16) float weights[TILE][HEADS];          // scores, then exponentials
    __shared__ long long rows[TILE];  // where each key of the tile begins in its cache
    __shared__ float factors[HEADS];  // what rescales earlier sums
    const int group = num_heads / num_kv_heads;
    const int parts = (group + HEADS - 1) / HEADS;  // blocks that share out the query heads of a kv head
    const int kv_head = blockIdx.y / parts;
    const int first_head = kv_head * group + blockIdx.y % parts * HEADS;
    const int heads = min(HEADS, (kv_head + 1) * group - first_head);
    const int context = context_lens[sequence];
    const int* table = block_tables + static_cast<long long>(sequence) * table_width;
    const long long q_start = (static_cast<long long>(sequence) * num_heads + first_head) * head_dim;
    load_queries(queries, q + q_start, heads, head_dim, scale);

    // A thread sums one vector of the output, for all heads, over every num_key_groups-th key of a tile.
    const int chunks = head_dim / VECTOR, num_key_groups = THREADS / chunks;
    const int chunk = threadIdx.x % chunks, key_group = threadIdx.x / chunks;
    float sums[HEADS][VECTOR] = {};
    float maximum = -INFINITY, total = 0.0f;  // of the warp's head; the total of what this lane added

    for (int start = 0; start < context; start += TILE) {
        const int keys = min(TILE, context - start);
        __syncthreads();  // the queries are written; no thread needs the last tile's weights and rows any more
        if (threadIdx.x < keys) {
            const int position = start + threadIdx.x;
            const long long block = table[position / block_size];
            const long long slot = block * block_size + position % block_size;
            const long long row = (slot * num_kv_heads + kv_head) * head_dim;
            score_key(weights[threadIdx.x], reinterpret_cast<const uint4*>(key_cache + row), queries, chunks);
            rows[threadIdx.x] = row;
        }
        __syncthreads();  // all scores of the tile are written

        // Warp h does head h.
        if (warp < heads) {
            const float factor = update_softmax(weights, warp, keys, maximum, total);
            if (lane == 0) {
                factors[warp] = factor;
            }
        }
        __syncthreads();  // all exponentials and factors are written

        if (key_group < num_key_groups) {
            rescale(sums, factors, heads);
            add_values(sums, value_cache, chunk, rows, weights, key_group, num_key_groups, keys);
        }
    }

    write_output(out + q_start, sums, total, chunk, key_group, heads, head_dim, context);
}
