// cooperative_groups::reduce, and the operations for it.
#pragma once

#include <cooperative_groups.h>

namespace cooperative_groups {

template <class T>
struct plus {
    T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct greater {
    T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct less {
    T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct bit_and {
    T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
    T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct bit_xor {
    T operator()(T a, T b) const { return a ^ b; }
};

// Of all threads of the group, for each of them.
template <unsigned Size, class Parent, class T, class Operation>
inline T reduce(const thread_block_tile<Size, Parent>& tile, T value, Operation operation,
                int line = __builtin_LINE()) {
    for (unsigned distance = Size / 2; distance > 0; distance /= 2) {
        value = operation(value, tile.shfl_xor(value, static_cast<int>(distance), line));
    }
    return value;
}
template <class T, class Operation>
inline T reduce(const coalesced_group& group, T value, Operation operation, int line = __builtin_LINE()) {
    T total = group.shfl(value, 0, line);
    for (unsigned i = 1; i < group.size(); i++) total = operation(total, group.shfl(value, i, line));
    return total;
}

}  // namespace cooperative_groups
