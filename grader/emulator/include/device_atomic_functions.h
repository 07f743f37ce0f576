// Part of cuda_runtime.h, which every source has.
#pragma once
