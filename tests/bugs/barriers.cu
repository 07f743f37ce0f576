// Barriers, shuffles and votes that not all of those who are waited for reach.

// The barrier stands in a condition.
extern "C" __global__ void barrier_in_a_condition(float* out, const float* x, int n) {
    __shared__ float row[64];
    const int i = threadIdx.x;
    out[i] = 0;
    if (i < n) {
        row[i] = x[i];
        BUG(__syncthreads();)  // (1)
        BUG(out[i] = row[n - 1 - i];)
    }
    FIX(__syncthreads();)
    FIX(if (i < n) out[i] = row[n - 1 - i];)
}

// Some threads leave in the middle of the work.
extern "C" __global__ void return_in_the_middle(float* out, const float* x, float limit) {
    __shared__ float row[64];
    const int i = threadIdx.x;
    const float value = x[i];
    BUG(if (value > limit) return;)
    row[i] = value;
    __syncthreads();  // (1)
    float sum = 0;
    for (int k = 0; k < 32; k++) sum += row[k];
    FIX(if (value > limit) return;)
    out[i] = sum;
}

// Threads past the end leave before they do anything: correct on all GPUs in use, and worth a remark.
extern "C" __global__ void return_past_the_end(float* out, const float* x, int n) {
    __shared__ float row[64];
    const int i = threadIdx.x;
    BUG(if (i >= n) return;)
    if (i < n) row[i] = x[i];
    __syncthreads();  // (1)
    if (i < n) out[i] = row[n - 1 - i];
}

// Every thread has its own number of columns, and a barrier for each.
extern "C" __global__ void barrier_in_a_loop(float* out, const float* x, int num_columns) {
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    const int end = BUG(num_columns) FIX((num_columns + 63) / 64 * 64);
    for (int column = threadIdx.x; column < end; column += 64) {
        if (column < num_columns) atomicAdd(&sum, x[column]);
        __syncthreads();  // (1)
    }
    __syncthreads();  // (2)
    out[threadIdx.x] = sum;
}

// Two barriers in two branches are two barriers.
extern "C" __global__ void barriers_in_two_branches(float* out, const float* x) {
    __shared__ float row[64];
    const int i = threadIdx.x;
    if (i < 32) {
        row[i] = x[i];
        BUG(__syncthreads();)  // (1)
    } else {
        row[i] = -x[i];
        BUG(__syncthreads();)  // (2)
    }
    FIX(__syncthreads();)
    out[i] = row[63 - i];
}

// Whoever has found the answer leaves the loop, and the barrier in it.
extern "C" __global__ void break_before_a_barrier(int* out, const float* x, int num_steps) {
    __shared__ float limit;
    int step = 0;
    for (; step < num_steps; step++) {
        if (threadIdx.x == 0) limit = x[step];
        __syncthreads();  // (also)
        const bool is_above = x[threadIdx.x] > limit;
        BUG(if (is_above) break;)
        FIX(if (__syncthreads_or(is_above)) break;)
        BUG(__syncthreads();)  // (1)
    }
    BUG(__syncthreads();)  // (2)
    out[threadIdx.x] = step;
}

// Half a warp shuffles, and names all of it.
extern "C" __global__ void full_mask_in_half_a_warp(float* out, const float* x) {
    const int lane = threadIdx.x;
    float value = x[lane];
    if (lane < 16) {
        value += __shfl_xor_sync(BUG(0xffffffffu) FIX(0x0000ffffu), value, 8);  // (1)
    }
    out[lane] = value;
}

// Lane 20 takes no part.
extern "C" __global__ void absent_source_lane(float* out, const float* x) {
    const int lane = threadIdx.x;
    float value = x[lane];
    if (lane < 16) {
        value = __shfl_sync(0x0000ffffu, value, BUG(20) FIX(10));  // (1)
    }
    out[lane] = value;
}

extern "C" __global__ void not_in_its_own_mask(float* out, const float* x) {
    const int lane = threadIdx.x;
    out[lane] = __shfl_xor_sync(BUG(0x0000ffffu) FIX(0xffffffffu), x[lane], 1);  // (1)
}

// Each lane names what it likes.
extern "C" __global__ void masks_that_differ(int* out, const int* x) {
    const int lane = threadIdx.x;
    const unsigned mask = BUG(lane < 8 ? 0x000000ffu :) 0xffffffffu;
    out[lane] = __any_sync(mask, x[lane] > 8);  // (1)
}

// The lanes that have left are still named.
extern "C" __global__ void vote_with_the_departed(int* out, const int* x) {
    const int lane = threadIdx.x;
    out[lane] = x[lane];
    if (x[lane] > 20) return;
    const unsigned mask = __ballot_sync(BUG(0xffffffffu) FIX((2u << 20) - 1), x[lane] > 8);  // (1)
    out[lane] = __popc(mask);
}

// One half waits for its warp, the other one for its block.
extern "C" __global__ void warp_against_block(float* out, const float* x) {
    __shared__ float row[64];
    const int lane = threadIdx.x % 32;
    row[threadIdx.x] = x[threadIdx.x];
    if (lane < 16) {
        BUG(__syncwarp();)  // (1)
    } else {
        BUG(__syncthreads();)  // (2)
    }
    __syncthreads();
    out[threadIdx.x] = row[63 - threadIdx.x];
}

// Two branches, two shuffles, one mask.
extern "C" __global__ void two_shuffles_one_mask(float* out, const float* x) {
    const int lane = threadIdx.x;
    float value = x[lane];
    if (lane < 16) {
        value += __shfl_xor_sync(BUG(0xffffffffu) FIX(0x0000ffffu), value, 1);  // (1)
    } else {
        value -= __shfl_down_sync(BUG(0xffffffffu) FIX(0xffff0000u), value, 1);  // (2)
    }
    out[lane] = value;
}

// A warp's barrier in a condition that one half of the warp does not meet.
extern "C" __global__ void warp_barrier_in_a_condition(float* out, const float* x) {
    __shared__ float row[32];
    const int lane = threadIdx.x;
    row[lane] = x[lane];
    __syncwarp();
    if (lane < 16) {
        const float other = row[lane ^ 1];
        __syncwarp(BUG(0xffffffffu) FIX(0x0000ffffu));  // (1)
        row[lane] += other;
    }
    out[lane] = row[lane];
}

// A sum over the warp by lanes that the last row's end keeps from it.
extern "C" __global__ void shuffle_in_a_bounded_loop(float* out, const float* x, int n) {
    const int lane = threadIdx.x;
    float total = 0;
    for (int i = lane; i < BUG(n) FIX((n + 31) / 32 * 32); i += 32) {
        float value = BUG() FIX(i >= n ? 0 :) x[i];
        for (int d = 16; d > 0; d /= 2) {
            value += __shfl_xor_sync(0xffffffffu, value, d);  // (1)
        }
        total += value;
    }
    out[lane] = total;
}

// The last warp has 16 lanes, the mask 32: it works on all GPUs in use, and deserves a remark.
extern "C" __global__ void last_warp_of_a_block(float* out, const float* x) {
    const unsigned lanes = BUG(0xffffffffu) FIX(threadIdx.x < 32 ? 0xffffffffu : 0x0000ffffu);
    float value = x[threadIdx.x];
    value += __shfl_xor_sync(lanes, value, 1);  // (1)
    out[threadIdx.x] = value;
}
