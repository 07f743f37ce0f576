// argmax: out[r] = the column of row r's largest value, the lowest such column when several are equal
//
// out        [num_rows] int32, written
// x          [num_rows, num_columns] float32, contiguous, num_columns > 0
// Launch     launch.toml [argmax], over R = num_rows, N = num_columns. Suggested: a block of whole warps per
//            row, thread i takes the columns i, i + block …
// Must hold  a row of −infinity gives 0; no entry is NaN.
// Numerics   exact: values are compared, never computed with.
#include "warp.cuh"

extern "C" __global__ void argmax(int* __restrict__ out, const float* __restrict__ x, int num_rows,
                                  int num_columns) {
    const float* row = x + static_cast<long long>(blockIdx.x) * num_columns;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    NOT_IMPLEMENTED("s08.1");  // TODO s08.1: the best of each thread, of each warp, of the block
}
