// Shadow memory: which bytes hold something, and who last wrote and read them.
#include "checker.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace pagedlab {

namespace {

constexpr size_t STATIC_BYTES = 48 * 1024 + 64, SHARED_BYTES = STATIC_BYTES + MAX_SHARED + 64;
constexpr size_t MAX_SITE = size_t{1} << 18;

uintptr_t number_of(const void* address) {
    return reinterpret_cast<uintptr_t>(address);
}

// Sets of bytes are bits; the arrays have a word to spare.
uint64_t bits_at(const uint64_t* bits, size_t offset) {
    const size_t shift = offset % 64;
    const uint64_t low = bits[offset / 64] >> shift;
    return shift == 0 ? low : low | bits[offset / 64 + 1] << (64 - shift);
}

uint64_t first_bits(size_t count) {
    return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

inline bool is_any_set(const uint64_t* bits, size_t offset, size_t count) {
    if (offset % 64 + count <= 64) return (bits[offset / 64] >> offset % 64 & first_bits(count)) != 0;
    for (; count > 64; offset += 64, count -= 64) {
        if (bits_at(bits, offset) != 0) return true;
    }
    return (bits_at(bits, offset) & first_bits(count)) != 0;
}

void set_bits(uint64_t* bits, size_t offset, size_t count, bool value) {
    while (count > 0) {
        const size_t shift = offset % 64, n = std::min(count, 64 - shift);
        const uint64_t mask = first_bits(n) << shift;
        bits[offset / 64] = value ? bits[offset / 64] | mask : bits[offset / 64] & ~mask;
        offset += n;
        count -= n;
    }
}

// Whether it is what the runtime tells a kernel: its indices, and where its dynamic shared memory lies.
bool is_told(const char* address) {
    for (const void* index : {&thread_index, &block_index, &block_extent, &grid_extent}) {
        const auto* begin = static_cast<const char*>(index);
        if (Range{begin, begin + sizeof(uint3)}.holds(address)) return true;
    }
    return address == reinterpret_cast<const char*>(&dynamic_shared);
}

}  // namespace

Checker& checker = *new Checker;

void Checker::begin_launch(Launch& launch) {
    launch_ = &launch;
    launch_first_ = ++tick_;
    blocks_.clear();
    releases_.clear();
    std::fill(last_arrays_, last_arrays_ + 4, nullptr);
    shared_cells_.resize(SHARED_BYTES / CELL);
    shared_unwritten_.resize(SHARED_BYTES / 64 + 2);
    shared_invalid_.assign(SHARED_BYTES / 64 + 2, ~uint64_t{0});
    for (unsigned i = 0; i < launch.checks->num_shared_variables; i++) {
        const Range& variable = launch.checks->shared_variables[i];
        set_bits(shared_invalid_.data(), number_of(variable.begin),
                 static_cast<size_t>(variable.end - variable.begin), false);
    }
    set_bits(shared_invalid_.data(), STATIC_BYTES, launch.dynamic_shared, false);
}

void Checker::begin_block(unsigned num_threads) {
    static_shared_ = launch_->shared_anchor() - launch_->anchor_offset;
    block_first_ = barrier_ = ++tick_;
    blocks_.push_back({tick_, block_index});
    fenced_.clear();
    covered_.assign(num_threads, 0);
    acquired_.clear();
    std::fill_n(stamps_, num_threads, tick_);
    std::fill_n(worked_, num_threads, false);
    std::fill(shared_unwritten_.begin(), shared_unwritten_.end(), ~uint64_t{0});
    const Checks& checks = *launch_->checks;
    for (unsigned i = checks.num_shared_variables - checks.num_guards; i < checks.num_shared_variables; i++) {
        const Range& guard = checks.shared_variables[i];
        set_bits(shared_unwritten_.data(), number_of(guard.begin),
                 static_cast<size_t>(guard.end - guard.begin), false);
    }
}

void Checker::access(unsigned thread, const void* address, size_t bytes, AccessKind kind,
                     const void* instruction) {
    settle();
    Access access{};
    access.address = static_cast<const char*>(address);
    access.bytes = bytes;
    access.kind = kind;
    access.instruction = instruction;
    const auto site = static_cast<size_t>(static_cast<const char*>(instruction) - launch_->code.begin);
    access.slot = {stamps_[thread],          thread, is_atomic(kind),
                   kind == COMPARE_AND_SWAP, 0,      static_cast<uint32_t>(site < MAX_SITE ? site : 0)};
    const auto in_static = static_cast<size_t>(access.address - static_shared_);
    const auto in_dynamic = static_cast<size_t>(access.address - dynamic_shared);
    if (in_static < launch_->static_shared) {
        access.space = STATIC_SHARED;
        access.offset = in_static;
        check_shared(access, in_static);
    } else if (in_dynamic < MAX_SHARED) {
        access.space = DYNAMIC_SHARED;
        access.offset = in_dynamic;
        check_shared(access, STATIC_BYTES + in_dynamic);
    } else if (launch_->memory.holds(address) || array_of(access.address) != nullptr) {
        check_global(access);
    } else {
        check_elsewhere(access);
    }
}

void Checker::check_shared(Access& access, size_t at) {
    worked_[access.slot.thread] = true;
    access.first_stamp = block_first_;
    if (is_any_set(shared_invalid_.data(), at, access.bytes)) {
        report(OUT_OF_BOUNDS, access);
        return;
    }
    check_bytes(shared_cells_.data(), shared_unwritten_.data(), at, access.bytes, access);
}

void Checker::check_global(Access& access) {
    worked_[access.slot.thread] = true;
    access.space = GLOBAL;
    access.offset = number_of(access.address);
    access.first_stamp = launch_first_;
    const Range* array = array_of(access.address);
    if (array == nullptr || access.address + access.bytes > array->end) {
        report(OUT_OF_BOUNDS, access);
        return;  // what it does to memory that is there does no harm; other memory is protected
    }
    if (is_atomic(access.kind)) note_atomic(access.address, access.slot.thread);
    const uintptr_t end = access.offset + access.bytes;
    for (uintptr_t at = access.offset; at < end;) {
        const size_t offset = at % PAGE, bytes = std::min(end - at, PAGE - offset);
        Page& shadow = page(at);
        check_bytes(shadow.cells.get(), shadow.unwritten, offset, bytes, access);
        at += bytes;
    }
}

// Local memory, the arguments and what the module itself holds may be used; anything else ends the launch.
void Checker::check_elsewhere(Access& access) {
    const char* stack = running_block->fiber()->stack;
    if (Range{stack, stack + GUARD_BYTES + STACK_BYTES}.holds(access.address)) return;
    if (Range{launch_->arguments, launch_->arguments + launch_->kernel->parameter_bytes}.holds(
            access.address))
        return;
    if (launch_->checks->image.holds(access.address) || is_told(access.address)) return;
    constexpr ptrdiff_t NEAR = 1 << 16;
    const ptrdiff_t from_static = access.address - static_shared_,
                    from_dynamic = access.address - dynamic_shared;
    access.space = ELSEWHERE;
    access.offset = number_of(access.address);
    if (launch_->static_shared > 0 && from_static > -NEAR && from_static < NEAR) {
        access.space = STATIC_SHARED;
        access.offset = static_cast<size_t>(from_static);
    } else if (from_dynamic > -NEAR && from_dynamic < NEAR + static_cast<ptrdiff_t>(MAX_SHARED)) {
        access.space = DYNAMIC_SHARED;
        access.offset = static_cast<size_t>(from_dynamic);
    }
    report(OUT_OF_BOUNDS, access);
    running_block->fail(ILLEGAL_ADDRESS, "access outside of all allocations");
}

void Checker::index(unsigned thread, const char* array, int64_t index, int line) {
    Place where = running_block->place(thread, line);
    if (Report* found = report(OUT_OF_BOUNDS, true, where)) {
        found->space = ELSEWHERE;
        // g++ has a space in front of the bracket, clang++ none.
        const size_t extent = strcspn(array, " [");
        const char* rest = array + extent + (array[extent] == ' ');
        snprintf(found->text, sizeof found->text, "index %lld of an array of type %.*s %s",
                 static_cast<long long>(index), static_cast<int>(extent), array, rest);
    }
    running_block->fail(ILLEGAL_ADDRESS, "index out of the bounds of an array");
}

// Initialisation and races

inline bool Checker::conflicts(Slot earlier, Slot slot, uint32_t first_stamp) const {
    return earlier.stamp >= first_stamp && (earlier.bytes & slot.bytes) != 0 &&
           !(earlier.is_atomic && slot.is_atomic) && !is_ordered(earlier, slot.thread);
}

// A reader whose load comes before this one is not needed any more: who is ordered after this one is after it too.
inline void Checker::note_load(Cell& cell, Slot slot, uint32_t first_stamp) {
    for (Slot& reader : cell.readers) {
        if (reader.stamp < first_stamp || is_ordered(reader, slot.thread)) {
            const bool extends = reader.thread == slot.thread && reader.stamp == slot.stamp;
            reader = extends ? slot.with(reader.bytes) : slot;
            return;
        }
    }
    // Of readers at the same time two are kept, of different warps where there are.
    const bool of_one_warp = cell.readers[0].thread / WARP == cell.readers[1].thread / WARP &&
                             cell.readers[0].stamp >= block_first_ && cell.readers[1].stamp >= block_first_;
    if (of_one_warp && slot.thread / WARP != cell.readers[0].thread / WARP) cell.readers[1] = slot;
}

// `slot`: the access, with the bytes of this cell. By value: it stays in a register.
inline void Checker::check_cell(Cell& cell, Slot slot, const Access& access) {
    // A load may go beside atomicCAS, which finds out whether the value is still the loaded one.
    const bool is_checked_later = is_load(access.kind) && cell.writer.is_compare;
    if (!is_checked_later && conflicts(cell.writer, slot, access.first_stamp))
        report_race(cell.writer, cell.writer.is_atomic ? ATOMIC : STORE, access);
    if (is_load(access.kind)) {
        note_load(cell, slot, access.first_stamp);
        return;
    }
    for (const Slot& reader : cell.readers) {
        if (!slot.is_compare && conflicts(reader, slot, access.first_stamp))
            report_race(reader, LOAD, access);
    }
    if ((cell.readers[0].bytes & ~slot.bytes) == 0 && (cell.readers[1].bytes & ~slot.bytes) == 0) {
        cell.readers[0].stamp = cell.readers[1].stamp = 0;
    }
    const Slot writer = cell.writer;
    // Of the same thread's plain store others need to know, more than of the atomic that follows it.
    if (is_atomic(access.kind) && !writer.is_atomic && writer.thread == slot.thread &&
        writer.stamp >= barrier_)
        return;
    const bool extends =
        writer.thread == slot.thread && writer.stamp == slot.stamp && writer.is_atomic == slot.is_atomic;
    cell.writer = extends ? slot.with(writer.bytes) : slot;
}

void Checker::check_bytes(Cell* cells, uint64_t* unwritten, size_t offset, size_t bytes,
                          const Access& access) {
    const bool is_aligned = access.kind == UNALIGNED_LOAD || access.kind == UNALIGNED_STORE ||
                            (number_of(access.address) & (access.bytes - 1)) == 0;
    if (!is_aligned) report(MISALIGNED_ACCESS, access);
    if (is_load(access.kind) || is_atomic(access.kind)) {
        if (is_any_set(unwritten, offset, bytes)) report(UNINITIALISED_READ, access);
    }
    if (!is_load(access.kind)) set_bits(unwritten, offset, bytes, false);
    Slot slot = access.slot;
    for (size_t cell = offset / CELL; cell <= (offset + bytes - 1) / CELL; cell++) {
        slot.bytes = 3;
        if (cell * CELL < offset) slot.bytes &= 2;
        if (cell * CELL + 1 >= offset + bytes) slot.bytes &= 1;
        check_cell(cells[cell], slot, access);
    }
}

// What global memory holds

void Checker::mark(uintptr_t begin, size_t bytes, bool is_written) {
    for (const uintptr_t end = begin + bytes; begin < end;) {
        const size_t offset = begin % PAGE, n = std::min(end - begin, PAGE - offset);
        const auto known = pages_.find(begin / PAGE);
        if (!is_written || known != pages_.end()) set_bits(page(begin).unwritten, offset, n, !is_written);
        begin += n;
    }
}

void Checker::forget() {
    pages_.clear();
    std::fill(std::begin(known_pages_), std::end(known_pages_), std::pair<uintptr_t, Page*>{});
}

Checker::Page& Checker::page(uintptr_t address) {
    const uintptr_t number = address / PAGE;
    auto& known = known_pages_[(number ^ number >> 8) % std::size(known_pages_)];
    if (known.first != number) known = {number, &pages_[number]};
    return *known.second;
}

const Range* Checker::array_of(const char* address) {
    for (const Range* array : last_arrays_) {
        if (array != nullptr && array->holds(address)) return array;
    }
    const Range *first = launch_->checks->arrays, *end = first + launch_->checks->num_arrays;
    const Range* behind = std::upper_bound(first, end, address,
                                           [](const char* a, const Range& array) { return a < array.begin; });
    if (behind == first || !behind[-1].holds(address)) return nullptr;
    last_arrays_[next_array_] = behind - 1;
    next_array_ = (next_array_ + 1) % std::size(last_arrays_);
    return behind - 1;
}

// Reports

void Checker::report_race(const Slot& earlier, AccessKind earlier_kind, const Access& access) {
    if (earlier_kind == STORE && access.kind == STORE && access.bytes <= sizeof pending_old_) {
        pending_ = access;
        pending_earlier_ = earlier;
        memcpy(pending_old_, access.address, access.bytes);
        return;
    }
    if (Report* found = report(DATA_RACE, access)) found->other = place(earlier, earlier_kind);
}

// The store has happened. Threads that store the same value do no harm to one another.
void Checker::settle_store() {
    const Access access = pending_;
    pending_.bytes = 0;
    if (memcmp(pending_old_, access.address, access.bytes) == 0) return;
    if (Report* found = report(DATA_RACE, access)) found->other = place(pending_earlier_, STORE);
}

Report* Checker::report(Verdict verdict, const Access& access) {
    Place where = running_block->place(access.slot.thread, 0);
    where.instruction = access.instruction;
    where.kind = access.kind;
    Report* found = report(verdict, true, where);
    if (found != nullptr) {
        found->space = access.space;
        found->address = access.offset;
        found->bytes = access.bytes;
    }
    return found;
}

Report* Checker::report(Verdict verdict, bool is_error, const Place& access) {
    Checks& checks = *launch_->checks;
    for (unsigned i = 0; i < checks.num_reports; i++) {
        Report& known = checks.reports[i];
        if (known.verdict == verdict && known.is_error == is_error &&
            known.access.instruction == access.instruction && known.access.line == access.line) {
            known.count++;
            return nullptr;
        }
    }
    if (checks.num_reports >= (is_error ? MAX_REPORTS : MAX_REMARKS)) return nullptr;
    Report& found = checks.reports[checks.num_reports++];
    found = {};
    found.verdict = verdict;
    found.is_error = is_error;
    found.access = access;
    found.other.kind = -2;
    found.count = 1;
    return &found;
}

Place Checker::place(const Slot& slot, int kind) const {
    const auto behind =
        std::upper_bound(blocks_.begin(), blocks_.end(), slot.stamp,
                         [](uint32_t stamp, const auto& block) { return stamp < block.first; });
    Place where = running_block->place(slot.thread, 0);
    const uint3 block = behind[-1].second;
    where.block[0] = block.x;
    where.block[1] = block.y;
    where.block[2] = block.z;
    where.instruction = launch_->code.begin + slot.site;
    where.kind = kind;
    return where;
}

}  // namespace pagedlab

using namespace pagedlab;

extern "C" {

void pagedlab_mark(uintptr_t begin, size_t bytes, bool is_written) {
    checker.mark(begin, bytes, is_written);
}

void pagedlab_forget() {
    checker.forget();
}

void pagedlab_fence() {
    running_block->fence();
}

// What -fsanitize=bounds calls, with a description of the place and the types.
struct Type {
    uint16_t kind, info;  // of integers: whether it is signed, and twice the logarithm of its bits
    char name[1];
};
struct IndexedArray {
    const char* file;
    uint32_t line, column;
    const Type *array, *index;
};
void __ubsan_handle_out_of_bounds(const IndexedArray* place, uintptr_t value) {
    const bool is_int = place->index->info == (5 << 1 | 1);
    const auto index = is_int ? static_cast<int32_t>(value) : static_cast<int64_t>(value);
    running_block->index(place->array->name, index, static_cast<int>(place->line));
}
}
