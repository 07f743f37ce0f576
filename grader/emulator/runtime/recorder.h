// What the threads of one block did in memory, put together as requests of warps: for the counters and the profile.
#pragma once

#include <unordered_map>
#include <vector>

#include "runtime.h"

namespace pagedlab {

class Recorder {
  public:
    void begin(Launch& launch, unsigned num_threads);

    // One access of a thread, by one instruction of the kernel. True: the thread is far ahead and should wait until the
    // other lanes of its warp have come as far.
    bool add(unsigned thread, const void* address, size_t bytes, AccessKind kind, const void* instruction);
    // A barrier or a shuffle of a thread, called by the instruction.
    void add_meeting(unsigned thread, SiteKind kind, const void* instruction);
    // The warp's lanes have met: their accesses from here on belong to new requests.
    void end_requests(unsigned warp);
    // All lanes of the warp wait, these because they are far ahead: counts what no lane can add to any more.
    void end_common_requests(unsigned warp, unsigned lanes_ahead);
    // Adds the block's counts to its launch's.
    void finish(uint64_t barriers, uint64_t shuffles);

  private:
    struct Access {
        uintptr_t address;  // in shared memory: from its begin
        unsigned bytes;
    };
    // What a warp's lanes did at one site since they last met. The n-th accesses of all lanes are one request.
    struct SiteLog {
        unsigned lanes = 0;  // that have any
        std::vector<Access> accesses[WARP];
    };
    struct WarpLog {
        std::vector<SiteLog> sites;  // by number
        std::vector<unsigned> touched;
        unsigned active = 0;  // lanes that did anything since they last met
        unsigned lengths[WARP] = {};
    };
    struct Request {
        unsigned lanes = 0;
        Access of[WARP];
    };
    struct Cost {
        uint64_t actual, ideal;
    };

    unsigned site_of(const void* instruction, SiteKind kind, Space space);
    bool note(unsigned thread, unsigned site, Access access);
    void take(unsigned warp, unsigned site, size_t requests);
    void count(Site& site, const Request& request, unsigned warp);
    void count_in_total(uint32_t kind, const Request& request, uint64_t bytes, Cost cost);
    Cost global_cost(const Request& request, uint64_t bytes);
    Cost shared_cost(const Request& request);
    uint64_t distinct_addresses(const Request& request);
    void add_pieces(const Access& access, uintptr_t size);
    uint64_t* argument_counts(const char* address);

    Launch* launch_ = nullptr;
    bool is_finished_ = true;
    Range static_shared_{}, dynamic_shared_{};
    Counters counts_{};
    std::vector<WarpLog> logs_;
    std::vector<uint64_t> thread_accesses_;
    const char* code_ = nullptr;  // of the module whose sites these are
    std::unordered_map<uint64_t, unsigned> numbers_;
    std::vector<Site> sites_;
    std::vector<uintptr_t> pieces_;  // of a request
    unsigned last_argument_ = 0;
};

}  // namespace pagedlab
