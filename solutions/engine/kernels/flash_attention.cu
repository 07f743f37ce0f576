// flash_attention: out[i, h] = sum over keys j of p[j] · v[j, g], p = softmax over j of scale · q[i, h] ·
//            k[j, g], in one pass over the keys, with the online softmax of the FlashAttention paper
//
// out, q     [L, num_heads, head_dim] bf16, contiguous; out is written
// k, v       [S, num_kv_heads, head_dim] bf16; query head h uses head g = h / (num_heads / num_kv_heads)
// Mask       causal, aligned at the bottom right: query i of L sees the keys 0 … S − L + i; none gives zeros
// Launch     launch.toml [flash_attention], over L, S, Hq, Hkv, D. Suggested: a block per (tile of queries,
//            head), which brings a tile of keys, then of values, to shared memory
// Must hold  head_dim is a multiple of 8, at most 128, so rows begin at multiples of 16 bytes; at most 48 KB
//            of shared memory, however large S is; k and v are requested at most 1.1 times per query head at
//            L = 1 and L = 16; masked keys and values count for nothing, NaN too
// Numerics   scores, exponentials and sums stay float32; rounded once to bf16.
#include <cuda_bf16.h>

// s11.1: the tiles, and how rows get there
#include "flash.cuh"

extern "C" __global__ void flash_attention(__nv_bfloat16* __restrict__ out,
                                           const __nv_bfloat16* __restrict__ q,
                                           const __nv_bfloat16* __restrict__ k,
                                           const __nv_bfloat16* __restrict__ v, int L, int S, int num_heads,
                                           int num_kv_heads, int head_dim, float scale) {
    const int head = blockIdx.y, kv_head = head / (num_heads / num_kv_heads);
    const long long q_stride = static_cast<long long>(num_heads) * head_dim;  // from one query to the next
    const long long kv_stride = static_cast<long long>(num_kv_heads) * head_dim;  // from one key to the next
    // s11.1: tile by tile: scores, new maximum, rescaled sums
    extern __shared__ float4 tiles[];                             // [2][TILE][head_dim + PADDING] floats
    const int first = blockIdx.x * TILE;                          // query of the block
    const long long offset = first * q_stride + head * head_dim;  // of its row in q and out
    const int kv_offset = kv_head * head_dim;
    attend(out + offset, q + offset, k + kv_offset, v + kv_offset, q_stride, kv_stride, min(TILE, L - first),
           S - L + first, head_dim, scale, reinterpret_cast<float*>(tiles));
}
