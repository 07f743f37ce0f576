// IEEE half precision: __half and pairs of it.
#pragma once

#include "emulated/small_floats.h"

using __half = pagedlab::SmallFloat<pagedlab::HalfCoding>;
using __half2 = pagedlab::SmallFloat2<pagedlab::HalfCoding>;
using __half_raw = __half::Raw;
using __half2_raw = __half2::Raw;
using half = __half;
using half2 = __half2;

PAGEDLAB_CONVERSIONS(__half, __half2, half, half2)

#define CUDART_INF_FP16 __ushort_as_half(0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half(0x7fff)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(0x0001)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7bff)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(0x8000)
#define CUDART_ZERO_FP16 __ushort_as_half(0x0000)
#define CUDART_ONE_FP16 __ushort_as_half(0x3c00)
