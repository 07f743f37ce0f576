// What the runtime must know of a kernel: its arguments, taken from the type of the function, and how to run it.
#pragma once

namespace pagedlab {

template <class T>
constexpr char kind_of() {
    return std::is_pointer_v<T> ? 'p' : std::is_integral_v<T> ? 'i' : std::is_floating_point_v<T> ? 'f' : 's';
}

template <class T>
constexpr unsigned element_of() {
    using Element = std::remove_pointer_t<T>;
    if constexpr (std::is_pointer_v<T> && std::is_object_v<Element>) return sizeof(Element);
    return 1;
}

template <class... Types>
struct Layout {
    Argument arguments[sizeof...(Types) + 1] = {};
    unsigned bytes = 0;

    constexpr Layout() {
        unsigned i = 0;
        ((bytes = (bytes + alignof(Types) - 1) / alignof(Types) * alignof(Types),
          arguments[i++] = {sizeof(Types), bytes, element_of<Types>(), kind_of<Types>()},
          bytes += sizeof(Types)),
         ...);
    }
};

template <auto Function>
struct Entry {
    static_assert(Function == nullptr, "a kernel (__global__) returns void");
};

template <class... Types, void (*Function)(Types...)>
struct Entry<Function> {
    static constexpr Layout<Types...> layout{};

    static void run(const char* packed) { call(packed, std::index_sequence_for<Types...>{}); }

    static constexpr Kernel kernel(unsigned max_threads) {
        return {run, layout.arguments, sizeof...(Types), layout.bytes, max_threads};
    }

  private:
    template <size_t... I>
    static void call(const char* packed, std::index_sequence<I...>) {
        Function(*reinterpret_cast<const std::remove_cv_t<Types>*>(packed + layout.arguments[I].offset)...);
    }
};

}  // namespace pagedlab

// The toolchain writes this behind the body of every kernel; 1024 without __launch_bounds__.
#define PAGEDLAB_KERNEL(name, max_threads)                                                 \
    extern "C" {                                                                           \
    pagedlab::Kernel pagedlab_kernel_##name = pagedlab::Entry<&name>::kernel(max_threads); \
    }

// Where this module's shared variables begin in the calling thread: the address of one of them.
static thread_local char pagedlab_shared_anchor;
extern "C" {
inline __attribute__((used)) char* pagedlab_shared() {
    return &pagedlab_shared_anchor;
}
}
