// An alternative solution, written from the handouts alone.
// flash_attention: the handout's plan. 128 threads have 16 queries, 32 keys and 32 values in shared memory as float32.
// Four scores a thread; eight threads a query for maximum and exponentials; 16 numbers of the output a thread.
#include <cuda_bf16.h>

constexpr int THREADS = 128, QUERIES = 16, KEYS = 32;
constexpr int LANES = THREADS / QUERIES;  // threads of a query
constexpr int MAX_PARTS = 128 / LANES;    // numbers of the output that a thread has at most

// num_rows rows of head_dim numbers; neighbouring threads bring neighbouring numbers.
__device__ void bring(float* tile, const __nv_bfloat16* rows, long long step, int num_rows, int head_dim) {
    for (int i = threadIdx.x; i < num_rows * head_dim; i += THREADS) {
        tile[i] = __bfloat162float(rows[i / head_dim * step + i % head_dim]);
    }
}

extern "C" __global__ void flash_attention(__nv_bfloat16* __restrict__ out,
                                           const __nv_bfloat16* __restrict__ q,
                                           const __nv_bfloat16* __restrict__ k,
                                           const __nv_bfloat16* __restrict__ v, int L, int S, int num_heads,
                                           int num_kv_heads, int head_dim, float scale) {
    extern __shared__ float queries[];  // [QUERIES][head_dim], then keys and values [KEYS][head_dim]
    __shared__ float scores[QUERIES][KEYS + 1];
    float* keys = queries + QUERIES * head_dim;
    float* values = keys + KEYS * head_dim;
    const int head = blockIdx.y, first_query = blockIdx.x * QUERIES, count = min(QUERIES, L - first_query);
    const long long q_step = static_cast<long long>(num_heads) * head_dim;
    const long long kv_step = static_cast<long long>(num_kv_heads) * head_dim;
    const long long q_start = first_query * q_step + head * head_dim;
    const long long kv_start = head / (num_heads / num_kv_heads) * head_dim;
    const int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int seen = row < count ? S - L + first_query + row + 1 : 0;  // keys that this thread's query sees
    const int last_seen = S - L + first_query + count;                 // keys that the last query sees
    bring(queries, q + q_start, q_step, count, head_dim);

    float largest = -INFINITY, total = 0.0f;  // of this thread's query, the same in its eight threads
    float output[MAX_PARTS] = {};
    for (int start = 0; start < last_seen; start += KEYS) {
        const int num_keys = min(KEYS, last_seen - start);
        __syncthreads();  // all have done with the last tile
        bring(keys, k + kv_start + start * kv_step, kv_step, num_keys, head_dim);
        bring(values, v + kv_start + start * kv_step, kv_step, num_keys, head_dim);
        __syncthreads();  // the tile is there, and at first the queries

        const int here = min(num_keys, max(0, seen - start));  // keys of the tile that the query sees
        float tile_largest = -INFINITY;
        for (int j = lane; j < here; j += LANES) {
            float product = 0.0f;
            for (int d = 0; d < head_dim; d++) {
                product += queries[row * head_dim + d] * keys[j * head_dim + d];
            }
            scores[row][j] = scale * product;
            tile_largest = fmaxf(tile_largest, scores[row][j]);
        }
        for (int distance = LANES / 2; distance > 0; distance /= 2) {
            tile_largest = fmaxf(tile_largest, __shfl_xor_sync(0xffffffffu, tile_largest, distance));
        }
        const float new_largest = fmaxf(largest, tile_largest);
        float sum = 0.0f;
        for (int j = lane; j < here; j += LANES) {
            scores[row][j] = expf(scores[row][j] - new_largest);
            sum += scores[row][j];
        }
        for (int distance = LANES / 2; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        }
        // A query that has seen nothing yet stays in its state.
        const float factor = new_largest == -INFINITY ? 1.0f : expf(largest - new_largest);
        largest = new_largest;
        total = total * factor + sum;
        __syncwarp();  // a query's threads are in one warp: its exponentials are written
#pragma unroll
        for (int part = 0; part < MAX_PARTS; part++) {
            const int d = lane + LANES * part;
            if (d < head_dim) {
                output[part] *= factor;
                for (int j = 0; j < here; j++) {
                    output[part] += scores[row][j] * values[j * head_dim + d];
                }
            }
        }
    }
    if (row < count) {
#pragma unroll
        for (int part = 0; part < MAX_PARTS; part++) {
            const int d = lane + LANES * part;
            if (d < head_dim) {
                out[q_start + row * q_step + d] = __float2bfloat16(seen > 0 ? output[part] / total : 0.0f);
            }
        }
    }
}
