// Accesses outside of shared memory or of one of its arrays, and vectors at addresses that are not theirs.

// The last thread has no right neighbour.
extern "C" __global__ void shared_past_the_end(float* out, const float* x) {
    __shared__ float tile[64];
    const int i = threadIdx.x;
    tile[i] = x[i];
    __syncthreads();
    out[i] = BUG(tile[i + 1]) FIX((i < 63 ? tile[i + 1] : 0.0f));  // (1)
}

// 64 threads, 32 keys: the other 32 land among the values.
extern "C" __global__ void shared_into_a_neighbour(float* out, const float* x) {
    __shared__ float keys[32], values[32];
    const int i = threadIdx.x;
    FIX(if (i < 32))
    keys[i] = x[i];  // (1)
    __syncthreads();
    if (i < 32) values[i] = x[i] * x[i];
    __syncthreads();
    out[i] = keys[i % 32] + values[i % 32];
}

// The launch gives half as much dynamic shared memory as the block needs.
extern "C" __global__ void dynamic_too_small(float* out, const float* x) {
    extern __shared__ float row[];
    row[threadIdx.x] = x[threadIdx.x];  // (1)
    __syncthreads();
    out[threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];  // (also)
}

extern "C" __global__ void shared_before_the_start(float* out, const float* x) {
    __shared__ float tile[64];
    const int i = threadIdx.x;
    tile[i] = x[i];
    __syncthreads();
    out[i] = tile[i] - BUG(tile[i - 1]) FIX((i > 0 ? tile[i - 1] : 0.0f));  // (1)
}

// A column past the row's end is the next row's: only the array's shape shows it.
extern "C" __global__ void shared_past_a_row(float* out, const float* x) {
    __shared__ float tile[32][33];
    const int row = threadIdx.x;
    for (int column = 0; column < 33; column++) tile[row][column] = x[row];
    __syncthreads();
    float sum = 0;
    for (int step = 0; step < 3; step++) {
        sum += tile[0][BUG(20 * step) FIX(16 * step)];  // (1)
    }
    out[row] = sum;
}

// Eight warps fit; the launch has sixteen.
extern "C" __global__ void more_warps_than_room(float* out, const float* x) {
    __shared__ float partial[BUG(8) FIX(16)];
    const int warp = threadIdx.x / 32;
    float sum = x[threadIdx.x];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) partial[warp] = sum;  // (1)
    __syncthreads();
    float total = 0;
    for (int w = 0; w < blockDim.x / 32; w++) {
        total += partial[w];  // (also)
    }
    out[threadIdx.x] = total;
}

// 66 numbers are no whole number of vectors.
extern "C" __global__ void shared_vector_across_the_end(float* out, const float* x) {
    __shared__ __align__(16) float row[BUG(66) FIX(68)];
    const int i = threadIdx.x;
    for (int k = i; k < BUG(66) FIX(68); k += 32) row[k] = x[k];
    __syncthreads();
    if (i < 17) {
        const float4 v = reinterpret_cast<const float4*>(row)[i];  // (1)
        out[i] = v.x + v.y + v.z + v.w;
    }
}

__device__ float sum_of(const float* row, int n) {
    float sum = 0;
    for (int k = 0; k < n; k++) {
        sum += row[k];  // (1) shared_in_a_function
    }
    return sum;
}

// A function knows of the array only what it is told.
extern "C" __global__ void shared_in_a_function(float* out, const float* x) {
    __shared__ float tile[32];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = sum_of(tile, blockDim.x BUG(+1));
}

// The second view begins in the middle of the first.
extern "C" __global__ void overlapping_views(float* out, const float* x) {
    extern __shared__ float buffer[];
    float* keys = buffer;
    float* values = buffer + BUG(32) FIX(64);
    const int i = threadIdx.x;
    keys[i] = x[i];        // (1)
    values[i] = 2 * x[i];  // (2)
    __syncthreads();
    out[i] = keys[i] + values[i];
}

// Rows of 33 floats have no vectors of 4.
extern "C" __global__ void vectors_of_a_padded_tile(float* out, const float* x) {
    __shared__ __align__(16) float tile[8][BUG(33) FIX(36)];
    const int i = threadIdx.x;
    for (int row = 0; row < 8; row++) tile[row][i] = x[i];
    __syncthreads();
    const float4 v = *reinterpret_cast<const float4*>(&tile[i / 8][i % 8 * 4]);  // (1)
    out[i] = v.x + v.y + v.z + v.w;
}

// Seven bytes in front leave the numbers at an odd address.
extern "C" __global__ void floats_behind_bytes(float* out, const float* x) {
    extern __shared__ __align__(16) char bytes[];
    float* row = reinterpret_cast<float*>(bytes + BUG(7) FIX(8));
    row[threadIdx.x] = x[threadIdx.x];  // (1)
    __syncthreads();
    out[threadIdx.x] = row[31 - threadIdx.x];  // (also)
}
