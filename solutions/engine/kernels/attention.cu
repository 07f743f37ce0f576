// attention: out[i, h] = sum over keys j of p[j] · v[j, g], p = softmax over j of scale · q[i, h] · k[j, g]
//
// out, q     [L, num_heads, head_dim] bf16, contiguous; out is written
// k, v       [S, num_kv_heads, head_dim] bf16; query head h uses head g = h / (num_heads / num_kv_heads)
// Mask       causal, aligned at the bottom right: query i of L sees the keys 0 … S − L + i; none gives zeros
// Launch     launch.toml [attention], over L, S, Hq, Hkv, D. Suggested: a block of whole warps per (query,
//            head) with `shared` bytes for S floats; a thread per key for the scores, then a thread per
//            element for the output.
// Must hold  head_dim is a multiple of 8, at most 128; above 48 KB of `shared` the launcher raises the limit.
// Numerics   scores, exponentials and sums stay float32; rounded once to bf16.
#include <cuda_bf16.h>

#include "warp.cuh"

// s07.1: the sums over a row and over a column

// The product of two rows of head_dim numbers.
__device__ __forceinline__ float dot(const __nv_bfloat16* a, const __nv_bfloat16* b, int head_dim) {
    float sum = 0.0f;
    for (int d = 0; d < head_dim; d++) {
        sum += __bfloat162float(a[d]) * __bfloat162float(b[d]);
    }
    return sum;
}

// The sum over the keys of weight · number, for one column of the values: `stride` elements from key to key.
__device__ __forceinline__ float weighted_sum(const float* weights, const __nv_bfloat16* column,
                                              long long stride, int num_keys) {
    float sum = 0.0f;
    for (int key = 0; key < num_keys; key++) {
        sum += weights[key] * __bfloat162float(column[key * stride]);
    }
    return sum;
}

extern "C" __global__ void attention(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
                                     const __nv_bfloat16* __restrict__ k, const __nv_bfloat16* __restrict__ v,
                                     int L, int S, int num_heads, int num_kv_heads, int head_dim,
                                     float scale) {
    extern __shared__ float scores[];  // one per key
    const int query = blockIdx.x, head = blockIdx.y;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    // s07.1: scores, then exponentials, then the weighted sum of values
    __shared__ float warp_maxima[32], warp_sums[32];
    const int kv_head = head / (num_heads / num_kv_heads);
    const int num_visible = S - L + query + 1;
    const long long kv_stride = static_cast<long long>(num_kv_heads) * head_dim;  // from one key to the next
    const __nv_bfloat16* q_row = q + (static_cast<long long>(query) * num_heads + head) * head_dim;
    const __nv_bfloat16* keys = k + kv_head * head_dim;
    const __nv_bfloat16* values = v + kv_head * head_dim;
    __nv_bfloat16* out_row = out + (static_cast<long long>(query) * num_heads + head) * head_dim;

    // Masked keys are never read: whatever they hold, they cannot reach the result.
    float maximum = -INFINITY;
    for (int key = threadIdx.x; key < num_visible; key += blockDim.x) {
        scores[key] = dot(q_row, keys + key * kv_stride, head_dim) * scale;
        maximum = fmaxf(maximum, scores[key]);
    }
    maximum = warp_max(maximum);
    if (lane == 0) {
        warp_maxima[warp] = maximum;
    }
    __syncthreads();  // every warp's maximum is written before any thread compares them
    for (int w = 0; w < num_warps; w++) {
        maximum = fmaxf(maximum, warp_maxima[w]);
    }

    // Each thread turns the scores that it wrote itself into exponentials: no barrier needed in between.
    float sum = 0.0f;
    for (int key = threadIdx.x; key < num_visible; key += blockDim.x) {
        scores[key] = expf(scores[key] - maximum);
        sum += scores[key];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        warp_sums[warp] = sum;
    }
    __syncthreads();  // all sums are written, and all exponentials, which every thread reads from here on
    float total = 0.0f;
    for (int w = 0; w < num_warps; w++) {
        total += warp_sums[w];
    }

    // Dividing once at the end saves a division per key.
    for (int d = threadIdx.x; d < head_dim; d += blockDim.x) {
        const float weighted = weighted_sum(scores, values + d, kv_stride, num_visible);
        out_row[d] = __float2bfloat16(num_visible > 0 ? weighted / total : 0.0f);
    }
}
