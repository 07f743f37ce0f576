// silu_mul: out = silu(gate) · up, silu(g) = g / (1 + exp(−g)), the middle of the SwiGLU feed-forward block
//
// out        [num_tokens, intermediate_size] bf16, contiguous, written
// gate, up   [num_tokens, intermediate_size] bf16
// Launch     launch.toml [silu_mul], over T = num_tokens, I = intermediate_size. Suggested: each array is one
//            row of num_tokens · intermediate_size elements, a thread per element.
// Must hold  at gate ≤ −89 exp(−gate) is infinite in float32 and the result must still be 0, not NaN; NaN in
//            gives NaN out; the number of elements can pass 2^31.
// Numerics   computed in float32, rounded once to bf16 (a second rounding, of silu(gate), is allowed).
#include <cuda_bf16.h>

extern "C" __global__ void silu_mul(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ gate,
                                    const __nv_bfloat16* __restrict__ up, int num_tokens,
                                    int intermediate_size) {
    const long long num_elements = static_cast<long long>(num_tokens) * intermediate_size;
    // s02.3: silu in the form that survives an infinite exponential
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < num_elements) {
        // A finite number over infinity is 0; exp(g) / (1 + exp(g)) would be infinity over infinity.
        const float g = __bfloat162float(gate[i]);
        out[i] = __float2bfloat16(g / (1.0f + expf(-g)) * __bfloat162float(up[i]));
    }
}
