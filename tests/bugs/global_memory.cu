// Accesses to global memory that belong to no array, or to another one; and vectors at addresses that are not theirs.
#include <cuda_bf16.h>

// The bound itself is taken for an index.
extern "C" __global__ void past_the_end(float* out, const float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i BUG(<=) FIX(<) n) {
        out[i] = 2 * x[i];  // (1)
    }
}

// The grid has more threads than the array has elements.
extern "C" __global__ void no_guard(float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    FIX(if (i < n))
    out[i] = i;  // (1)
}

// The first thread has no left neighbour.
extern "C" __global__ void before_the_start(float* out, const float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = x[i] - BUG(x[i - 1]) FIX((i > 0 ? x[i - 1] : 0.0f));  // (1)
}

// The bias is optional.
extern "C" __global__ void null_pointer(float* out, const float* x, const float* bias) {
    const int i = threadIdx.x;
    float value = x[i];
    FIX(if (bias != nullptr))
    value += bias[i];  // (1)
    out[i] = value;
}

// The caller passes a NumPy array's address; right: the array on the device.
extern "C" __global__ void host_pointer(float* out, const float* x) {
    out[threadIdx.x] = 2 * x[threadIdx.x];  // (1)
}

// The array on the device was a temporary of the caller's, and is freed already.
extern "C" __global__ void use_after_free(float* out, const float* x) {
    out[threadIdx.x] = x[threadIdx.x] + 1;  // (1)
}

// The same, for a result.
extern "C" __global__ void store_after_free(float* out, const float* x) {
    out[threadIdx.x] = x[threadIdx.x] + 1;  // (1)
}

// block * block_bytes does not fit into 32 bits.
extern "C" __global__ void index_overflow(char* cache, int block, int block_bytes) {
    const BUG(int) FIX(long long) start = BUG() FIX((long long)) block * block_bytes;
    const int i = threadIdx.x;
    cache[start + i] = 1;  // (1)
}

// The rows of this matrix are not padded.
extern "C" __global__ void wrong_stride(float* out, const float* x, int num_rows, int num_columns) {
    const int row = threadIdx.x;
    const int stride = num_columns BUG(+1);
    if (row >= num_rows) return;
    float sum = 0;
    for (int column = 0; column < num_columns; column++) {
        sum += x[row * stride + column];  // (1)
    }
    out[row] = sum;
}

// The matrix is wider than high: [num_rows, num_columns] = [4, 16].
extern "C" __global__ void rows_and_columns_swapped(float* out, const float* x, int num_rows,
                                                    int num_columns) {
    const int row = threadIdx.y, column = threadIdx.x;
    out[row * num_columns + column] =
        x[BUG(column * num_columns + row) FIX(row * num_columns + column)];  // (1)
}

// n is no multiple of 4: the last vector reaches beyond the array.
extern "C" __global__ void vector_across_the_end(float* out, const float* x, int n) {
    const int i = 4 * threadIdx.x;
    if (BUG(i < n) FIX(i + 3 < n)) {
        const float4 v = *reinterpret_cast<const float4*>(x + i);  // (1)
        out[threadIdx.x] = v.x + v.y + v.z + v.w;
    } else {
        float sum = 0;
        for (int k = i; k < n; k++) sum += x[k];
        out[threadIdx.x] = sum;
    }
}

// The offset of a batch is counted twice, and what lies there is an array that this kernel was not given.
extern "C" __global__ void into_another_array(float* out, const float* x, int batch, int batch_size) {
    const int i = BUG(2 *) batch * batch_size + threadIdx.x;
    out[i] = x[threadIdx.x];  // (1)
}

// Tables of blocks are padded with −1.
extern "C" __global__ void padding_of_a_table(float* out, const float* cache, const int* table,
                                              int num_blocks) {
    float sum = 0;
    for (int b = 0; b < num_blocks; b++) {
        FIX(if (table[b] < 0) break;)
        sum += cache[table[b] * 64 + static_cast<int>(threadIdx.x)];  // (1)
    }
    out[threadIdx.x] = sum;
}

// Values of 8 belong to no bin.
extern "C" __global__ void atomic_past_the_end(int* bins, const int* x) {
    const int bin = x[threadIdx.x];
    FIX(if (bin < 8))
    atomicAdd(&bins[bin], 1);  // (1)
}

// The array holds float32; right: an array of float64.
extern "C" __global__ void double_for_float(double* out, const double* x) {
    out[threadIdx.x] = x[threadIdx.x];  // (1)
}

// The caller allocated n bytes for n numbers; right: four times as many.
extern "C" __global__ void elements_for_bytes(float* out) {
    out[threadIdx.x] = 1.0f;  // (1)
}

// A variable of the module has an end too.
__device__ float scratch[64];
extern "C" __global__ void device_variable(float* out, int shift) {
    const int i = threadIdx.x;
    scratch[i] = 1;
    __syncthreads();
    out[i] = scratch[BUG(i + shift) FIX((i + shift) % 64)];  // (1)
}

__constant__ float taps[5] = {1, 4, 6, 4, 1};
extern "C" __global__ void constant_memory(float* out, int num_taps) {
    float sum = 0;
    for (int k = 0; k BUG(<=) FIX(<) num_taps; k++) {
        sum += taps[k];  // (1)
    }
    out[threadIdx.x] = sum;
}

// The best 4 of a thread's values, with k from 0 to 4.
extern "C" __global__ void local_array(float* out, const float* x, int k) {
    float best[4] = {0, 0, 0, 0};
    best[k BUG() FIX(-1)] = x[threadIdx.x];  // (1)
    out[threadIdx.x] = best[0] + best[1] + best[2] + best[3];
}

// A row begins behind one float of header.
extern "C" __global__ void misaligned_vector(float* out, const float* x) {
    const int i = 4 * threadIdx.x + 1;
    float4 v;
    BUG(v = *reinterpret_cast<const float4*>(x + i);)  // (1)
    FIX(v = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);)
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}

// Pairs of the second half of a row of 31: its first element is an odd one.
extern "C" __global__ void misaligned_pair(float* out, const __nv_bfloat16* x, int n) {
    const __nv_bfloat16* second = x + n / 2;
    const int i = 2 * threadIdx.x;
    BUG(const __nv_bfloat162 pair = *reinterpret_cast<const __nv_bfloat162*>(second + i);)  // (1)
    FIX(const __nv_bfloat162 pair = __halves2bfloat162(second[i], second[i + 1]);)
    out[threadIdx.x] = __bfloat162float(pair.x) + __bfloat162float(pair.y);
}

// A double kept in two floats.
extern "C" __global__ void misaligned_double(double* out, const float* x) {
    const int i = 2 * threadIdx.x BUG(+1);
    out[threadIdx.x] = *reinterpret_cast<const double*>(x + i);  // (1)
}

// The same for a result.
extern "C" __global__ void misaligned_store(float* out, int stride) {
    const float4 ones = make_float4(1, 1, 1, 1);
    *reinterpret_cast<float4*>(out + threadIdx.x * (stride FIX(+2))) = ones;  // (1)
}
