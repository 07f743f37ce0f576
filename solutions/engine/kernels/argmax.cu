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
    // s08.1: the best of each thread, of each warp, of the block
    __shared__ float warp_values[32];
    __shared__ int warp_columns[32];

    // Columns come in rising order, so that ">" alone keeps the lowest of a thread's equal values.
    float best = -INFINITY;
    int best_column = 0;
    for (int i = threadIdx.x; i < num_columns; i += blockDim.x) {
        if (row[i] > best) {
            best = row[i];
            best_column = i;
        }
    }

    // Between threads the order is lost, so that equal values are decided by the column.
    for (int distance = 16; distance > 0; distance /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, best, distance);
        const int other_column = __shfl_xor_sync(ALL_LANES, best_column, distance);
        if (other > best || (other == best && other_column < best_column)) {
            best = other;
            best_column = other_column;
        }
    }
    if (lane == 0) {
        warp_values[warp] = best;
        warp_columns[warp] = best_column;
    }
    __syncthreads();  // every warp's best is written before thread 0 compares them

    if (threadIdx.x == 0) {
        for (int w = 1; w < num_warps; w++) {
            if (warp_values[w] > best || (warp_values[w] == best && warp_columns[w] < best_column)) {
                best = warp_values[w];
                best_column = warp_columns[w];
            }
        }
        out[blockIdx.x] = best_column;
    }
}
