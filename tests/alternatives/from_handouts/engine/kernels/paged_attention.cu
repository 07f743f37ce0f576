// An alternative solution, written from the handouts alone.
// paged_attention: a block of threads per (sequence, query head), whose warps take the blocks of the cache in turn: a
// lane scores a key, then all lanes share the numbers of the values. Each warp has a running state; they are merged.
#include <cuda_bf16.h>

constexpr unsigned ALL_LANES = 0xffffffffu;  // the mask of a shuffle in which a whole warp takes part
constexpr int WARPS = 8;                     // of a block, as in launch.toml
constexpr int MAX_HEAD_DIM = 128, MAX_PARTS = MAX_HEAD_DIM / 32;

extern "C" __global__ void paged_attention(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
    const __nv_bfloat16* __restrict__ key_cache, const __nv_bfloat16* __restrict__ value_cache,
    const int* __restrict__ block_tables, const int* __restrict__ context_lens, int num_sequences,
    int table_width, int block_size, int num_heads, int num_kv_heads, int head_dim, float scale) {
    __shared__ float query[MAX_HEAD_DIM], outputs[WARPS][MAX_HEAD_DIM], maxima[WARPS], totals[WARPS];
    const int head = blockIdx.x % num_heads, sequence = blockIdx.x / num_heads;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int kv_head = head / (num_heads / num_kv_heads), context = context_lens[sequence];
    const long long key_step = static_cast<long long>(num_kv_heads) * head_dim;
    const long long q_row = static_cast<long long>(blockIdx.x) * head_dim;
    for (int d = threadIdx.x; d < head_dim; d += blockDim.x) {
        query[d] = __bfloat162float(q[q_row + d]);
    }
    __syncthreads();  // every warp reads the query

    float largest = -INFINITY, total = 0.0f, sums[MAX_PARTS] = {};
    for (int entry = warp; entry * block_size < context; entry += WARPS) {
        const long long block = block_tables[static_cast<long long>(sequence) * table_width + entry];
        const int filled = min(block_size, context - entry * block_size);
        for (int first = 0; first < filled; first += 32) {
            const long long start = (block * block_size + first) * key_step + kv_head * head_dim;
            const int count = min(32, filled - first);
            float score = -INFINITY;
            if (lane < count) {
                score = 0.0f;
                for (int d = 0; d < head_dim; d++) {
                    score += query[d] * __bfloat162float(key_cache[start + lane * key_step + d]);
                }
                score *= scale;
            }
            float new_largest = fmaxf(largest, score);
            for (int distance = 16; distance > 0; distance /= 2) {
                new_largest = fmaxf(new_largest, __shfl_xor_sync(ALL_LANES, new_largest, distance));
            }
            const float rescale = expf(largest - new_largest), weight = expf(score - new_largest);
            largest = new_largest;
            total = total * rescale + weight;  // of this lane's keys
#pragma unroll
            for (int part = 0; part < MAX_PARTS; part++) {
                sums[part] *= rescale;
            }
            for (int j = 0; j < count; j++) {
                const float its_weight = __shfl_sync(ALL_LANES, weight, j);
                const __nv_bfloat16* value = value_cache + start + j * key_step;
#pragma unroll
                for (int part = 0; part < MAX_PARTS; part++) {
                    if (lane + 32 * part < head_dim) {
                        sums[part] += its_weight * __bfloat162float(value[lane + 32 * part]);
                    }
                }
            }
        }
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        total += __shfl_xor_sync(ALL_LANES, total, distance);
    }
    if (lane == 0) {
        maxima[warp] = largest;
        totals[warp] = total;
    }
#pragma unroll
    for (int part = 0; part < MAX_PARTS; part++) {
        outputs[warp][lane + 32 * part] = sums[part];
    }
    __syncthreads();  // every warp's state is written before they are merged
    for (int d = threadIdx.x; d < head_dim; d += blockDim.x) {
        float maximum = -INFINITY, sum = 0.0f, denominator = 0.0f;
        for (int w = 0; w < WARPS; w++) {
            maximum = fmaxf(maximum, maxima[w]);
        }
        for (int w = 0; w < WARPS && context > 0; w++) {
            const float factor = expf(maxima[w] - maximum);
            sum += factor * outputs[w][d];
            denominator += factor * totals[w];
        }
        out[q_row + d] = __float2bfloat16(context > 0 ? sum / denominator : 0.0f);
    }
}
