// What -fsanitize=thread calls at every memory access of a counted module. Its own runtime is never linked.
#include <cstring>

#include "block.h"

using pagedlab::running_block;

#define RECORD(address, bytes, is_store) \
    running_block->record(address, static_cast<size_t>(bytes), is_store, __builtin_return_address(0))

#define ACCESS(name, bytes)                                                      \
    void __tsan_read##name(const void* address) { RECORD(address, bytes, false); } \
    void __tsan_write##name(void* address) { RECORD(address, bytes, true); }

extern "C" {

ACCESS(1, 1)
ACCESS(2, 2)
ACCESS(4, 4)
ACCESS(8, 8)
ACCESS(16, 16)

// Accesses whose alignment the compiler does not know have names of their own.
void __tsan_unaligned_read2(const void* address) { RECORD(address, 2, false); }
void __tsan_unaligned_read4(const void* address) { RECORD(address, 4, false); }
void __tsan_unaligned_read8(const void* address) { RECORD(address, 8, false); }
void __tsan_unaligned_read16(const void* address) { RECORD(address, 16, false); }
void __tsan_unaligned_write2(void* address) { RECORD(address, 2, true); }
void __tsan_unaligned_write4(void* address) { RECORD(address, 4, true); }
void __tsan_unaligned_write8(void* address) { RECORD(address, 8, true); }
void __tsan_unaligned_write16(void* address) { RECORD(address, 16, true); }
void __tsan_read_range(const void* address, unsigned long bytes) { RECORD(address, bytes, false); }
void __tsan_write_range(void* address, unsigned long bytes) { RECORD(address, bytes, true); }

// clang's names for copies.
void* __tsan_memcpy(void* target, const void* source, unsigned long bytes) {
    RECORD(source, bytes, false);
    RECORD(target, bytes, true);
    return memcpy(target, source, bytes);
}
void* __tsan_memmove(void* target, const void* source, unsigned long bytes) {
    RECORD(source, bytes, false);
    RECORD(target, bytes, true);
    return memmove(target, source, bytes);
}
void* __tsan_memset(void* target, int value, unsigned long bytes) {
    RECORD(target, bytes, true);
    return memset(target, value, bytes);
}

void pagedlab_count_atomic(const void* address, unsigned long bytes, const void* site) {
    running_block->record(address, bytes, false, site);
    running_block->record(address, bytes, true, site);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
