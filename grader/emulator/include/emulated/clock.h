// Clocks.
#pragma once

extern "C" unsigned long long pagedlab_clock();

// Ticks that only move on by being read: nothing is timed here.
PAGEDLAB_FUNCTION(long long, clock64, (), static_cast<long long>(pagedlab_clock()))
#define clock() static_cast<clock_t>(clock64())

inline void __nanosleep(unsigned) {}
