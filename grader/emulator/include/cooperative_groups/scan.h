// Prefix sums of groups.
#pragma once

#include <cooperative_groups/reduce.h>

namespace cooperative_groups {

// Each thread gets the sum of the values up to its own …
template <class Group, class T, class Operation = plus<T>>
inline T inclusive_scan(const Group& group, T value, Operation operation = {}, int line = PAGEDLAB_LINE) {
    for (unsigned distance = 1; distance < group.size(); distance *= 2) {
        const T before = group.shfl_up(value, distance, line);
        if (group.thread_rank() >= distance) value = operation(before, value);
    }
    return value;
}

// … or before it; the first gets T{}.
template <class Group, class T, class Operation = plus<T>>
inline T exclusive_scan(const Group& group, T value, Operation operation = {}, int line = PAGEDLAB_LINE) {
    const T before = group.shfl_up(inclusive_scan(group, value, operation, line), 1, line);
    return group.thread_rank() == 0 ? T{} : before;
}

}  // namespace cooperative_groups
