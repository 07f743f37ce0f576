// embedding: out[t] = table[ids[t]], one row of the table per token
//
// out        [num_tokens, hidden_size] bf16, contiguous, written
// table      [vocabulary, hidden_size] bf16
// ids        [num_tokens] int32, each in 0 … vocabulary − 1; may repeat
// Launch     launch.toml [embedding], over T = num_tokens, H = hidden_size, V = vocabulary. Suggested: a
//            block per token, whose threads share out the row: it may be longer than any block.
// Must hold  vocabulary · hidden_size can pass 2^31: 64-bit offsets.
// Numerics   an exact copy.
#include <cuda_bf16.h>

extern "C" __global__ void embedding(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ table,
                                     const int* __restrict__ ids, int num_tokens, int hidden_size) {
    const int token = blockIdx.x;
    // s02.1: copy row ids[token] of the table to row `token` of out
    const __nv_bfloat16* source = table + static_cast<long long>(ids[token]) * hidden_size;
    __nv_bfloat16* target = out + static_cast<long long>(token) * hidden_size;

    // The threads of a warp touch neighbouring elements, so that the hardware fetches whole 32-byte sectors
    // once.
    for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
        target[i] = source[i];
    }
}
