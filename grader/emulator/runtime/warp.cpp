// What the lanes of a warp get from one another once they have met.
#include "block.h"

namespace pagedlab {

namespace {

constexpr uint64_t UNDEFINED = ~uint64_t{0};  // what a lane that is not there gives: NaN as a floating point number

bool has_lane(unsigned mask, unsigned lane) { return mask >> lane & 1; }

uint64_t reduced(int operation, uint64_t a, uint64_t b) {
    const auto x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
    const auto signed_x = static_cast<int32_t>(x), signed_y = static_cast<int32_t>(y);
    switch (operation) {
        case ADD: return x + y;
        case MIN: return x < y ? x : y;
        case MAX: return x > y ? x : y;
        case SIGNED_MIN: return signed_x < signed_y ? x : y;
        case SIGNED_MAX: return signed_x > signed_y ? x : y;
        case AND: return x & y;
        case OR: return x | y;
        default: return x ^ y;
    }
}

// Lanes whose value fulfils the test, as a mask.
template <class Test>
unsigned lanes_where(const Thread* lanes, unsigned arrived, Test test) {
    unsigned found = 0;
    for (unsigned i = 0; i < WARP; i++) {
        if (has_lane(arrived, i) && test(lanes[i].value)) found |= 1u << i;
    }
    return found;
}

}  // namespace

void Block::combine(const Meeting& meeting, Thread* lanes) {
    const unsigned arrived = meeting.arrived;
    uint64_t common = 0;
    if (meeting.operation == BALLOT) {
        common = lanes_where(lanes, arrived, [](uint64_t value) { return value != 0; });
    } else if (meeting.operation > BALLOT && meeting.operation < MATCH) {
        unsigned rest = arrived;
        common = lanes[__builtin_ctz(rest)].value;
        while (rest &= rest - 1) common = reduced(meeting.operation, common, lanes[__builtin_ctz(rest)].value);
    }
    for (unsigned rest = arrived; rest != 0; rest &= rest - 1) {
        Thread& lane = lanes[__builtin_ctz(rest)];
        if (meeting.operation >= SHUFFLE) {
            const unsigned source = static_cast<unsigned>(lane.source_lane) % WARP;
            lane.result = has_lane(arrived, source) ? lanes[source].value : UNDEFINED;
        } else if (meeting.operation == MATCH) {
            lane.result = lanes_where(lanes, arrived, [&](uint64_t value) { return value == lane.value; });
        } else {
            lane.result = common;
        }
    }
}

}  // namespace pagedlab
