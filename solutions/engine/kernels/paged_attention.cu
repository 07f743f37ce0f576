// paged_attention: out[b, h] = sum over positions j of p[j] · value[j, g], p = softmax over j of
//                  scale · q[b, h] · key[j, g], j = 0 … context_lens[b] − 1; position j of sequence b is row
//                  j % block_size of block block_tables[b, j / block_size] of the caches
//
// out, q         [num_sequences, num_heads, head_dim] bf16, contiguous; out is written
// key_cache, value_cache   [num_blocks, block_size, num_kv_heads, head_dim] bf16; query head h uses head
//                g = h / (num_heads / num_kv_heads). Behind a context they hold anything, NaN too: do not read it
// block_tables   [num_sequences, table_width] int32, meaningless behind the blocks that a context needs
// context_lens   [num_sequences] int32; 0 gives zeros
// Launch         launch.toml [paged_attention], over B, M, block_size, Hq, Hkv, D. Suggested: a block per
//                (sequence, key/value head), so that its query heads share what is loaded; one pass over tiles
//                of keys with the online softmax; a thread per key for scores, then per 8 elements for values
// Must hold      head_dim is a multiple of 8, at most 128, so rows begin at multiples of 16 bytes; a pool may
//                have more than 2^31 elements: compute addresses in 64 bits; shared memory does not grow with
//                the context
// Numerics       scores, exponentials and sums stay float32; rounded once to bf16.
#include <cuda_bf16.h>

constexpr unsigned ALL_LANES = 0xffffffffu;  // the mask of a shuffle in which a whole warp takes part
constexpr int MAX_HEAD_DIM = 128;
// solution s15.1: constants and helpers of the tiles
constexpr int HEADS = 4;             // query heads of a block, as many as it has warps
constexpr int THREADS = 32 * HEADS;  // of a block, as in launch.toml
constexpr int TILE = THREADS;        // keys of a tile: one for each thread
constexpr int VECTOR = 8;            // bf16 numbers in 16 bytes, the widest load

// The 8 numbers of a vector; a bf16 number is the upper half of the float32 number of the same value.
__device__ void unpack(const uint4& vector, float (&numbers)[VECTOR]) {
    const unsigned pairs[VECTOR / 2] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < VECTOR / 2; i++) {
        numbers[2 * i] = __uint_as_float(pairs[i] << 16);
        numbers[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
}
// end solution

extern "C" __global__ void paged_attention(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
    const __nv_bfloat16* __restrict__ key_cache, const __nv_bfloat16* __restrict__ value_cache,
    const int* __restrict__ block_tables, const int* __restrict__ context_lens, int num_sequences,
    int table_width, int block_size, int num_heads, int num_kv_heads, int head_dim, float scale) {
    const int sequence = blockIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // solution s15.1: tile by tile scores, online softmax, weighted sum; then the sum over the threads
    __shared__ float queries[HEADS * MAX_HEAD_DIM];      // [head][head_dim]
    __shared__ float weights[TILE][HEADS];               // scores, then exponentials
    __shared__ long long rows[TILE];                     // where each key of the tile begins in its cache
    __shared__ float rescale[HEADS], totals[HEADS];      // per head: factor of what is summed so far; sum
    __shared__ float partial[THREADS * HEADS * VECTOR];  // [key group][head][head_dim]
    const int group = num_heads / num_kv_heads;
    const int parts = (group + HEADS - 1) / HEADS;  // blocks that share out the query heads of a kv head
    const int kv_head = blockIdx.y / parts;
    const int first_head = kv_head * group + blockIdx.y % parts * HEADS;
    const int heads = min(HEADS, (kv_head + 1) * group - first_head);
    const int context = context_lens[sequence];
    const long long q_start = (static_cast<long long>(sequence) * num_heads + first_head) * head_dim;
    const int* table = block_tables + static_cast<long long>(sequence) * table_width;

    // A thread sums 8 elements of the output over every num_key_groups-th key of a tile.
    const int chunks = head_dim / VECTOR, num_key_groups = THREADS / chunks;
    const int chunk = threadIdx.x % chunks, key_group = threadIdx.x / chunks;
    float sums[HEADS][VECTOR] = {};
    float maximum = -INFINITY, total = 0.0f;  // of the head of this warp; the total is this lane's share

    for (int i = threadIdx.x; i < HEADS * head_dim; i += THREADS) {
        queries[i] = i < heads * head_dim ? __bfloat162float(q[q_start + i]) * scale : 0.0f;
    }
    for (int start = 0; start < context; start += TILE) {
        const int keys = min(TILE, context - start);
        __syncthreads();  // the queries are there; no thread needs the last tile's weights and rows any more
        if (threadIdx.x < keys) {
            const int position = start + threadIdx.x;
            const long long slot =
                static_cast<long long>(table[position / block_size]) * block_size + position % block_size;
            const long long row = (slot * num_kv_heads + kv_head) * head_dim;
            const uint4* key = reinterpret_cast<const uint4*>(key_cache + row);
            float dots[HEADS] = {};
#pragma unroll 4
            for (int c = 0; c < chunks; c++) {
                float numbers[VECTOR];
                const uint4 vector = key[c];
                unpack(vector, numbers);
#pragma unroll
                for (int h = 0; h < HEADS; h++) {
#pragma unroll
                    for (int i = 0; i < VECTOR; i++) {
                        dots[h] += queries[h * head_dim + c * VECTOR + i] * numbers[i];
                    }
                }
            }
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                weights[threadIdx.x][h] = dots[h];
            }
            rows[threadIdx.x] = row;
        }
        __syncthreads();  // all scores of the tile are there

        if (warp < heads) {  // warp h does the softmax of head h
            float largest = maximum;
            for (int key = lane; key < keys; key += 32) {
                largest = fmaxf(largest, weights[key][warp]);
            }
            for (int distance = 16; distance > 0; distance /= 2) {
                largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, distance));
            }
            const float factor = expf(maximum - largest);
            maximum = largest;
            total *= factor;
            for (int key = lane; key < keys; key += 32) {
                weights[key][warp] = expf(weights[key][warp] - maximum);
                total += weights[key][warp];
            }
            if (lane == 0) {
                rescale[warp] = factor;
            }
        }
        __syncthreads();  // all exponentials and factors are there

        if (key_group < num_key_groups) {
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
#pragma unroll
                for (int i = 0; i < VECTOR; i++) {
                    sums[h][i] *= rescale[h];
                }
            }
#pragma unroll 4
            for (int key = key_group; key < keys; key += num_key_groups) {
                float numbers[VECTOR];
                const uint4 vector = reinterpret_cast<const uint4*>(value_cache + rows[key])[chunk];
                unpack(vector, numbers);
#pragma unroll
                for (int h = 0; h < HEADS; h++) {
#pragma unroll
                    for (int i = 0; i < VECTOR; i++) {
                        sums[h][i] += weights[key][h] * numbers[i];
                    }
                }
            }
        }
    }

    // The key groups' sums meet in shared memory, the lanes' totals in registers.
    for (int distance = 16; distance > 0; distance /= 2) {
        total += __shfl_xor_sync(ALL_LANES, total, distance);
    }
    if (lane == 0) {
        totals[warp] = total;
    }
    if (key_group < num_key_groups) {
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                partial[(key_group * HEADS + h) * head_dim + chunk * VECTOR + i] = sums[h][i];
            }
        }
    }
    __syncthreads();  // all partial sums and totals are there
    for (int i = threadIdx.x; i < heads * head_dim; i += THREADS) {
        float sum = 0.0f;
        for (int g = 0; g < num_key_groups; g++) {
            sum += partial[g * HEADS * head_dim + i];
        }
        out[q_start + i] = __float2bfloat16(context > 0 ? sum / totals[i / head_dim] : 0.0f);
    }
    // end solution
}
