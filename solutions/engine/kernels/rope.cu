// rope: rotates every pair (i, i + D/2) of each query and key head by the angle of the token's position
//
// q          [num_tokens, num_heads, head_dim] bf16, contiguous, read and written in place
// k          [num_tokens, num_kv_heads, head_dim] bf16, the same
// cos, sin   [length, head_dim / 2] float32, row p for position p
// positions  [num_tokens] int32, each in 0 … length − 1, in any order, may repeat: prefill and decode differ
//            in these alone
// Launch     launch.toml [rope], over T, Hq, Hkv, D. Suggested: a block per token, whose threads share out
//            the (num_heads + num_kv_heads) · D/2 pairs; a thread reads and writes both halves of a pair.
// Numerics   first' = first · cos − second · sin, second' = second · cos + first · sin in float32, each
//            rounded once to bf16.
#include <cuda_bf16.h>

extern "C" __global__ void rope(__nv_bfloat16* __restrict__ q, __nv_bfloat16* __restrict__ k,
                                const float* __restrict__ cos, const float* __restrict__ sin,
                                const int* __restrict__ positions, int num_tokens, int num_heads,
                                int num_kv_heads, int head_dim) {
    const long long token = blockIdx.x;
    const int half = head_dim / 2;
    // s04.2: find each pair's head, then its angle, then rotate
    const float* cos_row = cos + static_cast<long long>(positions[token]) * half;
    const float* sin_row = sin + static_cast<long long>(positions[token]) * half;
    for (int pair = threadIdx.x; pair < (num_heads + num_kv_heads) * half; pair += blockDim.x) {
        // The key heads are counted on after the query heads.
        const int head = pair / half, i = pair % half;
        __nv_bfloat16* vector = head < num_heads ? q + (token * num_heads + head) * head_dim
                                                 : k + (token * num_kv_heads + head - num_heads) * head_dim;

        const float first = __bfloat162float(vector[i]);
        const float second = __bfloat162float(vector[i + half]);
        vector[i] = __float2bfloat16(first * cos_row[i] - second * sin_row[i]);
        vector[i + half] = __float2bfloat16(second * cos_row[i] + first * sin_row[i]);
    }
}
