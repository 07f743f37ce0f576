// CUDA C for the emulator: what nvcc knows without any include. Every module is compiled with this header in front.
#pragma once

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <cstdio>
#include <string.h>
#include <limits>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __constant__ PAGEDLAB_GLOBAL
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__

// The module's variables in global and constant memory lie together, so that the device can move them into its memory.
#define PAGEDLAB_GLOBAL __attribute__((section("pagedlab_globals"), used))

#define __CUDACC__ 1
#define __CUDA_ARCH__ 860
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000

#include "emulated/interface.h"
#include "emulated/vectors.h"
#include "emulated/threads.h"
#include "emulated/warps.h"
#include "emulated/memory.h"
#include "emulated/math.h"
#include "emulated/entry.h"
