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

extern "C" __global__ void attention(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
                                     const __nv_bfloat16* __restrict__ k, const __nv_bfloat16* __restrict__ v,
                                     int L, int S, int num_heads, int num_kv_heads, int head_dim,
                                     float scale) {
    extern __shared__ float scores[];  // one per key
    const int query = blockIdx.x, head = blockIdx.y;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    NOT_IMPLEMENTED("s07.1");  // TODO s07.1: scores, then exponentials, then the weighted sum of values
}
