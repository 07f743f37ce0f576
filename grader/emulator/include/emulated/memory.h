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
inline T update(T* address, Change change) {
    using Bits = Word<sizeof(T)>;
#ifdef PAGEDLAB_INSTRUMENTED
    pagedlab_atomic(address, sizeof(T));
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

// The value has a type of its own (T's, by identity), so that atomicAdd(&an_unsigned, 1) compiles as in CUDA.
#define PAGEDLAB_ATOMIC_FUNCTION(name, expression)                                \
    template <class T>                                                            \
    inline T name(T* address, typename std::common_type<T>::type value) {         \
        return pagedlab::update(address, [=](T old) -> T { return expression; }); \
    }
PAGEDLAB_ATOMIC_FUNCTION(atomicAdd, old + value)
PAGEDLAB_ATOMIC_FUNCTION(atomicSub, old - value)
PAGEDLAB_ATOMIC_FUNCTION(atomicExch, ((void)old, value))
PAGEDLAB_ATOMIC_FUNCTION(atomicMin, value < old ? value : old)
PAGEDLAB_ATOMIC_FUNCTION(atomicMax, old < value ? value : old)
PAGEDLAB_ATOMIC_FUNCTION(atomicAnd, old& value)
PAGEDLAB_ATOMIC_FUNCTION(atomicOr, old | value)
PAGEDLAB_ATOMIC_FUNCTION(atomicXor, old ^ value)
PAGEDLAB_ATOMIC_FUNCTION(atomicInc, old >= value ? T(0) : T(old + 1))
PAGEDLAB_ATOMIC_FUNCTION(atomicDec, old == 0 || old > value ? value : T(old - 1))
#undef PAGEDLAB_ATOMIC_FUNCTION

template <class T>
inline T atomicCAS(T* address, typename std::common_type<T>::type expected,
                   typename std::common_type<T>::type value) {
    return pagedlab::update(address, [=](T old) -> T { return old == expected ? value : old; });
}
