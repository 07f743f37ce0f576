// flash_decode_attention: decode_attention in one pass over the keys: out[b, h] = sum over positions j of
//                p[j] · value[j, g], p = softmax over j of scale · q[b, h] · key[j, g],
//                j = 0 … context_lens[b] − 1 of row slots[b] of the caches
//
// out, q         [num_sequences, num_heads, head_dim] bf16, contiguous; out is written
// key_cache, value_cache   [num_slots, length, num_kv_heads, head_dim] bf16; query head h uses head
//                g = h / (num_heads / num_kv_heads). Behind a context they hold anything, NaN too: never
//                read it
// slots, context_lens   [num_sequences] int32; a context of 0 gives zeros
// Launch         launch.toml [flash_decode_attention], over B, length, Hq, Hkv, D. Suggested: a block per
//                (sequence, head); tiles of as many keys as it has threads; a thread per key for scores,
//                then per 8 elements of every so many-th value
// Must hold      head_dim is a multiple of 8, at most 128, so rows begin at multiples of 16 bytes; a cache
//                may have more than 2^31 elements: compute addresses in 64 bits; shared memory does not grow
//                with the context; keys and values are requested once per head
// Numerics       scores, exponentials and sums stay float32; rounded once to bf16.
#include <cuda_bf16.h>

#include "warp.cuh"

extern "C" __global__ void flash_decode_attention(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
    const __nv_bfloat16* __restrict__ key_cache, const __nv_bfloat16* __restrict__ value_cache,
    const int* __restrict__ slots, const int* __restrict__ context_lens, int num_sequences, int length,
    int num_heads, int num_kv_heads, int head_dim, float scale) {
    const int sequence = blockIdx.x, head = blockIdx.y;
    const int thread = threadIdx.x;
    const int kv_head = head / (num_heads / num_kv_heads);
    const long long kv_stride = static_cast<long long>(num_kv_heads) * head_dim;  // from one key to the next
    const long long q_start = (static_cast<long long>(sequence) * num_heads + head) * head_dim;
    NOT_IMPLEMENTED("s11.2");  // TODO s11.2: tile by tile: scores, new maximum, rescaled sums
}
