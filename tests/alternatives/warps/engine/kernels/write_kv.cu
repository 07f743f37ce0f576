// Alternative: a thread per (token, head), which copies its key and its value number by number.
#include <cuda_bf16.h>

extern "C" __global__ void write_kv(__nv_bfloat16* __restrict__ key_cache,
                                    __nv_bfloat16* __restrict__ value_cache,
                                    const __nv_bfloat16* __restrict__ k, const __nv_bfloat16* __restrict__ v,
                                    const int* __restrict__ slot_mapping, int num_tokens, int num_kv_heads,
                                    int head_dim) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (long long)num_tokens * num_kv_heads) return;
    const long long slot = slot_mapping[i / num_kv_heads];
    if (slot < 0) return;
    const long long source = i * head_dim, target = (slot * num_kv_heads + i % num_kv_heads) * head_dim;
    for (int d = 0; d < head_dim; d++) key_cache[target + d] = k[source + d];
    for (int d = 0; d < head_dim; d++) value_cache[target + d] = v[source + d];
}
