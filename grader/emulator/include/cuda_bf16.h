// bf16: __nv_bfloat16 and pairs of it.
#pragma once

#include "emulated/small_floats.h"

using __nv_bfloat16 = pagedlab::SmallFloat<pagedlab::BrainCoding>;
using __nv_bfloat162 = pagedlab::SmallFloat2<pagedlab::BrainCoding>;
using __nv_bfloat16_raw = __nv_bfloat16::Raw;
using __nv_bfloat162_raw = __nv_bfloat162::Raw;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

PAGEDLAB_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)

#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7f80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7fff)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(0x0001)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7f7f)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16(0x8000)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3f80)
