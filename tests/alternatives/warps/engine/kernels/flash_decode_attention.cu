// Alternative: a block per (sequence, key/value head), or several where more than eight query heads share one. All
// its threads bring tiles of keys and values to shared memory, as bf16; each of its warps serves one query head:
// a lane has two keys of the tile, then up to two pairs of numbers of the output.
#include <cuda_bf16.h>

constexpr int HEADS = 8;                      // query heads and warps of a block, as in launch.toml
constexpr int TILE = 64;                      // keys of a tile: two a lane
constexpr int PADDING = 8;                    // bf16 behind a row: rows lie in different banks
constexpr int MAX_HEAD_DIM = 128, PAIRS = 2;  // pairs of numbers that a lane has at most

__device__ void load_rows(__nv_bfloat16* tile, const __nv_bfloat16* rows, long long stride, int num_rows,
                          int head_dim) {
    const int chunks = head_dim / 8;  // of 16 bytes
    for (int i = threadIdx.y * 32 + threadIdx.x; i < num_rows * chunks; i += 32 * HEADS) {
        const int row = i / chunks, d = i % chunks * 8;
        *reinterpret_cast<uint4*>(tile + row * (head_dim + PADDING) + d) =
            *reinterpret_cast<const uint4*>(rows + row * stride + d);
    }
}

__device__ float dot8(const float* query, const uint4& key) {
    const unsigned bits[4] = {key.x, key.y, key.z, key.w};
    float sum = 0.0f;
    for (int i = 0; i < 4; i++) {
        sum += query[2 * i] * __uint_as_float(bits[i] << 16);
        sum += query[2 * i + 1] * __uint_as_float(bits[i] & 0xffff0000u);
    }
    return sum;
}

extern "C" __global__ void flash_decode_attention(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q,
    const __nv_bfloat16* __restrict__ key_cache, const __nv_bfloat16* __restrict__ value_cache,
    const int* __restrict__ slots, const int* __restrict__ context_lens, int num_sequences, int length,
    int num_heads, int num_kv_heads, int head_dim, float scale) {
    extern __shared__ uint4 tiles[];  // [2][TILE][head_dim + PADDING] bf16
    __shared__ float queries[HEADS][MAX_HEAD_DIM], weights[HEADS][TILE];
    const int lane = threadIdx.x, warp = threadIdx.y, sequence = blockIdx.y, kv_head = blockIdx.z;
    const int group = num_heads / num_kv_heads, member = blockIdx.x * HEADS + warp;
    const bool serves = member < group;  // else the warp only helps with the tiles
    const int width = head_dim + PADDING, context = context_lens[sequence];
    const long long stride = (long long)num_kv_heads * head_dim;
    const long long start = (long long)slots[sequence] * length * stride + kv_head * head_dim;
    const long long row = ((long long)sequence * num_heads + kv_head * group + member) * head_dim;
    __nv_bfloat16* keys = reinterpret_cast<__nv_bfloat16*>(tiles);
    __nv_bfloat16* values = keys + TILE * width;
    if (serves) {
        for (int d = lane; d < head_dim; d += 32) queries[warp][d] = scale * __bfloat162float(q[row + d]);
    }

    float maximum = -INFINITY, sum = 0.0f;  // the sum of this lane's keys
    float output[2 * PAIRS] = {};
    for (int first = 0; first < context; first += TILE) {
        const int count = min(TILE, context - first);
        __syncthreads();  // nobody reads the last tile any more; the queries are written
        load_rows(keys, key_cache + start + first * stride, stride, count, head_dim);
        load_rows(values, value_cache + start + first * stride, stride, count, head_dim);
        __syncthreads();  // the tile is complete
        if (!serves) continue;

        float scores[2] = {-INFINITY, -INFINITY};
        for (int i = 0; i < 2 && lane + 32 * i < count; i++) {
            scores[i] = 0.0f;
            for (int d = 0; d < head_dim; d += 8) {
                const uint4 key = *reinterpret_cast<const uint4*>(keys + (lane + 32 * i) * width + d);
                scores[i] += dot8(queries[warp] + d, key);
            }
        }
        float largest = fmaxf(scores[0], scores[1]);
        for (int distance = 16; distance > 0; distance /= 2) {
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, distance));
        }
        if (largest > maximum) {  // as seldom as the maximum grows, and for the whole warp alike
            const float factor = expf(maximum - largest);
            maximum = largest;
            sum *= factor;
            for (int i = 0; i < 2 * PAIRS; i++) output[i] *= factor;
        }
        for (int i = 0; i < 2; i++) {
            const float weight = expf(scores[i] - maximum);
            weights[warp][lane + 32 * i] = weight;
            sum += weight;
        }
        __syncwarp();  // all weights of the warp are written
        for (int i = 0; i < PAIRS; i++) {
            const int d = 2 * lane + 64 * i;
            if (d >= head_dim) break;
            for (int key = 0; key < count; key++) {
                const __nv_bfloat162 pair =
                    *reinterpret_cast<const __nv_bfloat162*>(values + key * width + d);
                output[2 * i] += weights[warp][key] * __low2float(pair);
                output[2 * i + 1] += weights[warp][key] * __high2float(pair);
            }
        }
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    }
    if (!serves) return;
    for (int i = 0; i < PAIRS; i++) {
        const int d = 2 * lane + 64 * i;
        if (d >= head_dim) break;
        for (int e = 0; e < 2; e++) {
            out[row + d + e] = __float2bfloat16(context > 0 ? output[2 * i + e] / sum : 0.0f);
        }
    }
}
