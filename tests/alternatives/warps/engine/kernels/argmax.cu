// Alternative: a warp per row; on a tie the lower index wins in every comparison.
extern "C" __global__ void argmax(int* __restrict__ out, const float* __restrict__ x, int num_rows,
                                  int num_columns) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= num_rows) return;
    float best = -INFINITY;
    int index = num_columns;
    for (int i = threadIdx.x; i < num_columns; i += 32) {
        const float value = x[(long long)row * num_columns + i];
        if (value > best || index == num_columns) {
            best = value;
            index = i;
        }
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        const float other = __shfl_down_sync(0xffffffff, best, distance);
        const int other_index = __shfl_down_sync(0xffffffff, index, distance);
        if (other_index < num_columns && (other > best || (other == best && other_index < index))) {
            best = other;
            index = other_index;
        }
    }
    if (threadIdx.x == 0) out[row] = index;
}
