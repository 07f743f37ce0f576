// Nothing beyond what every module has.
#include <cuda_runtime.h>
