// Alternative: a block for each token; its threads share the query and key heads' pairs among them.
#include <cuda_bf16.h>

__device__ void rotate(__nv_bfloat16* head, int pair, int half, float c, float s) {
    const float first = __bfloat162float(head[pair]), second = __bfloat162float(head[pair + half]);
    head[pair] = __float2bfloat16(first * c - second * s);
    head[pair + half] = __float2bfloat16(second * c + first * s);
}

extern "C" __global__ void rope(__nv_bfloat16* __restrict__ q, __nv_bfloat16* __restrict__ k,
                                const float* __restrict__ cos_table, const float* __restrict__ sin_table,
                                const int* __restrict__ positions, int num_tokens, int num_heads,
                                int num_kv_heads, int head_dim) {
    const long long token = blockIdx.x;
    const int half = head_dim / 2;
    const long long table_row = (long long)positions[token] * half;
    for (int i = threadIdx.x; i < (num_heads + num_kv_heads) * half; i += blockDim.x) {
        const int head = i / half, pair = i % half;
        const float c = cos_table[table_row + pair], s = sin_table[table_row + pair];
        if (head < num_heads) {
            rotate(q + (token * num_heads + head) * head_dim, pair, half, c, s);
        } else {
            rotate(k + (token * num_kv_heads + head - num_heads) * head_dim, pair, half, c, s);
        }
    }
}
