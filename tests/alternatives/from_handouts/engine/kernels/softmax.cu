// An alternative solution, written from the handouts alone.
// softmax: out[r, n] = exp(x[r, n] − max of the row) / sum over the row of exp(x − max)
// A block per row; every thread adds up the warps' results itself.

constexpr unsigned ALL_LANES = 0xffffffffu;  // the mask of a shuffle in which a whole warp takes part

struct Largest {
    static __device__ float join(float a, float b) { return fmaxf(a, b); }
};

struct Sum {
    static __device__ float join(float a, float b) { return a + b; }
};

// Joins the values of all threads of the block. `slots` holds a float per warp and must not be in use elsewhere.
template <class Operation>
__device__ float reduce_block(float value, float* slots) {
    for (int distance = 1; distance < 32; distance *= 2) {
        value = Operation::join(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    if (threadIdx.x % 32 == 0) {
        slots[threadIdx.x / 32] = value;
    }
    __syncthreads();  // every warp's result is written before anyone reads them
    float result = slots[0];
    for (int warp = 1; warp < blockDim.x / 32; warp++) {
        result = Operation::join(result, slots[warp]);
    }
    return result;
}

extern "C" __global__ void softmax(float* __restrict__ out, const float* __restrict__ x, int num_rows,
                                   int num_columns) {
    __shared__ float maxima[32], sums[32];
    const long long row = static_cast<long long>(blockIdx.x) * num_columns;

    float largest = -INFINITY;
    for (int column = threadIdx.x; column < num_columns; column += blockDim.x) {
        largest = fmaxf(largest, x[row + column]);
    }
    largest = reduce_block<Largest>(largest, maxima);

    float sum = 0.0f;
    for (int column = threadIdx.x; column < num_columns; column += blockDim.x) {
        const float term = expf(x[row + column] - largest);
        out[row + column] = term;  // read back below by this thread alone
        sum += term;
    }
    sum = reduce_block<Sum>(sum, sums);

    for (int column = threadIdx.x; column < num_columns; column += blockDim.x) {
        out[row + column] /= sum;
    }
}
