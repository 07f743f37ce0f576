// Threads, of one block or of several, that meet in global memory. No barrier orders two blocks of one launch.
#include <cuda_bf16.h>

// Every block writes the same elements: its index is forgotten.
extern "C" __global__ void block_index_forgotten(float* out, const float* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[BUG(threadIdx.x) FIX(i)] = x[i];  // (1)
}

extern "C" __global__ void global_counter(int* count, const float* x) {
    if (x[blockIdx.x * blockDim.x + threadIdx.x] > 8) {
        BUG(*count += 1;)  // (1)
        FIX(atomicAdd(count, 1);)
    }
}

extern "C" __global__ void global_histogram(int* bins, const int* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    BUG(bins[x[i] % 16]++;)  // (1)
    FIX(atomicAdd(&bins[x[i] % 16], 1);)
}

// Each block adds its part of the sum and uses the sum at once.
extern "C" __global__ void sum_used_too_early(int* out, int* sum, const int* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(sum, x[i]);              // (1)
    BUG(if (*sum > 0) out[i] = x[i];)  // (2)
    FIX(out[i] = x[i];)
}

// What the other block writes is there only after this launch.
extern "C" __global__ void result_of_another_block(float* out, float* partial, const float* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) partial[blockIdx.x] = x[i];  // (1)
    __syncthreads();
    out[i] = x[i] + partial[BUG(0) FIX(blockIdx.x)];  // (2)
}

// The last block adds up what every block has left, which may not have arrived.
extern "C" __global__ void last_block_without_fence(float* out, float* partial, int* num_done,
                                                    const float* x) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = x[blockIdx.x];  // (1)
        FIX(__threadfence();)
        is_last = atomicAdd(num_done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        float sum = 0;
        for (int b = 0; b < gridDim.x; b++) {
            sum += partial[b];  // (2)
        }
        out[0] = sum;
    }
}

// A flag says that the numbers are there: it may arrive before them.
extern "C" __global__ void flag_without_fence(float* out, float* numbers, int* is_ready, const float* x) {
    if (blockIdx.x == 0) {
        numbers[threadIdx.x] = x[threadIdx.x];  // (1)
        FIX(__threadfence();)
        __syncthreads();
        if (threadIdx.x == 0) atomicExch(is_ready, 1);
        out[threadIdx.x] = 0;
    } else {
        const bool ready = __syncthreads_or(threadIdx.x == 0 && atomicAdd(is_ready, 0) == 1);
        FIX(__threadfence();)
        out[blockIdx.x * blockDim.x + threadIdx.x] = ready ? numbers[threadIdx.x] : 0;  // (2)
    }
}

// The right neighbour may be new already. Right: from one array to another.
extern "C" __global__ void global_stencil_in_place(float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 1 < n) {
        const float next = x[i + 1];           // (1)
        BUG(x) FIX(y)[i] = 0.5f * (next + 1);  // (2)
    }
}

// A square matrix, each element to its mirror image's place. Right: each pair is swapped by one thread.
extern "C" __global__ void transpose_in_place(float* x, int n) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    FIX(if (row >= column) return;)
    const float value = x[row * n + column];  // (1)
    FIX(x[row * n + column] = x[column * n + row];)
    x[column * n + row] = value;  // (2)
}

// Scratch memory in global memory needs the same barrier as shared memory.
extern "C" __global__ void scratch_without_barrier(float* out, float* scratch, const float* x) {
    const int i = threadIdx.x;
    scratch[i] = 2 * x[i];  // (1)
    FIX(__syncthreads();)
    out[i] = scratch[(i + 1) % 64];  // (2)
}

// Each thread changes one half of a pair, but reads and writes both.
extern "C" __global__ void half_of_a_pair(__nv_bfloat16* out, const float* x) {
    const int i = threadIdx.x;
    const __nv_bfloat16 value = __float2bfloat16(x[i]);
    __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(out);
    BUG(__nv_bfloat162 pair = pairs[i / 2];)  // (1)
    BUG((i % 2 ? pair.y : pair.x) = value;)
    BUG(pairs[i / 2] = pair;)  // (2)
    FIX((i % 2 ? pairs[i / 2].y : pairs[i / 2].x) = value;)
}

// The next block's first elements are written too. Right: each block keeps to its own.
extern "C" __global__ void halo_written_back(float* out, const float* x) {
    const int start = blockIdx.x * blockDim.x;
    for (int k = threadIdx.x; k < blockDim.x BUG(+2); k += blockDim.x) {
        out[start + k] = x[start + k] - x[start];  // (1)
    }
}

// Sixteen threads clear by vectors what all write by elements.
extern "C" __global__ void cleared_by_vectors(float* out, const float* x) {
    const int i = threadIdx.x;
    if (i < 16) {
        reinterpret_cast<float4*>(out)[i] = make_float4(0, 0, 0, 0);  // (1)
    }
    FIX(__syncthreads();)
    if (x[i] > 8) out[i] = x[i];  // (2)
}

// The row's sum is kept in the output by all threads together.
extern "C" __global__ void sum_in_the_output(float* out, const float* x, int num_columns) {
    const int row = blockIdx.x;
    if (threadIdx.x == 0) out[row] = 0;  // (also)
    FIX(__syncthreads();)
    for (int column = threadIdx.x; column < num_columns; column += blockDim.x) {
        BUG(out[row] += x[row * num_columns + column];)  // (1)
        FIX(atomicAdd(&out[row], x[row * num_columns + column]);)
    }
}

// A maximum by comparison and store. Right: atomically.
extern "C" __global__ void check_then_store(int* largest, const int* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    BUG(if (x[i] > largest[0]) largest[0] = x[i];)  // (1)
    FIX(atomicMax(largest, x[i]);)
}

// A lock for one block at a time. What was done under it may arrive after it is open again.
extern "C" __global__ void unlock_without_fence(float* total, int* lock, const float* x) {
    if (threadIdx.x > 0) return;
    while (atomicCAS(lock, 0, 1) != 0) continue;
    FIX(__threadfence();)
    *total += x[blockIdx.x];  // (1)
    FIX(__threadfence();)
    atomicExch(lock, 0);
}

// Every thread of the last block adds up what one thread of each block has left. Right: each saw to its arrival.
extern "C" __global__ void parts_of_all_threads(float* out, float* parts, int* num_done, const float* x) {
    __shared__ bool is_last;
    parts[blockIdx.x * blockDim.x + threadIdx.x] = 2 * x[threadIdx.x];  // (1)
    FIX(__threadfence();)
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(num_done, 1) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; b++) {
        sum += parts[b * blockDim.x + threadIdx.x];  // (2)
    }
    out[threadIdx.x] = sum;
}

// The first thread's fence is about its own part; of the others' it knows nothing without a barrier.
extern "C" __global__ void fence_of_one_thread(float* out, float* parts, int* num_done, const float* x) {
    __shared__ bool is_last;
    parts[blockIdx.x * blockDim.x + threadIdx.x] = 2 * x[threadIdx.x];  // (1)
    FIX(__syncthreads();)
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(num_done, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;
    float sum = 0;
    for (int b = 0; b < gridDim.x; b++) {
        sum += parts[b * blockDim.x + threadIdx.x];  // (2)
    }
    out[threadIdx.x] = sum;
}
