// An alternative solution, written from the handouts alone.
// attention_varlen: stage 7's kernel of this solution, a warp per query and head, where each warp first looks for the
// sequence of its query. There are no tiles, so that no border of a sequence can lie within one.
#include <cuda_bf16.h>

constexpr unsigned ALL_LANES = 0xffffffffu;  // the mask of a shuffle in which a whole warp takes part
constexpr int MAX_PARTS = 4;  // head_dim is at most 128, so a lane has at most 4 elements of the output

__device__ float warp_max(float value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

__device__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    }
    return value;
}

extern "C" __global__ void attention_varlen(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q, const __nv_bfloat16* __restrict__ k,
    const __nv_bfloat16* __restrict__ v, const int* __restrict__ cu_seqlens_q,
    const int* __restrict__ cu_seqlens_k, int num_sequences, int num_tokens, int num_heads, int num_kv_heads,
    int head_dim, float scale) {
    extern __shared__ float weights[];  // 32 per warp: the exponentials of a batch of keys
    const int query = blockIdx.x, lane = threadIdx.x;
    const int head = blockIdx.y * blockDim.y + threadIdx.y;
    if (head >= num_heads) {
        return;  // a whole warp leaves; warps do not wait for each other in this kernel
    }
    // The lanes look at 32 sequences at a time: the query's is the one with the last end that is not before it.
    int sequence = 0;
    for (int first = 0; first < num_sequences; first += 32) {
        const bool ended = first + lane < num_sequences && cu_seqlens_q[first + lane + 1] <= query;
        const int count = __popc(__ballot_sync(ALL_LANES, ended));
        sequence += count;
        if (count < 32) {
            break;
        }
    }
    float* batch = weights + threadIdx.y * 32;
    const int kv_head = head / (num_heads / num_kv_heads);
    const long long row = (static_cast<long long>(query) * num_heads + head) * head_dim;
    const long long key_step = static_cast<long long>(num_kv_heads) * head_dim;
    const long long first_key =
        cu_seqlens_k[sequence] * key_step + static_cast<long long>(kv_head) * head_dim;
    const __nv_bfloat16* keys = k + first_key;
    const __nv_bfloat16* values = v + first_key;
    const int num_keys = cu_seqlens_k[sequence + 1] - cu_seqlens_k[sequence];
    const int num_seen = num_keys - (cu_seqlens_q[sequence + 1] - 1 - query);  // may be 0 or less

    float sums[MAX_PARTS] = {};  // of exponential · value, for the elements lane, lane + 32, ...
    float largest = -INFINITY, total = 0.0f;
    for (int first = 0; first < num_seen; first += 32) {
        float score = -INFINITY;
        if (first + lane < num_seen) {
            const __nv_bfloat16* key = keys + (first + lane) * key_step;
            float product = 0.0f;
            for (int d = 0; d < head_dim; d++) {
                product += __bfloat162float(q[row + d]) * __bfloat162float(key[d]);
            }
            score = scale * product;
        }
        // What was summed so far counts relative to the old maximum; at first that is nothing.
        const float new_largest = fmaxf(largest, warp_max(score));
        const float rescale = expf(largest - new_largest);
        largest = new_largest;
        const float weight = expf(score - largest);
        total = total * rescale + warp_sum(weight);
        __syncwarp();  // all lanes have read the previous batch before it is overwritten
        batch[lane] = weight;
        __syncwarp();  // the batch is whole before other lanes read it
        const int count = min(32, num_seen - first);
        for (int part = 0; part < MAX_PARTS && lane + 32 * part < head_dim; part++) {
            sums[part] *= rescale;
            for (int j = 0; j < count; j++) {
                sums[part] += batch[j] * __bfloat162float(values[(first + j) * key_step + lane + 32 * part]);
            }
        }
    }
    for (int part = 0; part < MAX_PARTS && lane + 32 * part < head_dim; part++) {
        const float result = num_seen > 0 ? sums[part] / total : 0.0f;
        out[row + lane + 32 * part] = __float2bfloat16(result);
    }
}
