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
#include "flash.cuh"

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
    extern __shared__ float4 tiles[];  // [2][TILE][head_dim + PADDING] floats
    const long long offset = (q_start + first) * q_stride + head * head_dim;  // of the first query's row
    const long long kv_offset = k_start * kv_stride + kv_head * head_dim;     // of the first key's row
    attend(out + offset, q + offset, k + kv_offset, v + kv_offset, q_stride, kv_stride, min(TILE, L - first),
           S - L + first, head_dim, scale, reinterpret_cast<float*>(tiles));
}
