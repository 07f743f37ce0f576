// softmax: out[r, n] = exp(x[r, n] − max of the row) / sum over the row of exp(x − max)
//
// out, x     [num_rows, num_columns] float32, contiguous; out is written
// Launch     launch.toml [softmax], over R = num_rows, N = num_columns. Suggested: a block of whole warps per
//            row, thread i takes the columns i, i + block …
// Must hold  rows reach 128,256 columns; entries may be −infinity (masked) and give 0, but at least one entry
//            of a row is finite; values above 88, whose exponential overflows, are ordinary.
// Numerics   float32 throughout; relative error at most 2^-15: expf, not __expf.
#include "warp.cuh"

extern "C" __global__ void softmax(float* __restrict__ out, const float* __restrict__ x, int num_rows,
                                   int num_columns) {
    const long long row = static_cast<long long>(blockIdx.x) * num_columns;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    NOT_IMPLEMENTED("s05.1");  // TODO s05.1: the maximum, the sum of exponentials, the quotients
}
