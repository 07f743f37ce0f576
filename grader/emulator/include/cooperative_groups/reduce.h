// cooperative_groups::reduce is in the header itself.
#include <cooperative_groups.h>
