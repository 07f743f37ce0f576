// Shadow memory: which bytes hold something, and who last wrote and read them.
#include "checker.h"

#include <algorithm>

namespace pagedlab {

namespace {

constexpr size_t STATIC_BYTES = 48 * 1024 + 64, SHARED_BYTES = STATIC_BYTES + MAX_SHARED + 64;

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
inline bool is_told(const char* address) {
    for (const void* index : {&block_index, &block_extent, &thread_index, &grid_extent}) {
        if (number_of(address) - number_of(index) < sizeof(uint3)) return true;
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
    for (KnownPage& known : known_pages_) known.array = {};
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
    dynamic_shared_ = dynamic_shared;
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
    const auto site = static_cast<size_t>(static_cast<const char*>(instruction) - launch_->code.begin);
    const uint64_t what = (site < MAX_SITE ? site : 0) << 14 | 3 << 12 |
                          uint64_t{kind == COMPARE_AND_SWAP} << 11 | uint64_t{is_atomic(kind)} << 10;
    const Access access{static_cast<const char*>(address),
                        bytes,
                        kind,
                        instruction,
                        {uint64_t{stamps_[thread]} << 32 | what | thread}};
    const auto in_static = static_cast<size_t>(access.address - static_shared_);
    const auto in_dynamic = static_cast<size_t>(access.address - dynamic_shared_);
    if (in_static < launch_->static_shared) {
        check_shared(access, in_static);
    } else if (in_dynamic < MAX_SHARED) {
        check_shared(access, STATIC_BYTES + in_dynamic);
    } else {
        check_global(access);
    }
}

inline void Checker::check_shared(const Access& access, size_t at) {
    worked_[access.slot.thread()] = true;
    if (is_any_set(shared_invalid_.data(), at, access.bytes)) {
        report(OUT_OF_BOUNDS, access);
        return;
    }
    check_bytes(shared_cells_.data(), shared_unwritten_.data(), at, access.bytes, access, block_first_);
}

inline void Checker::check_global(const Access& access) {
    const uintptr_t address = number_of(access.address);
    KnownPage& known = known_page(address);
    const bool is_known = known.number == address / PAGE && known.array.holds(access.address);
    if (!is_known) {
        if (is_told(access.address)) return;
        if (!find_page(access.address, known)) {
            check_elsewhere(access);
            return;
        }
    }
    worked_[access.slot.thread()] = true;
    if (access.address + access.bytes > known.array.end) {
        report(OUT_OF_BOUNDS, access);
        return;  // what it does to memory that is there does no harm; other memory is protected
    }
    if (is_atomic(access.kind)) note_atomic(access.address, access.slot.thread());
    const size_t offset = address % PAGE, bytes = std::min(access.bytes, PAGE - offset);
    check_bytes(known.page->cells.get(), known.page->unwritten, offset, bytes, access, launch_first_);
    if (bytes < access.bytes) check_other_pages(access, bytes);
}

void Checker::check_other_pages(const Access& access, size_t done) {
    while (done < access.bytes) {
        Page& page = pages_[number_of(access.address + done) / PAGE];
        const size_t bytes = std::min(access.bytes - done, PAGE);
        check_bytes(page.cells.get(), page.unwritten, 0, bytes, access, launch_first_);
        done += bytes;
    }
}

// Outside of all arrays. Local memory, the arguments and what the module itself holds may be used; what lies outside
// of device memory ends the launch.
void Checker::check_elsewhere(const Access& access) {
    if (launch_->memory.holds(access.address)) {
        worked_[access.slot.thread()] = true;
        report(OUT_OF_BOUNDS, access);
        return;
    }
    const char* stack = running_block->fiber()->stack;
    if (Range{stack, stack + GUARD_BYTES + STACK_BYTES}.holds(access.address)) return;
    if (Range{launch_->arguments, launch_->arguments + launch_->kernel->parameter_bytes}.holds(
            access.address))
        return;
    if (launch_->checks->image.holds(access.address)) return;
    report(OUT_OF_BOUNDS, access);
    running_block->fail(ILLEGAL_ADDRESS, "access outside of all allocations");
}

// Initialisation and races

inline bool Checker::conflicts(Slot earlier, Slot slot, uint32_t first_stamp) const {
    return !is_past(earlier, slot.thread(), first_stamp) && (earlier.bytes() & slot.bytes()) != 0 &&
           !(earlier.is_atomic() && slot.is_atomic());
}

// A reader whose load comes before this one is not needed any more: who is ordered after this one is after it too.
inline bool Checker::replaces(Slot& reader, Slot slot, uint32_t first_stamp) const {
    if (!is_past(reader, slot.thread(), first_stamp)) return false;
    const bool extends = reader.thread() == slot.thread() && reader.stamp() == slot.stamp();
    reader = extends ? slot.with(reader.bytes()) : slot;
    return true;
}

// Of readers at the same time two are kept, of different warps where there are.
inline void Checker::note_load(Cell& cell, Slot slot, uint32_t first_stamp) {
    Slot &reader = cell.readers[0], &other = cell.readers[1];
    if (replaces(reader, slot, first_stamp) || replaces(other, slot, first_stamp)) return;
    const unsigned warp = reader.thread() / WARP;
    if (other.thread() / WARP == warp && slot.thread() / WARP != warp && reader.stamp() >= block_first_ &&
        other.stamp() >= block_first_)
        other = slot;
}

inline void Checker::check_load(Cell& cell, const Access& access, uint32_t first_stamp) {
    const Slot slot = access.slot, writer = cell.writer;
    // A load may go beside atomicCAS, which finds out whether the value is still the loaded one.
    if (conflicts(writer, slot, first_stamp) && !writer.is_compare())
        report_race(writer, writer.is_atomic() ? ATOMIC : STORE, access);
    note_load(cell, slot, first_stamp);
}

inline void Checker::check_change(Cell& cell, const Access& access, uint32_t first_stamp) {
    const Slot slot = access.slot, writer = cell.writer;
    if (conflicts(writer, slot, first_stamp))
        report_race(writer, writer.is_atomic() ? ATOMIC : STORE, access);
    const Slot reader = cell.readers[0], other = cell.readers[1];
    if (conflicts(reader, slot, first_stamp) && !slot.is_compare()) report_race(reader, LOAD, access);
    if (conflicts(other, slot, first_stamp) && !slot.is_compare()) report_race(other, LOAD, access);
    if (((reader.bytes() | other.bytes()) & ~slot.bytes()) == 0) cell.readers[0] = cell.readers[1] = {};
    // Of the same thread's plain store others need to know, more than of the atomic that follows it.
    const bool is_same = writer.thread() == slot.thread();
    if (is_same && slot.is_atomic() && !writer.is_atomic() && writer.stamp() >= barrier_) return;
    const bool extends = is_same && writer.stamp() == slot.stamp() && writer.is_atomic() == slot.is_atomic();
    cell.writer = extends ? slot.with(writer.bytes()) : slot;
}

// Most often all cells of an access know the same: then one is looked at, and the others become like it.
template <class Check>
inline void Checker::check_each(Cell* cells, size_t count, Check check) {
    Cell before, after;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || !(cells[i] == before)) {
            before = after = cells[i];
            check(after);
        }
        cells[i] = after;
    }
}

void Checker::check_cells(Cell* cells, size_t count, const Access& access, uint32_t first_stamp) {
    if (is_load(access.kind)) {
        check_each(cells, count, [&](Cell& cell) { check_load(cell, access, first_stamp); });
    } else {
        check_each(cells, count, [&](Cell& cell) { check_change(cell, access, first_stamp); });
    }
}

inline void Checker::check_bytes(Cell* cells, uint64_t* unwritten, size_t offset, size_t bytes,
                                 const Access& access, uint32_t first_stamp) {
    const bool is_aligned = access.kind == UNALIGNED_LOAD || access.kind == UNALIGNED_STORE ||
                            (number_of(access.address) & (access.bytes - 1)) == 0;
    if (!is_aligned) report(MISALIGNED_ACCESS, access);
    if (is_load(access.kind) || is_atomic(access.kind)) {
        if (is_any_set(unwritten, offset, bytes)) report(UNINITIALISED_READ, access);
    }
    if (!is_load(access.kind)) set_bits(unwritten, offset, bytes, false);
    if ((offset | bytes) % CELL == 0) {
        check_cells(cells + offset / CELL, bytes / CELL, access, first_stamp);
    } else {
        check_halves(cells, offset, bytes, access, first_stamp);
    }
}

// Of cells of which only a part is used.
void Checker::check_halves(Cell* cells, size_t offset, size_t bytes, Access access, uint32_t first_stamp) {
    const Slot slot = access.slot;
    for (size_t cell = offset / CELL; cell <= (offset + bytes - 1) / CELL; cell++) {
        const unsigned begin = cell * CELL < offset ? 2 : 3, end = cell * CELL + 1 < offset + bytes ? 3 : 1;
        access.slot = slot.of(begin & end);
        check_cells(cells + cell, 1, access, first_stamp);
    }
}

// What global memory holds

void Checker::mark(uintptr_t begin, size_t bytes, bool is_written) {
    for (const uintptr_t end = begin + bytes; begin < end;) {
        const size_t offset = begin % PAGE, n = std::min(end - begin, PAGE - offset);
        const auto known = pages_.find(begin / PAGE);
        if (!is_written || known != pages_.end())
            set_bits(pages_[begin / PAGE].unwritten, offset, n, !is_written);
        begin += n;
    }
}

void Checker::forget() {
    pages_.clear();
    std::fill(std::begin(known_pages_), std::end(known_pages_), KnownPage{});
}

// Where the address is in an array, its page and the array become known.
bool Checker::find_page(const char* address, KnownPage& known) {
    const Range *first = launch_->checks->arrays, *end = first + launch_->checks->num_arrays;
    const Range* behind = std::upper_bound(first, end, address,
                                           [](const char* a, const Range& array) { return a < array.begin; });
    if (behind == first || !behind[-1].holds(address)) return false;
    const uintptr_t number = number_of(address) / PAGE;
    known = {number, known.number == number ? known.page : &pages_[number], behind[-1]};
    return true;
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
    running_block->index(place->array->name, index,
                         numbered_line(place->file, static_cast<int>(place->line)));
}
}
