// Alternative: one warp per (query, head); scores and probabilities in a shared row, probabilities rounded to
// bf16 as FlashAttention-2 does before they meet the values.
#include <cuda_bf16.h>

extern "C" __global__ void attention(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
                                     const __nv_bfloat16* __restrict__ k, const __nv_bfloat16* __restrict__ v,
                                     int L, int S, int num_heads, int num_kv_heads, int head_dim,
                                     float scale) {
    extern __shared__ float scores[];
    const int query = blockIdx.y, head = blockIdx.x, lane = threadIdx.x;
    const int kv_head = head / (num_heads / num_kv_heads);
    const int visible = S - L + query + 1;
    const __nv_bfloat16* q_row = q + ((long long)query * num_heads + head) * head_dim;
    float maximum = -INFINITY;
    for (int key = lane; key < visible; key += 32) {
        const __nv_bfloat16* k_row = k + ((long long)key * num_kv_heads + kv_head) * head_dim;
        float score = 0.0f;
        for (int d = 0; d < head_dim; d++) score += __bfloat162float(q_row[d]) * __bfloat162float(k_row[d]);
        scores[key] = score * scale;
        maximum = fmaxf(maximum, scores[key]);
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffff, maximum, distance));
    }
    float sum = 0.0f;
    for (int key = lane; key < visible; key += 32) {
        const float weight = expf(scores[key] - maximum);
        sum += weight;
        scores[key] = __bfloat162float(__float2bfloat16(weight));
    }
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    __syncwarp();  // every lane's probabilities are written
    for (int d = lane; d < head_dim; d += 32) {
        float total = 0.0f;
        for (int key = 0; key < visible; key++) {
            total +=
                scores[key] * __bfloat162float(v[((long long)key * num_kv_heads + kv_head) * head_dim + d]);
        }
        out[((long long)query * num_heads + head) * head_dim + d] =
            __float2bfloat16(visible > 0 ? total / sum : 0.0f);
    }
}
