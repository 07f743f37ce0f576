// Alternative: tiles of 16 packed queries that know no borders of sequences. Each of the block's eight warps has two of
// them; each query knows the first and the last key of its own sequence that it sees, as rows of the packed keys.
// Sequences that follow each other have keys that follow each other, so the block walks over all keys between the
// first and the last of them, but loads no tile that none of its queries sees. Each tile makes a state of its own
// (maximum, sum, output), which is then merged with the one so far.
#include <cuda_bf16.h>

constexpr int WARPS = 8, ROWS = 2, QUERIES = WARPS * ROWS;    // of a block; of a warp; of a block
constexpr int TILE = 32;                                      // keys of a tile, one a lane
constexpr int PADDING = 8;                                    // bf16 behind a row
constexpr int MAX_HEAD_DIM = 128, PARTS = MAX_HEAD_DIM / 32;  // a lane has every 32nd number of the output

__device__ void load_rows(__nv_bfloat16* tile, const __nv_bfloat16* rows, long long stride, int num_rows,
                          int head_dim) {
    const int chunks = head_dim / 8;  // of 16 bytes
    for (int i = threadIdx.y * 32 + threadIdx.x; i < num_rows * chunks; i += 32 * WARPS) {
        const int row = i / chunks, d = i % chunks * 8;
        *reinterpret_cast<uint4*>(tile + row * (head_dim + PADDING) + d) =
            *reinterpret_cast<const uint4*>(rows + row * stride + d);
    }
}

// The last sequence that begins at this query or before it: those behind it that begin there too are empty.
__device__ int sequence_of(const int* cu_seqlens_q, int num_sequences, int query) {
    int first = 0, last = num_sequences - 1;
    while (first < last) {
        const int middle = (first + last + 1) / 2;
        if (cu_seqlens_q[middle] <= query) {
            first = middle;
        } else {
            last = middle - 1;
        }
    }
    return first;
}

__device__ float warp_max(float value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, distance));
    }
    return value;
}

__device__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, distance);
    }
    return value;
}

extern "C" __global__ void attention_varlen(
    __nv_bfloat16* __restrict__ out, const __nv_bfloat16* __restrict__ q, const __nv_bfloat16* __restrict__ k,
    const __nv_bfloat16* __restrict__ v, const int* __restrict__ cu_seqlens_q,
    const int* __restrict__ cu_seqlens_k, int num_sequences, int num_tokens, int num_heads, int num_kv_heads,
    int head_dim, float scale) {
    __shared__ uint4 tiles[2][TILE * (MAX_HEAD_DIM + PADDING) / 8];
    __shared__ float queries[QUERIES][MAX_HEAD_DIM], weights[QUERIES][TILE];
    __shared__ int firsts[QUERIES], ends[QUERIES];  // the keys that a query sees: firsts … ends − 1
    __nv_bfloat16* keys = reinterpret_cast<__nv_bfloat16*>(tiles[0]);
    __nv_bfloat16* values = reinterpret_cast<__nv_bfloat16*>(tiles[1]);
    const int lane = threadIdx.x, warp = threadIdx.y, head = blockIdx.y, width = head_dim + PADDING;
    const int first_query = blockIdx.x * QUERIES;
    const long long kv_stride = (long long)num_kv_heads * head_dim;
    const long long kv_start = head / (num_heads / num_kv_heads) * head_dim;
    const int thread = warp * 32 + lane;
    if (thread < QUERIES) {
        const int query = first_query + thread;
        firsts[thread] = ends[thread] = 0;
        if (query < num_tokens) {
            const int sequence = sequence_of(cu_seqlens_q, num_sequences, query);
            const int behind =
                cu_seqlens_q[sequence + 1] - query - 1;  // queries of the sequence behind this one
            firsts[thread] = cu_seqlens_k[sequence];
            ends[thread] = max(cu_seqlens_k[sequence], cu_seqlens_k[sequence + 1] - behind);
        }
    }
    for (int r = 0; r < ROWS; r++) {
        const int row = warp * ROWS + r;
        if (first_query + row >= num_tokens) continue;
        const __nv_bfloat16* query = q + ((long long)(first_query + row) * num_heads + head) * head_dim;
        for (int d = lane; d < head_dim; d += 32) queries[row][d] = scale * __bfloat162float(query[d]);
    }
    __syncthreads();  // queries and what they see are written
    int last_key = 0;
    for (int row = 0; row < QUERIES; row++) last_key = max(last_key, ends[row]);

    float maximum[ROWS], sum[ROWS] = {}, output[ROWS][PARTS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++) maximum[r] = -INFINITY;
    for (int start = firsts[0]; start < last_key; start += TILE) {
        const int count = min(TILE, last_key - start);
        bool needed = false;  // the same in all threads
        for (int row = 0; row < QUERIES; row++) {
            needed = needed || (firsts[row] < start + count && max(firsts[row], start) < ends[row]);
        }
        if (!needed) continue;
        __syncthreads();  // nobody reads the last tile any more
        load_rows(keys, k + kv_start + start * kv_stride, kv_stride, count, head_dim);
        load_rows(values, v + kv_start + start * kv_stride, kv_stride, count, head_dim);
        __syncthreads();  // the tile is complete
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int row = warp * ROWS + r;
            const int from = max(0, firsts[row] - start), to = min(count, ends[row] - start);
            if (from >= to) continue;  // the whole warp does
            float score = -INFINITY;
            if (from <= lane && lane < to) {
                score = 0.0f;
                for (int d = 0; d < head_dim; d += 8) {
                    const uint4 vector = *reinterpret_cast<const uint4*>(keys + lane * width + d);
                    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&vector);
                    for (int i = 0; i < 4; i++) {
                        score += queries[row][d + 2 * i] * __low2float(pairs[i]);
                        score += queries[row][d + 2 * i + 1] * __high2float(pairs[i]);
                    }
                }
            }
            // The tile's own state; it sees a key at least, so its maximum is finite.
            const float tile_maximum = warp_max(score);
            const float weight = expf(score - tile_maximum), tile_sum = warp_sum(weight);
            weights[row][lane] = weight;
            __syncwarp();  // the row of weights is written
            const float both = fmaxf(maximum[r], tile_maximum);
            const float old_factor = expf(maximum[r] - both), tile_factor = expf(tile_maximum - both);
            maximum[r] = both;
            sum[r] = sum[r] * old_factor + tile_sum * tile_factor;
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int d = lane + 32 * part;
                if (d >= head_dim) break;
                float tile_output = 0.0f;
                for (int key = from; key < to; key++) {
                    tile_output += weights[row][key] * __bfloat162float(values[key * width + d]);
                }
                output[r][part] = output[r][part] * old_factor + tile_output * tile_factor;
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = warp * ROWS + r;
        if (first_query + row >= num_tokens) continue;
        __nv_bfloat16* out_row = out + ((long long)(first_query + row) * num_heads + head) * head_dim;
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            const int d = lane + 32 * part;
            if (d < head_dim) out_row[d] = __float2bfloat16(sum[r] > 0.0f ? output[r][part] / sum[r] : 0.0f);
        }
    }
}
