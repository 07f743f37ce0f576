// Atomics, and loads and stores with cache hints (which the emulator has no use for).
#pragma once
