// CUDA C for the emulator: what nvcc knows without any include. Every module is compiled with this header in front.
#pragma once

#include <string.h>
// g++ makes accesses without hooks of the copies that it knows as its own, in C++'s headers too: let it call functions.
#define __builtin_memcpy memcpy
#define __builtin_memmove memmove
#define __builtin_memset memset
#define __builtin_memcmp memcmp
#define __builtin_memchr memchr
#define __builtin_strlen strlen

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <cstdio>
#include <time.h>
#include <limits>
#include <type_traits>
#include <utility>

// g++ counts no access that is itself an argument or a result of a call, as in f(vectors[i]) and vectors[i] = f():
// an instrumented kernel becomes one function, in which there are no calls.
#ifdef PAGEDLAB_INSTRUMENTED
#define __global__ __attribute__((flatten))
#define noinline
#else
#define __global__
#endif
#define __noinline__  // and no attribute: the system's headers have this word as the name of one
#define __device__
#define __host__
// used: others than the compiler sees write it, so that it must not shrink it or take it for a constant.
#define __shared__ static thread_local __attribute__((used))
#define __constant__ PAGEDLAB_GLOBAL
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__
#define __assume(condition)
#ifndef __clang__
#define __builtin_assume(condition)
#endif

// The module's variables in global and constant memory lie together, so that the device can move them into its memory.
#ifdef __APPLE__
#define PAGEDLAB_GLOBAL __attribute__((section("__DATA,pagedlab_globals"), used))
#else
#define PAGEDLAB_GLOBAL __attribute__((section("pagedlab_globals"), used))
#endif

#define __CUDACC__ 1
#define __CUDA_ARCH__ 860
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000

#undef __builtin_memcpy  // below, it copies local variables
#include "emulated/interface.h"
#include "emulated/vectors.h"
#include "emulated/threads.h"
#include "emulated/warps.h"
#include "emulated/memory.h"
#include "emulated/math.h"
#include "emulated/clock.h"
#include "emulated/entry.h"
#define __builtin_memcpy memcpy
