// An alternative solution, written from the handouts alone.
// write_kv: a thread per 16 bytes of k and v, which are 8 numbers of a head; the grid covers all tokens in one line.
#include <cuda_bf16.h>

extern "C" __global__ void write_kv(__nv_bfloat16* __restrict__ key_cache,
                                    __nv_bfloat16* __restrict__ value_cache,
                                    const __nv_bfloat16* __restrict__ k, const __nv_bfloat16* __restrict__ v,
                                    const int* __restrict__ slot_mapping, int num_tokens, int num_kv_heads,
                                    int head_dim) {
    const int vectors = num_kv_heads * head_dim / 8;  // of a row
    const long long source = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int token = static_cast<int>(source / vectors);
    if (token >= num_tokens || slot_mapping[token] == -1) {
        return;
    }
    const long long target = static_cast<long long>(slot_mapping[token]) * vectors + source % vectors;
    reinterpret_cast<uint4*>(key_cache)[target] = reinterpret_cast<const uint4*>(k)[source];
    reinterpret_cast<uint4*>(value_cache)[target] = reinterpret_cast<const uint4*>(v)[source];
}
