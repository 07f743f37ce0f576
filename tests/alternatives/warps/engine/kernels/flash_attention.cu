// Alternative: a block of four warps has 16 queries, four consecutive ones a warp. A lane scores one key of the tile
// for all four, then has up to two pairs of numbers of each of their outputs, in registers. Keys and values lie in
// shared memory as bf16.
#include <cuda_bf16.h>

constexpr int WARPS = 4, ROWS = 4;  // of a block; queries of a warp
constexpr int TILE = 32;            // keys of a tile, one a lane
constexpr int PADDING = 8;          // bf16 behind a row: rows lie in different banks
constexpr int MAX_HEAD_DIM = 128, PAIRS = 2;

__device__ void load_rows(__nv_bfloat16* tile, const __nv_bfloat16* rows, long long stride, int num_rows,
                          int head_dim) {
    const int chunks = head_dim / 8;  // of 16 bytes
    for (int i = threadIdx.y * 32 + threadIdx.x; i < num_rows * chunks; i += 32 * WARPS) {
        const int row = i / chunks, d = i % chunks * 8;
        *reinterpret_cast<uint4*>(tile + row * (head_dim + PADDING) + d) =
            *reinterpret_cast<const uint4*>(rows + row * stride + d);
    }
}

__device__ void add_scaled(float4& sums, const float4& numbers, float factor) {
    sums.x += numbers.x * factor;
    sums.y += numbers.y * factor;
    sums.z += numbers.z * factor;
    sums.w += numbers.w * factor;
}

extern "C" __global__ void flash_attention(__nv_bfloat16* __restrict__ out,
                                           const __nv_bfloat16* __restrict__ q,
                                           const __nv_bfloat16* __restrict__ k,
                                           const __nv_bfloat16* __restrict__ v, int L, int S, int num_heads,
                                           int num_kv_heads, int head_dim, float scale) {
    __shared__ uint4 tiles[2][TILE * (MAX_HEAD_DIM + PADDING) / 8];
    __shared__ float4 queries[WARPS][MAX_HEAD_DIM];  // of a warp's four queries together
    __shared__ float weights[WARPS][TILE][ROWS];
    __nv_bfloat16* keys = reinterpret_cast<__nv_bfloat16*>(tiles[0]);
    __nv_bfloat16* values = reinterpret_cast<__nv_bfloat16*>(tiles[1]);
    const int lane = threadIdx.x, warp = threadIdx.y, head = blockIdx.x, width = head_dim + PADDING;
    const int block_end = min(L, ((int)blockIdx.y + 1) * WARPS * ROWS);
    const long long kv_stride = (long long)num_kv_heads * head_dim;
    const long long kv_start = head / (num_heads / num_kv_heads) * head_dim;

    // Queries behind the end repeat the last one, and are not stored.
    long long row[ROWS];  // where each query begins, in q and out
    int visible[ROWS];    // how many keys it sees
    const int first_query = (blockIdx.y * WARPS + warp) * ROWS;
    for (int r = 0; r < ROWS; r++) {
        const int query = min(first_query + r, L - 1);
        row[r] = ((long long)query * num_heads + head) * head_dim;
        visible[r] = S - L + query + 1;
    }
    for (int d = lane; d < head_dim; d += 32) {
        float* four = reinterpret_cast<float*>(&queries[warp][d]);
        for (int r = 0; r < ROWS; r++) four[r] = scale * __bfloat162float(q[row[r] + d]);
    }

    float maximum[ROWS], sum[ROWS] = {};  // sums of this lane's keys
    float output[ROWS][2 * PAIRS] = {};
    for (int r = 0; r < ROWS; r++) maximum[r] = -INFINITY;
    const int num_keys = S - L + block_end;  // those that the block's last query sees
    for (int start = 0; start < num_keys; start += TILE) {
        const int count = min(TILE, num_keys - start);
        __syncthreads();  // nobody reads the last tile any more; the queries are written
        load_rows(keys, k + kv_start + start * kv_stride, kv_stride, count, head_dim);
        load_rows(values, v + kv_start + start * kv_stride, kv_stride, count, head_dim);
        __syncthreads();  // the tile is complete

        float4 dots = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int d = 0; d < head_dim && lane < count; d += 8) {
            const uint4 vector = *reinterpret_cast<const uint4*>(keys + lane * width + d);
            const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&vector);
            for (int i = 0; i < 4; i++) {
                add_scaled(dots, queries[warp][d + 2 * i], __low2float(pairs[i]));
                add_scaled(dots, queries[warp][d + 2 * i + 1], __high2float(pairs[i]));
            }
        }
        const float scores[ROWS] = {dots.x, dots.y, dots.z, dots.w};
        for (int r = 0; r < ROWS; r++) {
            const bool seen = start + lane < visible[r];
            float largest = seen ? scores[r] : -INFINITY;
            for (int distance = 16; distance > 0; distance /= 2) {
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, distance));
            }
            if (largest > maximum[r]) {  // the same in all lanes
                const float factor = expf(maximum[r] - largest);
                maximum[r] = largest;
                sum[r] *= factor;
                for (int i = 0; i < 2 * PAIRS; i++) output[r][i] *= factor;
            }
            const float weight = seen ? expf(scores[r] - maximum[r]) : 0.0f;
            sum[r] += weight;
            weights[warp][lane][r] = weight;
        }
        __syncwarp();  // the warp's weights are written
        const int seen_by_all = min(count, visible[0] - start);
        for (int i = 0; i < PAIRS; i++) {
            const int d = 2 * lane + 64 * i;
            if (d >= head_dim) break;
            for (int key = 0; key < count; key++) {
                const __nv_bfloat162 pair =
                    *reinterpret_cast<const __nv_bfloat162*>(values + key * width + d);
                const float low = __low2float(pair), high = __high2float(pair);
                for (int r = 0; r < ROWS; r++) {
                    if (key < seen_by_all || start + key < visible[r]) {  // 0 times a masked NaN were NaN
                        output[r][2 * i] += weights[warp][key][r] * low;
                        output[r][2 * i + 1] += weights[warp][key][r] * high;
                    }
                }
            }
        }
    }
    for (int r = 0; r < ROWS; r++) {
        for (int distance = 16; distance > 0; distance /= 2) {
            sum[r] += __shfl_xor_sync(0xffffffff, sum[r], distance);
        }
        if (first_query + r >= L) continue;
        for (int i = 0; i < PAIRS; i++) {
            const int d = 2 * lane + 64 * i;
            if (d >= head_dim) break;
            for (int e = 0; e < 2; e++) {
                out[row[r] + d + e] = __float2bfloat16(visible[r] > 0 ? output[r][2 * i + e] / sum[r] : 0.0f);
            }
        }
    }
}
