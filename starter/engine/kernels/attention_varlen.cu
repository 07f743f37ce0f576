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

extern "C" __global__ void attention_varlen(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q, const __nv_bfloat16* __restrict__ k,
    const __nv_bfloat16* __restrict__ v, const int* __restrict__ cu_seqlens_q,
    const int* __restrict__ cu_seqlens_k, int num_sequences, int num_tokens, int num_heads, int num_kv_heads,
    int head_dim, float scale) {
    const int head = blockIdx.y, kv_head = head / (num_heads / num_kv_heads);
    const long long q_stride = static_cast<long long>(num_heads) * head_dim;  // from one query to the next
    const long long kv_stride = static_cast<long long>(num_kv_heads) * head_dim;  // from one key to the next
    NOT_IMPLEMENTED("s12.1");  // TODO s12.1: tile by tile: scores, new maximum, rescaled sums
}
