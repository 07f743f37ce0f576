// decode_attention: out[b, h] = sum over positions j of p[j] · value[j, g], p = softmax over j of
//                   scale · q[b, h] · key[j, g], j = 0 … context_lens[b] − 1 of row slots[b] of the caches
//
// out, q         [num_sequences, num_heads, head_dim] bf16, contiguous; out is written
// key_cache, value_cache   [num_slots, length, num_kv_heads, head_dim] bf16; query head h uses head
//                g = h / (num_heads / num_kv_heads). Behind a context they hold anything, NaN too: do not read it
// slots, context_lens   [num_sequences] int32; a context of 0 gives zeros
// Launch         launch.toml [decode_attention], over B, length, Hq, Hkv, D. Suggested: as attention, a block
//                per (sequence, head) with `shared` bytes for `length` floats
// Must hold      head_dim is a multiple of 8, at most 128; a cache may have more than 2^31 elements: compute
//                addresses in 64 bits
// Numerics       scores, exponentials and sums stay float32; rounded once to bf16.
#include <cuda_bf16.h>

#include "warp.cuh"

extern "C" __global__ void decode_attention(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
    const __nv_bfloat16* __restrict__ key_cache, const __nv_bfloat16* __restrict__ value_cache,
    const int* __restrict__ slots, const int* __restrict__ context_lens, int num_sequences, int length,
    int num_heads, int num_kv_heads, int head_dim, float scale) {
    extern __shared__ float scores[];  // one per position
    const int sequence = blockIdx.x, head = blockIdx.y;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    NOT_IMPLEMENTED("s09.2");  // TODO s09.2: scores, then exponentials, then the weighted sum of values
}
