// Alternative: a key to a group of lanes, four numbers a lane. Each group keeps a state of its own over its keys
// (maximum, sum, four numbers of the output a lane), so that no row of scores is needed; the states are merged
// at the end, within a warp by shuffles and between warps in shared memory.
#include <cuda_bf16.h>

constexpr int WARPS = 4;  // of a block, as in launch.toml

struct State {
    float maximum, sum;
    float4 output;
};

__device__ float4 load4(const __nv_bfloat16* numbers) {
    const uint2 bits = *reinterpret_cast<const uint2*>(numbers);
    return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                       __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
}

__device__ State merged(const State& a, const State& b) {
    State both;
    both.maximum = fmaxf(a.maximum, b.maximum);
    if (both.maximum == -INFINITY) return a;  // neither has seen a key
    const float from_a = expf(a.maximum - both.maximum), from_b = expf(b.maximum - both.maximum);
    both.sum = a.sum * from_a + b.sum * from_b;
    both.output.x = a.output.x * from_a + b.output.x * from_b;
    both.output.y = a.output.y * from_a + b.output.y * from_b;
    both.output.z = a.output.z * from_a + b.output.z * from_b;
    both.output.w = a.output.w * from_a + b.output.w * from_b;
    return both;
}

extern "C" __global__ void decode_attention(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
    const __nv_bfloat16* __restrict__ key_cache, const __nv_bfloat16* __restrict__ value_cache,
    const int* __restrict__ slots, const int* __restrict__ context_lens, int num_sequences, int length,
    int num_heads, int num_kv_heads, int head_dim, float scale) {
    __shared__ State states[WARPS][32];
    const int head = blockIdx.x, sequence = blockIdx.y, lane = threadIdx.x, warp = threadIdx.y;
    int width = 1;  // lanes of a group: a power of two, so that shuffles can add up
    while (4 * width < head_dim) width *= 2;
    const int d = 4 * (lane % width), group = lane / width, groups = 32 / width;
    const bool active = d < head_dim;
    const long long stride = (long long)num_kv_heads * head_dim;
    const long long start = (long long)slots[sequence] * length * stride +
                            head / (num_heads / num_kv_heads) * head_dim + (active ? d : 0);
    const long long row = ((long long)sequence * num_heads + head) * head_dim + d;
    const float4 zeros = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float4 query = active ? load4(q + row) : zeros;
    const int context = context_lens[sequence];

    State state = {-INFINITY, 0.0f, zeros};
    for (int first = warp * groups; first < context; first += WARPS * groups) {
        const int position = first + group;
        const bool exists = position < context;
        float score = 0.0f;
        if (exists && active) {
            const float4 key = load4(key_cache + start + position * stride);
            score = query.x * key.x + query.y * key.y + query.z * key.z + query.w * key.w;
        }
        for (int distance = width / 2; distance > 0; distance /= 2) {
            score += __shfl_xor_sync(0xffffffff, score, distance);
        }
        if (exists) {  // a single key is a state too: its score, 1, its value
            const float4 value = active ? load4(value_cache + start + position * stride) : zeros;
            state = merged(state, {score * scale, 1.0f, value});
        }
    }
    for (int distance = width; distance < 32; distance *= 2) {
        State other;
        other.maximum = __shfl_xor_sync(0xffffffff, state.maximum, distance);
        other.sum = __shfl_xor_sync(0xffffffff, state.sum, distance);
        other.output.x = __shfl_xor_sync(0xffffffff, state.output.x, distance);
        other.output.y = __shfl_xor_sync(0xffffffff, state.output.y, distance);
        other.output.z = __shfl_xor_sync(0xffffffff, state.output.z, distance);
        other.output.w = __shfl_xor_sync(0xffffffff, state.output.w, distance);
        state = merged(state, other);
    }
    states[warp][lane] = state;
    __syncthreads();  // the states of all warps are written
    if (warp > 0 || group > 0 || !active) return;
    for (int w = 1; w < WARPS; w++) state = merged(state, states[w][lane]);
    const float inverse = context > 0 ? 1.0f / state.sum : 0.0f;
    out[row] = __float2bfloat16(state.output.x * inverse);
    out[row + 1] = __float2bfloat16(state.output.y * inverse);
    out[row + 2] = __float2bfloat16(state.output.z * inverse);
    out[row + 3] = __float2bfloat16(state.output.w * inverse);
}
