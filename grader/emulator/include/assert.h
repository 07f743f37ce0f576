// Device-side assert; in place of the C library's, which would end the process.
#include <cuda_runtime.h>
