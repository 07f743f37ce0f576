// What the threads of one block read and wrote in global memory, for the counters.
#pragma once

#include <unordered_map>
#include <vector>

#include "runtime.h"

namespace pagedlab {

class Recorder {
  public:
    void begin(Launch& launch, unsigned num_threads);

    // One access of a thread, by one instruction of the kernel; only those to global memory count.
    void add(unsigned thread, const void* address, size_t bytes, AccessKind kind, const void* instruction);
    // The warp's lanes have met: their accesses from here on belong to new requests.
    void end_requests(unsigned warp);
    // Adds the block's counts to its launch's.
    void finish(uint64_t barriers, uint64_t shuffles);

  private:
    void add_request(unsigned thread, const void* address, size_t bytes, bool is_store,
                     const void* instruction);

    struct Access {
        uintptr_t address;
        unsigned site, occurrence;  // how often this lane was at the site since the lanes last met
        unsigned bytes;
    };
    // The accesses of a warp's lanes at one site, each lane's for the same time.
    struct WarpRequest {
        uintptr_t addresses[32];
        unsigned lanes, bytes;
        bool is_store;
    };

    void count(const WarpRequest& request);
    uint64_t* argument_counts(const char* address);

    Launch* launch_ = nullptr;
    Counters counts_{};
    std::vector<std::vector<Access>> logs_;  // per thread
    std::vector<uint64_t> thread_accesses_;
    std::unordered_map<const char*, unsigned>
        sites_;  // numbers; a site is an instruction that loads or stores
    std::vector<bool> site_stores_;
    std::vector<unsigned> occurrences_, first_request_;  // per site
    std::vector<WarpRequest> requests_;
    unsigned last_argument_ = 0;
};

}  // namespace pagedlab
