// cooperative_groups::reduce, and the operations for it.
#pragma once

#include <cooperative_groups.h>

namespace cooperative_groups {

#define PAGEDLAB_OPERATION(name, value)                \
    template <class T>                                 \
    struct name {                                      \
        T operator()(T a, T b) const { return value; } \
    };
PAGEDLAB_OPERATION(plus, a + b)
PAGEDLAB_OPERATION(greater, a < b ? b : a)
PAGEDLAB_OPERATION(less, b < a ? b : a)
PAGEDLAB_OPERATION(bit_and, a& b)
PAGEDLAB_OPERATION(bit_or, a | b)
PAGEDLAB_OPERATION(bit_xor, a ^ b)
#undef PAGEDLAB_OPERATION

// Of all threads of the group, for each of them.
template <unsigned Size, class Parent, class T, class Operation>
inline T reduce(const thread_block_tile<Size, Parent>& tile, T value, Operation operation,
                int line = PAGEDLAB_LINE) {
    for (unsigned distance = Size / 2; distance > 0; distance /= 2) {
        value = operation(value, tile.shfl_xor(value, static_cast<int>(distance), line));
    }
    return value;
}
template <class T, class Operation>
inline T reduce(const coalesced_group& group, T value, Operation operation, int line = PAGEDLAB_LINE) {
    T total = group.shfl(value, 0, line);
    for (unsigned i = 1; i < group.size(); i++) total = operation(total, group.shfl(value, i, line));
    return total;
}

}  // namespace cooperative_groups
