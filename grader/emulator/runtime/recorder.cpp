// A warp's request: lanes run one after the other here, so that accesses are first noted per lane and then put
// together by instruction and by how often the lane has been there, as if the lanes had run in step.
#include "recorder.h"

#include <algorithm>
#include <mutex>

#include "block.h"

namespace pagedlab {

constexpr uintptr_t SECTOR = 32;
constexpr size_t MAX_LOG = size_t{1} << 20;  // accesses of one lane between meetings

void Recorder::begin(Launch& launch, unsigned num_threads) {
    launch_ = &launch;
    counts_ = {};
    if (logs_.size() < num_threads) logs_.resize((num_threads + WARP - 1) / WARP * WARP);
    thread_accesses_.assign(num_threads, 0);
    sites_.clear();  // another module may be where one was
    site_stores_.clear();
    last_argument_ = 0;
}

void Recorder::add(unsigned thread, const void* address, size_t bytes, AccessKind kind,
                   const void* instruction) {
    if (!launch_->memory.holds(address)) return;
    if (is_load(kind) || kind == ATOMIC) add_request(thread, address, bytes, false, instruction);
    if (!is_load(kind)) add_request(thread, address, bytes, true, instruction);
}

void Recorder::add_request(unsigned thread, const void* address, size_t bytes, bool is_store,
                           const void* instruction) {
    // An atomic reads and writes at one instruction: two sites.
    const char* site = static_cast<const char*>(instruction) + is_store;
    const auto [entry, is_new] = sites_.try_emplace(site, static_cast<unsigned>(site_stores_.size()));
    if (is_new) site_stores_.push_back(is_store);
    thread_accesses_[thread]++;
    logs_[thread].push_back(
        {reinterpret_cast<uintptr_t>(address), entry->second, 0, static_cast<unsigned>(bytes)});
    if (logs_[thread].size() >= MAX_LOG) end_requests(thread / WARP);
}

void Recorder::end_requests(unsigned warp) {
    auto* lanes = &logs_[warp * WARP];
    const size_t num_sites = site_stores_.size();
    first_request_.assign(num_sites + 1, 0);
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (lanes[lane].empty()) continue;
        occurrences_.assign(num_sites, 0);
        for (Access& access : lanes[lane]) access.occurrence = occurrences_[access.site]++;
        for (size_t s = 0; s < num_sites; s++) {
            first_request_[s + 1] = std::max(first_request_[s + 1], occurrences_[s]);
        }
    }
    for (size_t s = 0; s < num_sites; s++) first_request_[s + 1] += first_request_[s];
    requests_.resize(first_request_[num_sites]);
    for (WarpRequest& request : requests_) request.lanes = 0;
    for (unsigned lane = 0; lane < WARP; lane++) {
        for (const Access& access : lanes[lane]) {
            WarpRequest& request = requests_[first_request_[access.site] + access.occurrence];
            request.addresses[request.lanes++] = access.address;
            request.bytes = access.bytes;
            request.is_store = site_stores_[access.site];
        }
        lanes[lane].clear();
    }
    for (const WarpRequest& request : requests_) count(request);
}

void Recorder::count(const WarpRequest& request) {
    uintptr_t sectors[2 * WARP];
    unsigned touched = 0;
    for (unsigned i = 0; i < request.lanes; i++) {
        const uintptr_t address = request.addresses[i], last = (address + request.bytes - 1) / SECTOR;
        sectors[touched++] = address / SECTOR;
        if (last != address / SECTOR) sectors[touched++] = last;
        uint64_t* argument = argument_counts(reinterpret_cast<const char*>(address));
        if (argument != nullptr) argument[request.is_store] += request.bytes;
    }
    if (!std::is_sorted(sectors, sectors + touched)) std::sort(sectors, sectors + touched);
    const auto distinct = static_cast<uint64_t>(std::unique(sectors, sectors + touched) - sectors);
    const uint64_t bytes = uint64_t{request.lanes} * request.bytes;
    counts_.accesses += request.lanes;
    counts_.bytes[request.is_store] += bytes;
    counts_.sectors[request.is_store] += distinct;
    // Lanes that read the same bytes need even fewer sectors than their bytes fill.
    counts_.ideal_sectors[request.is_store] += std::min(distinct, (bytes + SECTOR - 1) / SECTOR);
}

// The counts of the pointer argument whose allocation holds the address, most often that of the last time.
uint64_t* Recorder::argument_counts(const char* address) {
    for (unsigned tried = 0; tried < launch_->num_pointers; tried++) {
        if (launch_->pointed_into[last_argument_].holds(address)) return counts_.arguments[last_argument_];
        last_argument_ = (last_argument_ + 1) % launch_->num_pointers;
    }
    return nullptr;
}

void Recorder::finish(uint64_t barriers, uint64_t shuffles) {
    static std::mutex adding;
    const size_t num_threads = thread_accesses_.size();
    const uint64_t most = *std::max_element(thread_accesses_.begin(), thread_accesses_.end());

    std::lock_guard<std::mutex> guard(adding);
    Counters& total = *launch_->counters;
    total.threads += num_threads;
    total.blocks++;
    total.barriers = std::max(total.barriers, barriers);
    total.shuffles += shuffles;
    total.max_thread_accesses = std::max(total.max_thread_accesses, most);
    total.accesses += counts_.accesses;
    for (int kind = 0; kind < 2; kind++) {
        total.bytes[kind] += counts_.bytes[kind];
        total.sectors[kind] += counts_.sectors[kind];
        total.ideal_sectors[kind] += counts_.ideal_sectors[kind];
        for (unsigned i = 0; i < launch_->num_pointers; i++)
            total.arguments[i][kind] += counts_.arguments[i][kind];
    }
}

}  // namespace pagedlab
