// What a warp's lanes compute together. All 32 lanes must call these functions together, and each gets the result.
#pragma once

constexpr unsigned ALL_LANES = 0xffffffffu;  // the mask of a shuffle in which a whole warp takes part

// The sum of the lanes' values. Lanes exchange partial sums in pairs 16, 8, 4, 2 and 1 apart: no barrier needed.
__device__ __forceinline__ float warp_sum(float value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    }
    return value;
}

// The largest of the lanes' values.
__device__ __forceinline__ float warp_max(float value) {
    for (int distance = 16; distance > 0; distance /= 2) {
        value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}
