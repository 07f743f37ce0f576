// Threads of a block that meet in shared memory without a barrier between them.

// A thread reads what another one writes.
extern "C" __global__ void missing_barrier(float* out, const float* x) {
    __shared__ float tile[64];
    tile[threadIdx.x] = x[threadIdx.x];  // (1)
    FIX(__syncthreads();)
    out[threadIdx.x] = tile[63 - threadIdx.x];  // (2)
}

// The next tile overwrites what a slower thread still reads.
extern "C" __global__ void overwritten_while_read(float* out, const float* x, int num_tiles) {
    __shared__ float tile[64];
    float sum = 0;
    for (int t = 0; t < num_tiles; t++) {
        tile[threadIdx.x] = x[64 * t + threadIdx.x];  // (1)
        __syncthreads();
        for (int k = 0; k < 64; k++) {
            sum += tile[k];  // (2)
        }
        FIX(__syncthreads();)
    }
    out[threadIdx.x] = sum;
}

// A tree whose levels are not kept apart.
extern "C" __global__ void tree_without_barriers(float* out, const float* x) {
    __shared__ float sums[64];
    sums[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];  // (1)
        FIX(__syncthreads();)
    }
    if (threadIdx.x == 0) out[0] = sums[0];
}

// Each adds its left neighbour's value while that one adds its own.
extern "C" __global__ void scan_in_place(float* out, const float* x) {
    __shared__ float sums[64];
    const int i = threadIdx.x;
    sums[i] = x[i];
    __syncthreads();
    for (int distance = 1; distance < 64; distance *= 2) {
        const float left = i >= distance ? sums[i - distance] : 0;  // (1)
        FIX(__syncthreads();)
        sums[i] += left;  // (2)
        __syncthreads();
    }
    out[i] = sums[i];
}

// The last warp counts on its lanes running in step.
extern "C" __global__ void warp_in_step(float* out, const float* x) {
    __shared__ volatile float sums[64];
    const int i = threadIdx.x;
    sums[i] = x[i];
    __syncthreads();
    if (i < 32) {
        for (int half = 32; half > 0; half /= 2) {
            const float other = i < half ? sums[i + half] : 0;  // (1)
            FIX(__syncwarp();)
            if (i < half) sums[i] = sums[i] + other;  // (2)
            FIX(__syncwarp();)
        }
    }
    if (i == 0) out[0] = sums[0];
}

// A barrier of one warp, and two warps that exchange their numbers.
extern "C" __global__ void warp_barrier_for_a_block(float* out, const float* x) {
    __shared__ float row[64];
    row[threadIdx.x] = x[threadIdx.x];  // (1)
    BUG(__syncwarp();)
    FIX(__syncthreads();)
    out[threadIdx.x] = row[(threadIdx.x + 32) % 64];  // (2)
}

// Each half waits for itself and reads the other half's numbers.
extern "C" __global__ void mask_without_the_reader(float* out, const float* x) {
    __shared__ float row[32];
    const int lane = threadIdx.x;
    row[lane] = x[lane];  // (1)
    if (lane < 16) {
        __syncwarp(BUG(0x0000ffffu) FIX(0xffffffffu));
    } else {
        __syncwarp(BUG(0xffff0000u) FIX(0xffffffffu));
    }
    out[lane] = row[lane ^ 16];  // (2)
}

// All threads count with the same variable.
extern "C" __global__ void shared_counter(int* out, const float* x) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (x[threadIdx.x] > 8) {
        BUG(count++;)  // (1)
        FIX(atomicAdd(&count, 1);)
    }
    __syncthreads();
    if (threadIdx.x == 0) out[0] = count;
}

// The sum is read before the others have added theirs.
extern "C" __global__ void atomic_and_plain_load(int* out, const int* x) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[threadIdx.x]);  // (1)
    FIX(__syncthreads();)
    if (threadIdx.x == 0) out[0] = sum;  // (2)
}

// One thread clears what the others add to already.
extern "C" __global__ void cleared_too_late(int* out, const int* x) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;  // (1)
    FIX(__syncthreads();)
    atomicAdd(&sum, x[threadIdx.x]);  // (2)
    __syncthreads();
    if (threadIdx.x == 0) out[0] = sum;
}

extern "C" __global__ void shared_histogram(int* out, const int* x) {
    __shared__ int bins[16];
    const int i = threadIdx.x;
    if (i < 16) bins[i] = 0;
    __syncthreads();
    BUG(bins[x[i] % 16] += 1;)  // (1)
    FIX(atomicAdd(&bins[x[i] % 16], 1);)
    __syncthreads();
    if (i < 16) out[i] = bins[i];
}

// Neighbours are read while their owners overwrite them.
extern "C" __global__ void stencil_in_place(float* out, const float* x) {
    __shared__ float row[64];
    const int i = threadIdx.x;
    row[i] = x[i];
    __syncthreads();
    float mean = row[i];
    if (i > 0 && i < 63) mean = (row[i - 1] + row[i] + row[i + 1]) / 3;  // (1)
    FIX(__syncthreads();)
    row[i] = mean;  // (2)
    __syncthreads();
    out[i] = row[63 - i];
}

// Two buffers in turn need a barrier between their turns.
extern "C" __global__ void ping_pong(float* out, const float* x, int num_steps) {
    __shared__ float buffers[2][64];
    const int i = threadIdx.x;
    buffers[0][i] = x[i];
    __syncthreads();
    for (int step = 0; step < num_steps; step++) {
        const float* from = buffers[step % 2];
        float* to = buffers[1 - step % 2];
        to[i] = from[i] + from[(i + 1) % 64];  // (1)
        FIX(__syncthreads();)
    }
    __syncthreads();
    out[i] = buffers[num_steps % 2][i];
}

// Who is the last to write?
extern "C" __global__ void all_write_one(float* out, const float* x) {
    __shared__ float last;
    FIX(if (threadIdx.x == blockDim.x - 1))
    last = x[threadIdx.x];  // (1)
    __syncthreads();
    out[threadIdx.x] = last;
}

// One variable for the maximum of every row; the next row's comes while this row's is still read.
extern "C" __global__ void broadcast_again(float* out, const float* x, int num_rows) {
    __shared__ float first;
    for (int row = 0; row < num_rows; row++) {
        if (threadIdx.x == 0) first = x[64 * row];  // (1)
        __syncthreads();
        out[64 * row + threadIdx.x] = x[64 * row + threadIdx.x] - first;  // (2)
        FIX(__syncthreads();)
    }
}

// Softmax of a row: one buffer for the warps' maxima and then for their sums.
extern "C" __global__ void softmax_buffer(float* out, const float* x) {
    __shared__ float partial[2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float maximum = x[threadIdx.x];
    for (int d = 16; d > 0; d /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, d));
    if (lane == 0) partial[warp] = maximum;
    __syncthreads();
    maximum = fmaxf(partial[0], partial[1]);  // (1)
    FIX(__syncthreads();)
    const float value = expf(x[threadIdx.x] - maximum);
    float sum = value;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0) partial[warp] = sum;  // (2)
    __syncthreads();
    out[threadIdx.x] = value / (partial[0] + partial[1]);
}

// Whoever comes first fills the table; the others use it at once.
extern "C" __global__ void first_comes_first_fills(float* out, const float* x) {
    __shared__ int is_filled;
    __shared__ float table[4];
    if (threadIdx.x == 0) is_filled = 0;
    __syncthreads();
    if (atomicAdd(&is_filled, 1) == 0) {
        for (int k = 0; k < 4; k++) table[k] = x[k];  // (1)
    }
    FIX(__syncthreads();)
    out[threadIdx.x] = table[threadIdx.x % 4];  // (2)
}
