// What the checker found, as reports.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "checker.h"

namespace pagedlab {

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

void Checker::report_race(Slot earlier, AccessKind earlier_kind, const Access& access) {
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

// The space in which an address lies, or beside which, and where in it.
std::pair<Space, uint64_t> Checker::locate(const char* address) {
    constexpr ptrdiff_t NEAR = 1 << 16;
    const ptrdiff_t from_static = address - static_shared_, from_dynamic = address - dynamic_shared_;
    if (launch_->memory.holds(address) || find_page(address, known_page(number_of(address))))
        return {GLOBAL, number_of(address)};
    // The two may lie beside one another.
    const bool is_dynamic = from_dynamic >= 0 && from_dynamic < static_cast<ptrdiff_t>(MAX_SHARED);
    if (!is_dynamic && launch_->static_shared > 0 && from_static > -NEAR && from_static < NEAR)
        return {STATIC_SHARED, static_cast<uint64_t>(from_static)};
    if (from_dynamic > -NEAR && from_dynamic < NEAR + static_cast<ptrdiff_t>(MAX_SHARED))
        return {DYNAMIC_SHARED, static_cast<uint64_t>(from_dynamic)};
    return {ELSEWHERE, number_of(address)};
}

Report* Checker::report(Verdict verdict, const Access& access) {
    Place where = running_block->place(access.slot.thread(), 0);
    where.instruction = access.instruction;
    where.kind = access.kind;
    Report* found = report(verdict, true, where);
    if (found != nullptr) {
        const auto [space, offset] = locate(access.address);
        found->space = space;
        found->address = offset;
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

Place Checker::place(Slot slot, int kind) const {
    const auto behind =
        std::upper_bound(blocks_.begin(), blocks_.end(), slot.stamp(),
                         [](uint32_t stamp, const auto& block) { return stamp < block.first; });
    Place where = running_block->place(slot.thread(), 0);
    const uint3 block = behind[-1].second;
    where.block[0] = block.x;
    where.block[1] = block.y;
    where.block[2] = block.z;
    where.instruction = launch_->code.begin + slot.site();
    where.kind = kind;
    return where;
}

}  // namespace pagedlab
