// Alternative: a block per (query head, sequence), whose warps take 32 positions each in turn, with a state of their
// own: a lane has a key, found through the block table, then a pair of numbers of the output (two where a head is
// longer than 64). A position's block need not be the one of its neighbour. The warps' states are merged at the end.
#include <cuda_bf16.h>

constexpr int WARPS = 4;  // of a block, as in launch.toml
constexpr int PAIRS = 2;  // pairs of numbers that a lane has at most: head_dim is at most 128

__device__ float warp_max(float value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
    }
    return value;
}

__device__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, distance);
    }
    return value;
}

__device__ float dot8(const float* query, const uint4& key) {
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&key);
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        sum += query[2 * i] * __low2float(pairs[i]) + query[2 * i + 1] * __high2float(pairs[i]);
    }
    return sum;
}

extern "C" __global__ void paged_attention(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
    const __nv_bfloat16* __restrict__ key_cache, const __nv_bfloat16* __restrict__ value_cache,
    const int* __restrict__ block_tables, const int* __restrict__ context_lens, int num_sequences,
    int table_width, int block_size, int num_heads, int num_kv_heads, int head_dim, float scale) {
    __shared__ float query[128], weights[WARPS][32], maxima[WARPS], sums[WARPS], outputs[WARPS][128];
    __shared__ long long rows[WARPS][32];
    const int head = blockIdx.x, sequence = blockIdx.y, lane = threadIdx.x, warp = threadIdx.y;
    const int kv_head = head / (num_heads / num_kv_heads), context = context_lens[sequence];
    const int* table = block_tables + (long long)sequence * table_width;
    const long long q_row = ((long long)sequence * num_heads + head) * head_dim;
    const int thread = warp * 32 + lane;
    if (thread < head_dim) query[thread] = __bfloat162float(q[q_row + thread]);
    __syncthreads();  // the query is written

    float maximum = -INFINITY, sum = 0.0f, output[2 * PAIRS] = {};
    for (int first = 32 * warp; first < context; first += 32 * WARPS) {
        const int position = first + lane, count = min(32, context - first);
        float score = -INFINITY;
        if (position < context) {
            const long long block = table[position / block_size];
            const long long row =
                ((block * block_size + position % block_size) * num_kv_heads + kv_head) * head_dim;
            score = 0.0f;
            for (int d = 0; d < head_dim; d += 8) {
                const uint4 key = *reinterpret_cast<const uint4*>(key_cache + row + d);
                score += dot8(query + d, key);
            }
            score *= scale;
            rows[warp][lane] = row;
        }
        const float largest = fmaxf(maximum, warp_max(score));
        const float factor = expf(maximum - largest), weight = expf(score - largest);
        maximum = largest;
        sum = sum * factor + weight;  // of this lane's keys
        weights[warp][lane] = weight;
        __syncwarp();  // the warp's weights and rows are written
        for (int i = 0; i < PAIRS; i++) {
            const int d = 2 * lane + 64 * i;
            if (d >= head_dim) break;
            float low = 0.0f, high = 0.0f;  // of these 32 keys alone
#pragma unroll 8
            for (int key = 0; key < count; key++) {
                const __nv_bfloat162 pair =
                    *reinterpret_cast<const __nv_bfloat162*>(value_cache + rows[warp][key] + d);
                low += weights[warp][key] * __low2float(pair);
                high += weights[warp][key] * __high2float(pair);
            }
            output[2 * i] = output[2 * i] * factor + low;
            output[2 * i + 1] = output[2 * i + 1] * factor + high;
        }
        __syncwarp();  // nobody reads them any more
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        maxima[warp] = maximum;
        sums[warp] = sum;
    }
    for (int i = 0; i < PAIRS; i++) {
        const int d = 2 * lane + 64 * i;
        if (d >= head_dim) break;
        outputs[warp][d] = output[2 * i];
        outputs[warp][d + 1] = output[2 * i + 1];
    }
    __syncthreads();  // all states are written
    if (thread >= head_dim) return;
    float largest = -INFINITY, numerator = 0.0f, denominator = 0.0f;
    for (int w = 0; w < WARPS; w++) largest = fmaxf(largest, maxima[w]);
    for (int w = 0; w < WARPS && context > 0; w++) {
        const float factor = expf(maxima[w] - largest);
        numerator += factor * outputs[w][thread];
        denominator += factor * sums[w];
    }
    out[q_row + thread] = __float2bfloat16(context > 0 ? numerator / denominator : 0.0f);
}
