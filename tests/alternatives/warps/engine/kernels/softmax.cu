// Alternative: one warp per row in two passes; the first keeps a running maximum and a sum scaled to it.
extern "C" __global__ void softmax(float* __restrict__ out, const float* __restrict__ x, int num_rows,
                                   int num_columns) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= num_rows) return;
    const float* input = x + (long long)row * num_columns;
    float maximum = -INFINITY, sum = 0.0f;
    for (int i = threadIdx.x; i < num_columns; i += 32) {
        const float value = input[i];
        if (value == -INFINITY) continue;
        const float larger = fmaxf(maximum, value);
        sum = sum * expf(maximum - larger) + expf(value - larger);
        maximum = larger;
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        const float other_maximum = __shfl_xor_sync(0xffffffff, maximum, distance);
        const float other_sum = __shfl_xor_sync(0xffffffff, sum, distance);
        const float larger = fmaxf(maximum, other_maximum);
        if (larger > -INFINITY) sum = sum * expf(maximum - larger) + other_sum * expf(other_maximum - larger);
        maximum = larger;
    }
    for (int i = threadIdx.x; i < num_columns; i += 32) {
        out[(long long)row * num_columns + i] = expf(input[i] - maximum) / sum;
    }
}
