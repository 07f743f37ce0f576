// IEEE half precision: __half and pairs of it.
#pragma once

#include "emulated/small_floats.h"

using __half = pagedlab::SmallFloat<pagedlab::HalfCoding>;
using __half2 = pagedlab::SmallFloat2<pagedlab::HalfCoding>;
using half = __half;
using half2 = __half2;

PAGEDLAB_CONVERSIONS(__half, __half2, half, half2)
