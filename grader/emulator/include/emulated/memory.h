// Atomics, and loads and stores with cache hints (which the emulator has no use for).
#pragma once

#define PAGEDLAB_LOAD(name)           \
    template <class T>                \
    inline T name(const T* address) { \
        return *address;              \
    }
PAGEDLAB_LOAD(__ldg)
PAGEDLAB_LOAD(__ldca)
PAGEDLAB_LOAD(__ldcg)
PAGEDLAB_LOAD(__ldcs)
PAGEDLAB_LOAD(__ldlu)
PAGEDLAB_LOAD(__ldcv)
#undef PAGEDLAB_LOAD

#define PAGEDLAB_STORE(name)                \
    template <class T>                      \
    inline void name(T* address, T value) { \
        *address = value;                   \
    }
PAGEDLAB_STORE(__stwb)
PAGEDLAB_STORE(__stcg)
PAGEDLAB_STORE(__stcs)
PAGEDLAB_STORE(__stwt)
#undef PAGEDLAB_STORE

namespace pagedlab {

template <size_t Bytes>
using Word = std::conditional_t<Bytes == 2, unsigned short,
                                std::conditional_t<Bytes == 4, unsigned, unsigned long long>>;

// Whether *word was `expected` and is now `desired`; else `expected` becomes what it is. In an instrumented module the
// runtime does it: there, the compiler would call a hook that has no other use.
template <class Bits>
inline bool exchanged(Bits* word, Bits& expected, Bits desired) {
#ifdef PAGEDLAB_INSTRUMENTED
    return pagedlab_compare_exchange(word, &expected, &desired, sizeof(Bits));
#else
    return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
#endif
}

// Replaces *address by change(*address) as one step; returns what was there.
template <class T, class Change>
inline T update(T* address, Change change, bool is_compare = false) {
    using Bits = Word<sizeof(T)>;
#ifdef PAGEDLAB_INSTRUMENTED
    pagedlab_atomic(address, sizeof(T), is_compare);
#endif
    Bits old = 0, next;
    T before, after;
    do {
        __builtin_memcpy(&before, &old, sizeof(T));
        after = change(before);
        __builtin_memcpy(&next, &after, sizeof(T));
    } while (!exchanged(reinterpret_cast<Bits*>(address), old, next));
    return before;
}

}  // namespace pagedlab

// The value has a type of its own (T's, by identity), so that atomicAdd(&an_unsigned, 1) compiles as in CUDA. Every
// atomic is also one of a block (…_block) and of the whole system (…_system), which are the same here.
#define PAGEDLAB_ATOMIC_SCOPE(name, is_supported, types, expression)              \
    template <class T>                                                            \
    inline T name(T* address, typename std::common_type<T>::type value) {         \
        static_assert(is_supported, #name " works on " types);                    \
        return pagedlab::update(address, [=](T old) -> T { return expression; }); \
    }
#define PAGEDLAB_ATOMIC_FUNCTION(name, is_supported, types, expression)  \
    PAGEDLAB_ATOMIC_SCOPE(name, is_supported, types, expression)         \
    PAGEDLAB_ATOMIC_SCOPE(name##_block, is_supported, types, expression) \
    PAGEDLAB_ATOMIC_SCOPE(name##_system, is_supported, types, expression)
#define PAGEDLAB_INTEGER (std::is_integral_v<T> && sizeof(T) >= 4)
#define PAGEDLAB_WORD (std::is_integral_v<T> && sizeof(T) == 4)
#define PAGEDLAB_UNSIGNED (std::is_same_v<T, unsigned>)
// A signed sum of 64 bits is the unsigned one, which CUDA wants to be asked for.
PAGEDLAB_ATOMIC_FUNCTION(atomicAdd, sizeof(T) != 8 || !std::is_signed_v<T> || std::is_floating_point_v<T>,
                         "int, unsigned, unsigned long long, float, double, half and bf16 numbers and pairs: "
                         "cast a pointer to long long to unsigned long long*",
                         old + value)
PAGEDLAB_ATOMIC_FUNCTION(atomicSub, PAGEDLAB_WORD, "int and unsigned: for others, add the negative",
                         old - value)
PAGEDLAB_ATOMIC_FUNCTION(atomicExch, sizeof(T) >= 4, "types of 4 or 8 bytes", ((void)old, value))
PAGEDLAB_ATOMIC_FUNCTION(atomicMin, PAGEDLAB_INTEGER, "integers of 4 or 8 bytes", value < old ? value : old)
PAGEDLAB_ATOMIC_FUNCTION(atomicMax, PAGEDLAB_INTEGER, "integers of 4 or 8 bytes", old < value ? value : old)
PAGEDLAB_ATOMIC_FUNCTION(atomicAnd, PAGEDLAB_INTEGER, "integers of 4 or 8 bytes", old& value)
PAGEDLAB_ATOMIC_FUNCTION(atomicOr, PAGEDLAB_INTEGER, "integers of 4 or 8 bytes", old | value)
PAGEDLAB_ATOMIC_FUNCTION(atomicXor, PAGEDLAB_INTEGER, "integers of 4 or 8 bytes", old ^ value)
PAGEDLAB_ATOMIC_FUNCTION(atomicInc, PAGEDLAB_UNSIGNED, "unsigned", old >= value ? T(0) : T(old + 1))
PAGEDLAB_ATOMIC_FUNCTION(atomicDec, PAGEDLAB_UNSIGNED, "unsigned",
                         old == 0 || old > value ? value : T(old - 1))
#undef PAGEDLAB_UNSIGNED
#undef PAGEDLAB_WORD
#undef PAGEDLAB_INTEGER
#undef PAGEDLAB_ATOMIC_FUNCTION
#undef PAGEDLAB_ATOMIC_SCOPE

#define PAGEDLAB_ATOMIC_CAS(name)                                                                          \
    template <class T>                                                                                     \
    inline T name(T* address, typename std::common_type<T>::type expected,                                 \
                  typename std::common_type<T>::type value) {                                              \
        static_assert(std::is_integral_v<T>, #name " works on integers: see __float_as_int");              \
        return pagedlab::update(address, [=](T old) -> T { return old == expected ? value : old; }, true); \
    }
PAGEDLAB_ATOMIC_CAS(atomicCAS)
PAGEDLAB_ATOMIC_CAS(atomicCAS_block)
PAGEDLAB_ATOMIC_CAS(atomicCAS_system)
#undef PAGEDLAB_ATOMIC_CAS
