// paged_attention: out[b, h] = sum over positions j of p[j] · value[j, g], p = softmax over j of
//                  scale · q[b, h] · key[j, g], j = 0 … context_lens[b] − 1; position j of sequence b is row
//                  j % block_size of block block_tables[b, j / block_size] of the caches
//
// out, q         [num_sequences, num_heads, head_dim] bf16, contiguous; out is written
// key_cache, value_cache   [num_blocks, block_size, num_kv_heads, head_dim] bf16; query head h uses head
//                g = h / (num_heads / num_kv_heads). Behind a context they hold anything, NaN too: do not read it
// block_tables   [num_sequences, table_width] int32, meaningless behind the blocks that a context needs
// context_lens   [num_sequences] int32; 0 gives zeros
// Launch         launch.toml [paged_attention], over B, M, block_size, Hq, Hkv, D. Suggested: as
//                flash_decode_attention, a block per (sequence, query head); one pass over tiles of keys with
//                the online softmax; a thread per key for scores, then the threads share out the values
// Must hold      head_dim is a multiple of 8, at most 128, so rows begin at multiples of 16 bytes; a pool may
//                have more than 2^31 elements: compute addresses in 64 bits; shared memory does not grow with
//                the context
// Numerics       scores, exponentials and sums stay float32; rounded once to bf16.
#include <cuda_bf16.h>

#include "warp.cuh"

extern "C" __global__ void paged_attention(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
    const __nv_bfloat16* __restrict__ key_cache, const __nv_bfloat16* __restrict__ value_cache,
    const int* __restrict__ block_tables, const int* __restrict__ context_lens, int num_sequences,
    int table_width, int block_size, int num_heads, int num_kv_heads, int head_dim, float scale) {
    const int sequence = blockIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    NOT_IMPLEMENTED("s15.1");  // TODO s15.1: tile by tile: scores, new maximum, rescaled sums
}
