// An alternative solution, written from the handouts alone.
// rope: rotates the pairs (i, i + D/2) of each head; threadIdx.x is the pair, threadIdx.y and blockIdx.y the head
#include <cuda_bf16.h>

extern "C" __global__ void rope(__nv_bfloat16* __restrict__ q, __nv_bfloat16* __restrict__ k,
                                const float* __restrict__ cos, const float* __restrict__ sin,
                                const int* __restrict__ positions, int num_tokens, int num_heads,
                                int num_kv_heads, int head_dim) {
    const long long token = blockIdx.x;
    const int half = head_dim / 2;
    const int pair = threadIdx.x;
    const int head = blockIdx.y * blockDim.y + threadIdx.y;
    if (pair >= half || head >= num_heads + num_kv_heads) {
        return;
    }
    // The query heads are counted first, then the key heads.
    __nv_bfloat16* vector = head < num_heads ? q + (token * num_heads + head) * head_dim
                                             : k + (token * num_kv_heads + (head - num_heads)) * head_dim;
    const long long entry = static_cast<long long>(positions[token]) * half + pair;
    const float first = __bfloat162float(vector[pair]);
    const float second = __bfloat162float(vector[pair + half]);
    vector[pair] = __float2bfloat16(first * cos[entry] - second * sin[entry]);
    vector[pair + half] = __float2bfloat16(second * cos[entry] + first * sin[entry]);
}
