// rmsnorm: out[t, h] = x[t, h] / sqrt(mean over h of x[t, h]² + eps) · weight[h]; two kernels for one formula
//
// out, x     [num_tokens, hidden_size] bf16, contiguous; out is written, x is read (at most twice)
// weight     [hidden_size] bf16
// Launch     launch.toml [rmsnorm_tree] and [rmsnorm], over T = num_tokens, H = hidden_size. Suggested: a
//            block per token, thread i takes the elements i, i + block, i + 2 · block … of its row.
// Must hold  rmsnorm_tree: no shuffles; the usual tree wants a block of 2^k threads and `shared` bytes for a
//            float per thread. rmsnorm: shuffles, so a block of whole warps, and at most 3 barriers.
// Numerics   sums and products in float32, eps inside the root, rounded once to bf16 at the end (rounding
//            before the weight too is allowed).
#include <cuda_bf16.h>

constexpr unsigned ALL_LANES = 0xffffffffu;  // the mask of a shuffle in which a whole warp takes part

extern "C" __global__ void rmsnorm_tree(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ weight, int num_tokens,
                                        int hidden_size, float eps) {
    extern __shared__ float partial[];  // one sum per thread
    const long long row = static_cast<long long>(blockIdx.x) * hidden_size;
    NOT_IMPLEMENTED("s03.1");  // TODO s03.1: a sum per thread, then a tree over `partial`
}

extern "C" __global__ void rmsnorm(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                   const __nv_bfloat16* __restrict__ weight, int num_tokens, int hidden_size,
                                   float eps) {
    const long long row = static_cast<long long>(blockIdx.x) * hidden_size;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    NOT_IMPLEMENTED("s03.2");  // TODO s03.2: a sum per thread, then per warp, then per block
}
