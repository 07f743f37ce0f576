// Alternative: the normalised value is rounded to bf16 before the weight, as Hugging Face does. rmsnorm gives
// a warp to each row; rmsnorm_tree a block of 64 threads, whose tree also takes a block that is no power of
// two.
#include <cuda_bf16.h>

__device__ __nv_bfloat16 scaled(__nv_bfloat16 value, float reciprocal, __nv_bfloat16 weight) {
    const __nv_bfloat16 normalised = __float2bfloat16(__bfloat162float(value) * reciprocal);
    return __float2bfloat16(__bfloat162float(normalised) * __bfloat162float(weight));
}

extern "C" __global__ void rmsnorm_tree(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                        const __nv_bfloat16* __restrict__ weight, int num_tokens,
                                        int hidden_size, float eps) {
    __shared__ float partial[64];
    const __nv_bfloat16* row = x + (long long)blockIdx.x * hidden_size;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
        const float value = __bfloat162float(row[i]);
        sum += value * value;
    }
    partial[threadIdx.x] = sum;
    for (int width = blockDim.x; width > 1;) {
        const int half = (width + 1) / 2;
        __syncthreads();  // the sums of the previous level are written
        if (threadIdx.x < width / 2) partial[threadIdx.x] += partial[threadIdx.x + half];
        width = half;
    }
    __syncthreads();  // thread 0's total is written
    const float reciprocal = rsqrtf(partial[0] / hidden_size + eps);
    for (int i = threadIdx.x; i < hidden_size; i += blockDim.x) {
        out[(long long)blockIdx.x * hidden_size + i] = scaled(row[i], reciprocal, weight[i]);
    }
}

extern "C" __global__ void rmsnorm(__nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ x,
                                   const __nv_bfloat16* __restrict__ weight, int num_tokens, int hidden_size,
                                   float eps) {
    const int token = blockIdx.x * blockDim.y + threadIdx.y;
    if (token >= num_tokens) return;
    const __nv_bfloat16* row = x + (long long)token * hidden_size;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < hidden_size; i += 32) {
        const float value = __bfloat162float(row[i]);
        sum = fmaf(value, value, sum);
    }
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    const float reciprocal = 1.0f / sqrtf(sum / hidden_size + eps);
    for (int i = threadIdx.x; i < hidden_size; i += 32) {
        out[(long long)token * hidden_size + i] = scaled(row[i], reciprocal, weight[i]);
    }
}
