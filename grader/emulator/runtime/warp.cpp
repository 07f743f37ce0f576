// What the lanes of a warp get from one another once they have met.
#include "block.h"

namespace pagedlab {

namespace {

constexpr uint64_t UNDEFINED =
    ~uint64_t{0};  // what a lane that is not there gives: NaN as a floating point number

uint64_t reduced(int operation, uint64_t a, uint64_t b) {
    const auto x = static_cast<uint32_t>(a), y = static_cast<uint32_t>(b);
    const auto signed_x = static_cast<int32_t>(x), signed_y = static_cast<int32_t>(y);
    switch (operation) {
        case BALLOT:
            return a | b;  // each lane brings its own bit
        case ADD:
            return x + y;
        case MIN:
            return x < y ? x : y;
        case MAX:
            return x > y ? x : y;
        case SIGNED_MIN:
            return signed_x < signed_y ? x : y;
        case SIGNED_MAX:
            return signed_x > signed_y ? x : y;
        case AND:
            return x & y;
        case OR:
            return x | y;
        default:
            return x ^ y;
    }
}

}  // namespace

void Block::combine(const Meeting& meeting, Thread* lanes) {
    uint64_t common = lanes[__builtin_ctz(meeting.arrived)].value;
    if (meeting.operation < MATCH) {
        for (unsigned rest = meeting.arrived & (meeting.arrived - 1); rest != 0; rest &= rest - 1) {
            common = reduced(meeting.operation, common, lanes[__builtin_ctz(rest)].value);
        }
    }
    for (unsigned rest = meeting.arrived; rest != 0; rest &= rest - 1) {
        Thread& lane = lanes[__builtin_ctz(rest)];
        lane.result = common;
        if (meeting.operation >= SHUFFLE) {
            const unsigned source = static_cast<unsigned>(lane.source_lane) % WARP;
            lane.result = meeting.arrived >> source & 1 ? lanes[source].value : UNDEFINED;
        } else if (meeting.operation == MATCH) {
            lane.result = 0;
            for (unsigned others = meeting.arrived; others != 0; others &= others - 1) {
                const unsigned other = static_cast<unsigned>(__builtin_ctz(others));
                if (lanes[other].value == lane.value) lane.result |= 1u << other;
            }
        }
    }
}

}  // namespace pagedlab
