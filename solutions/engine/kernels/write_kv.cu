// write_kv: row slot_mapping[t] of the caches becomes k[t] and v[t]
//
// key_cache, value_cache   [num_blocks, block_size, num_kv_heads, head_dim] bf16, contiguous; the rows named
//                          are written, all others stay. A row is the num_kv_heads · head_dim numbers of one
//                          token; rows are counted over blocks and positions: block · block_size + position
// k, v                     [num_tokens, num_kv_heads, head_dim] bf16
// slot_mapping             [num_tokens] int32, each −1 (the token is skipped) or the number of a row, none twice
// Launch                   launch.toml [write_kv], over T, Hkv, D. Suggested: a block per token, whose threads
//                          copy the two rows in strides
// Must hold                a cache may have more than 2^31 elements: compute addresses in 64 bits
// Numerics                 exact
#include <cuda_bf16.h>

extern "C" __global__ void write_kv(__nv_bfloat16* __restrict__ key_cache,
                                    __nv_bfloat16* __restrict__ value_cache,
                                    const __nv_bfloat16* __restrict__ k, const __nv_bfloat16* __restrict__ v,
                                    const int* __restrict__ slot_mapping, int num_tokens, int num_kv_heads,
                                    int head_dim) {
    const long long token = blockIdx.x;
    const int row_size = num_kv_heads * head_dim;
    // s09.1: find the token's row, then copy its key and its value
    const long long slot = slot_mapping[token];
    if (slot < 0) {
        return;
    }
    for (int i = threadIdx.x; i < row_size; i += blockDim.x) {
        key_cache[slot * row_size + i] = k[token * row_size + i];
        value_cache[slot * row_size + i] = v[token * row_size + i];
    }
}
