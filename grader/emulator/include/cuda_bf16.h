// bf16: __nv_bfloat16 and pairs of it.
#pragma once

#include "emulated/small_floats.h"

using __nv_bfloat16 = pagedlab::SmallFloat<pagedlab::BrainCoding>;
using __nv_bfloat162 = pagedlab::SmallFloat2<pagedlab::BrainCoding>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

PAGEDLAB_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
