// residual_add: x[t, h] += y[t, h], the sum that carries a block's output into the residual stream
//
// x          [num_tokens, hidden_size] bf16, contiguous, read and written in place
// y          [num_tokens, hidden_size] bf16
// Launch     launch.toml [residual_add], over T = num_tokens, H = hidden_size. Suggested: the array is one
//            row of num_tokens · hidden_size elements, a thread per element.
// Must hold  the last block has threads without an element; the number of elements can pass 2^31.
// Numerics   added in float32, rounded once to bf16.
#include <cuda_bf16.h>

extern "C" __global__ void residual_add(__nv_bfloat16* __restrict__ x, const __nv_bfloat16* __restrict__ y,
                                        int num_tokens, int hidden_size) {
    const long long num_elements = static_cast<long long>(num_tokens) * hidden_size;
    // s02.2: widen both, add, round, store
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < num_elements) {
        x[i] = __float2bfloat16(__bfloat162float(x[i]) + __bfloat162float(y[i]));
    }
}
