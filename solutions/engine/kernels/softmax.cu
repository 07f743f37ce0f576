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
    // s05.1: the maximum, the sum of exponentials, the quotients
    __shared__ float warp_maxima[32], warp_sums[32];
    float maximum = -INFINITY;
    for (int i = threadIdx.x; i < num_columns; i += blockDim.x) {
        maximum = fmaxf(maximum, x[row + i]);
    }
    maximum = warp_max(maximum);
    if (lane == 0) {
        warp_maxima[warp] = maximum;
    }
    __syncthreads();  // every warp's maximum is written before any thread compares them
    for (int w = 0; w < num_warps; w++) {
        maximum = fmaxf(maximum, warp_maxima[w]);
    }

    // The largest exponent is now 0, so that nothing overflows and the sum is at least 1.
    float sum = 0.0f;
    for (int i = threadIdx.x; i < num_columns; i += blockDim.x) {
        sum += expf(x[row + i] - maximum);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        warp_sums[warp] = sum;  // an array of its own: a slow warp may still be reading warp_maxima
    }
    __syncthreads();  // every warp's sum is written before any thread adds them up
    float total = 0.0f;
    for (int w = 0; w < num_warps; w++) {
        total += warp_sums[w];
    }

    // The exponential is computed again: a row does not fit into registers or shared memory.
    for (int i = threadIdx.x; i < num_columns; i += blockDim.x) {
        out[row + i] = expf(x[row + i] - maximum) / total;
    }
}
