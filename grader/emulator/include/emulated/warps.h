// Warp shuffles, votes, reductions and matches.
#pragma once

namespace pagedlab {

template <class T>
unsigned long long to_bits(T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>,
                  "shuffles take values of at most 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T>
T from_bits(unsigned long long bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

}  // namespace pagedlab

#define PAGEDLAB_SHUFFLE(name, operation, operand_type)                                                     \
    template <class T>                                                                                      \
    inline T name(unsigned mask, T value, operand_type operand, int width = 32, int line = PAGEDLAB_LINE) { \
        return pagedlab::from_bits<T>(pagedlab_shuffle(mask, pagedlab::to_bits(value), pagedlab::operation, \
                                                       static_cast<int>(operand), width, line));            \
    }
PAGEDLAB_SHUFFLE(__shfl_sync, SHUFFLE, int)
PAGEDLAB_SHUFFLE(__shfl_up_sync, SHUFFLE_UP, unsigned)
PAGEDLAB_SHUFFLE(__shfl_down_sync, SHUFFLE_DOWN, unsigned)
PAGEDLAB_SHUFFLE(__shfl_xor_sync, SHUFFLE_XOR, int)
#undef PAGEDLAB_SHUFFLE

inline void __syncwarp(unsigned mask = 0xffffffffu, int line = PAGEDLAB_LINE) {
    pagedlab_collective(mask, 0, pagedlab::SYNC, line);
}
inline unsigned __activemask(int line = PAGEDLAB_LINE) {
    return pagedlab_converge(line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = PAGEDLAB_LINE) {
    return static_cast<unsigned>(pagedlab_collective(mask, predicate != 0, pagedlab::BALLOT, line));
}
inline int __any_sync(unsigned mask, int predicate, int line = PAGEDLAB_LINE) {
    return __ballot_sync(mask, predicate, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, int line = PAGEDLAB_LINE) {
    return __ballot_sync(mask, !predicate, line) == 0;
}

#define PAGEDLAB_REDUCE(name, type, operation)                                                   \
    inline type name(unsigned mask, type value, int line = PAGEDLAB_LINE) {                      \
        return static_cast<type>(                                                                \
            pagedlab_collective(mask, static_cast<unsigned>(value), pagedlab::operation, line)); \
    }
PAGEDLAB_REDUCE(__reduce_add_sync, unsigned, ADD)
PAGEDLAB_REDUCE(__reduce_add_sync, int, ADD)
PAGEDLAB_REDUCE(__reduce_min_sync, unsigned, MIN)
PAGEDLAB_REDUCE(__reduce_min_sync, int, SIGNED_MIN)
PAGEDLAB_REDUCE(__reduce_max_sync, unsigned, MAX)
PAGEDLAB_REDUCE(__reduce_max_sync, int, SIGNED_MAX)
PAGEDLAB_REDUCE(__reduce_and_sync, unsigned, AND)
PAGEDLAB_REDUCE(__reduce_or_sync, unsigned, OR)
PAGEDLAB_REDUCE(__reduce_xor_sync, unsigned, EXCLUSIVE_OR)
#undef PAGEDLAB_REDUCE

template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, int line = PAGEDLAB_LINE) {
    return static_cast<unsigned>(pagedlab_collective(mask, pagedlab::to_bits(value), pagedlab::MATCH, line));
}

// The mask, and *is_same = 1, when all lanes bring the same value; else 0.
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* is_same, int line = PAGEDLAB_LINE) {
    const unsigned present = mask & pagedlab_active_mask();
    *is_same = __match_any_sync(mask, value, line) == present;
    return *is_same ? mask : 0;
}
