// A warp's request: lanes run one after the other here, so that accesses are first noted per lane and then put
// together by instruction and by how often the lane has been there, as if the lanes had run in step.
#include "recorder.h"

#include <algorithm>
#include <mutex>

#include "block.h"

namespace pagedlab {

namespace {

constexpr uintptr_t SECTOR = 32;
constexpr unsigned BANKS = 32, BANK_BYTES = 4;
constexpr unsigned MAX_LOG = 1 << 12;  // accesses of one lane that are kept, when others can still catch up
constexpr size_t KEPT_CAPACITY = 64;   // of an empty log

// Sorts the values; the first so many are the different ones.
size_t distinct(std::vector<uintptr_t>& values) {
    if (!std::is_sorted(values.begin(), values.end())) std::sort(values.begin(), values.end());
    return static_cast<size_t>(std::unique(values.begin(), values.end()) - values.begin());
}

size_t slot_of(const SiteTable& table, const Site& site) {
    return (site.instruction * 0x9e3779b97f4a7c15u >> 40 ^ site.kind ^ site.space << 3) % table.SLOTS;
}

// The table's entry for the same instruction, kind and memory; null when it is full.
Site* entry_of(SiteTable& table, const Site& site) {
    for (size_t tried = 0; tried < table.SLOTS; tried++) {
        Site& slot = table.slots[(slot_of(table, site) + tried) % table.SLOTS];
        if (slot.instruction == 0) {
            slot.instruction = site.instruction;
            slot.kind = site.kind;
            slot.space = site.space;
            return &slot;
        }
        const bool is_same = slot.instruction == site.instruction && slot.kind == site.kind;
        if (is_same && slot.space == site.space) return &slot;
    }
    return nullptr;
}

// Of words in shared memory: how many the busiest bank has.
uint64_t busiest_bank(const std::vector<uintptr_t>& words, size_t count) {
    uint64_t loads[BANKS] = {};
    for (size_t i = 0; i < count; i++) loads[words[i] % BANKS]++;
    return *std::max_element(loads, loads + BANKS);
}

bool is_worse(const WorstRequest& request, const WorstRequest& other) {
    return other.lanes == 0 || request.cost - request.ideal > other.cost - other.ideal;
}

void add_site(Site& total, const Site& site) {
    total.counts.requests += site.counts.requests;
    total.counts.lanes += site.counts.lanes;
    total.counts.bytes += site.counts.bytes;
    total.counts.divergent += site.counts.divergent;
    total.counts.cost += site.counts.cost;
    total.counts.ideal += site.counts.ideal;
    total.counts.addresses += site.counts.addresses;
    if (site.worst.lanes != 0 && is_worse(site.worst, total.worst)) total.worst = site.worst;
}

}  // namespace

void Recorder::begin(Launch& launch, unsigned num_threads) {
    launch_ = &launch;
    counts_ = {};
    static_shared_ = dynamic_shared_ = {};
    if (launch.sites != nullptr) {
        const char* begin = launch.shared_anchor() - launch.anchor_offset;
        static_shared_ = {begin, begin + launch.static_shared};
        dynamic_shared_ = {dynamic_shared, dynamic_shared + launch.dynamic_shared};
    }
    thread_accesses_.assign(num_threads, 0);
    if (launch.code.begin != code_) {  // modules are never unloaded
        code_ = launch.code.begin;
        numbers_.clear();
        sites_.clear();
        for (WarpLog& log : logs_) log.sites.clear();
    }
    for (Site& site : sites_) {
        site.counts = {};
        site.worst.lanes = 0;
    }
    if (!is_finished_) logs_.clear();  // the last block failed
    is_finished_ = false;
    logs_.resize(std::max<size_t>(logs_.size(), (num_threads + WARP - 1) / WARP));
    last_argument_ = 0;
}

bool Recorder::add(unsigned thread, const void* address, size_t bytes, AccessKind kind,
                   const void* instruction) {
    const char* place = static_cast<const char*>(address);
    const SiteKind does = is_atomic(kind) ? SITE_ATOMIC : is_load(kind) ? SITE_LOAD : SITE_STORE;
    const auto size = static_cast<unsigned>(bytes);
    if (launch_->memory.holds(place)) {
        thread_accesses_[thread]++;
        return note(thread, site_of(instruction, does, GLOBAL), {reinterpret_cast<uintptr_t>(place), size});
    }
    for (const Space space : {STATIC_SHARED, DYNAMIC_SHARED}) {
        const Range& range = space == STATIC_SHARED ? static_shared_ : dynamic_shared_;
        if (!range.holds(place)) continue;
        return note(thread, site_of(instruction, does, space),
                    {static_cast<uintptr_t>(place - range.begin), size});
    }
    return false;  // a variable of the thread
}

void Recorder::add_meeting(unsigned thread, SiteKind kind, const void* instruction) {
    if (launch_->sites != nullptr) note(thread, site_of(instruction, kind, ELSEWHERE), {0, 0});
}

unsigned Recorder::site_of(const void* instruction, SiteKind kind, Space space) {
    const uint64_t place = reinterpret_cast<uintptr_t>(instruction);
    const auto [entry, is_new] =
        numbers_.try_emplace(place << 5 | kind << 2 | space, static_cast<unsigned>(sites_.size()));
    if (is_new) {
        sites_.push_back({});
        sites_.back().instruction = place;
        sites_.back().kind = kind;
        sites_.back().space = space;
    }
    return entry->second;
}

bool Recorder::note(unsigned thread, unsigned site, Access access) {
    WarpLog& log = logs_[thread / WARP];
    const unsigned lane = thread % WARP;
    if (log.sites.size() <= site) log.sites.resize(sites_.size());
    SiteLog& at = log.sites[site];
    if (at.lanes == 0) log.touched.push_back(site);
    at.lanes |= 1u << lane;
    log.active |= 1u << lane;
    at.accesses[lane].push_back(access);
    return ++log.lengths[lane] >= MAX_LOG;
}

void Recorder::end_requests(unsigned warp) {
    WarpLog& log = logs_[warp];
    for (unsigned site : log.touched) take(warp, site, SIZE_MAX);
    log.touched.clear();
    log.active = 0;
}

// A request is complete once those of the lanes ahead that come to its site at all have passed it: lanes that wait for
// another reason meet them before they go on. Where this leaves a lane no room, all that there is counts as complete.
void Recorder::end_common_requests(unsigned warp, unsigned lanes_ahead) {
    WarpLog& log = logs_[warp];
    for (unsigned site : log.touched) {
        const SiteLog& at = log.sites[site];
        size_t complete = SIZE_MAX;
        for (unsigned lanes = lanes_ahead & at.lanes; lanes != 0; lanes &= lanes - 1) {
            complete = std::min(complete, at.accesses[__builtin_ctz(lanes)].size());
        }
        if (complete != SIZE_MAX) take(warp, site, complete);
    }
    const auto is_done = [&](unsigned site) { return log.sites[site].lanes == 0; };
    log.touched.erase(std::remove_if(log.touched.begin(), log.touched.end(), is_done), log.touched.end());
    unsigned longest = 0;
    for (unsigned lanes = lanes_ahead; lanes != 0; lanes &= lanes - 1) {
        longest = std::max(longest, log.lengths[__builtin_ctz(lanes)]);
    }
    if (longest > MAX_LOG / 8 * 7) end_requests(warp);
}

// Counts the first so many requests at a site and forgets them.
void Recorder::take(unsigned warp, unsigned site, size_t requests) {
    WarpLog& log = logs_[warp];
    SiteLog& at = log.sites[site];
    size_t most = 0;
    for (const auto& accesses : at.accesses) most = std::max(most, accesses.size());
    requests = std::min(requests, most);
    for (size_t i = 0; i < requests; i++) {
        Request request;
        for (unsigned lanes = at.lanes; lanes != 0; lanes &= lanes - 1) {
            const auto lane = static_cast<unsigned>(__builtin_ctz(lanes));
            if (i >= at.accesses[lane].size()) continue;
            request.lanes |= 1u << lane;
            request.of[lane] = at.accesses[lane][i];
        }
        count(sites_[site], request, warp);
    }
    for (unsigned lane = 0; lane < WARP; lane++) {
        auto& accesses = at.accesses[lane];
        const size_t taken = std::min(requests, accesses.size());
        accesses.erase(accesses.begin(), accesses.begin() + static_cast<ptrdiff_t>(taken));
        log.lengths[lane] -= static_cast<unsigned>(taken);
        if (!accesses.empty()) continue;
        at.lanes &= ~(1u << lane);
        if (accesses.capacity() > KEPT_CAPACITY) std::vector<Access>().swap(accesses);
    }
}

void Recorder::count(Site& site, const Request& request, unsigned warp) {
    uint64_t bytes = 0;
    for (unsigned lanes = request.lanes; lanes != 0; lanes &= lanes - 1) {
        bytes += request.of[__builtin_ctz(lanes)].bytes;
        site.counts.lanes++;
    }
    site.counts.requests++;
    site.counts.bytes += bytes;
    site.counts.divergent += request.lanes != logs_[warp].active;
    if (bytes == 0) return;
    const bool is_global = site.space == GLOBAL;
    const Cost cost = is_global ? global_cost(request, bytes) : shared_cost(request);
    if (is_global) count_in_total(site.kind, request, bytes, cost);
    if (launch_->sites == nullptr) return;
    site.counts.cost += cost.actual;
    site.counts.ideal += cost.ideal;
    if (site.kind == SITE_ATOMIC) site.counts.addresses += distinct_addresses(request);
    WorstRequest worst{cost.actual, cost.ideal, request.lanes, 0, {}, warp, {}};
    if (!is_worse(worst, site.worst)) return;
    worst.bytes = request.of[__builtin_ctz(request.lanes)].bytes;
    const unsigned block[] = {block_index.x, block_index.y, block_index.z};
    std::copy_n(block, 3, worst.block);
    for (unsigned lane = 0; lane < WARP; lane++) worst.addresses[lane] = request.of[lane].address;
    site.worst = worst;
}

void Recorder::count_in_total(uint32_t kind, const Request& request, uint64_t bytes, Cost cost) {
    const bool is_counted[] = {kind != SITE_STORE, kind != SITE_LOAD};  // an atomic loads and stores
    for (int i = 0; i < 2; i++) {
        if (!is_counted[i]) continue;
        counts_.bytes[i] += bytes;
        counts_.sectors[i] += cost.actual;
        counts_.ideal_sectors[i] += cost.ideal;
    }
    for (unsigned lanes = request.lanes; lanes != 0; lanes &= lanes - 1) {
        const Access& access = request.of[__builtin_ctz(lanes)];
        counts_.accesses++;
        uint64_t* argument = argument_counts(reinterpret_cast<const char*>(access.address));
        if (argument == nullptr) continue;
        for (int i = 0; i < 2; i++) argument[i] += is_counted[i] ? access.bytes : 0;
    }
}

Recorder::Cost Recorder::global_cost(const Request& request, uint64_t bytes) {
    pieces_.clear();
    for (unsigned lanes = request.lanes; lanes != 0; lanes &= lanes - 1) {
        add_pieces(request.of[__builtin_ctz(lanes)], SECTOR);
    }
    const uint64_t sectors = distinct(pieces_);
    // Lanes that read the same bytes need even fewer sectors than their bytes fill.
    return {sectors, std::min(sectors, (bytes + SECTOR - 1) / SECTOR)};
}

// As many lanes as have 128 bytes together are served at once: all, a half or a quarter of a warp.
Recorder::Cost Recorder::shared_cost(const Request& request) {
    unsigned most = BANK_BYTES;
    for (unsigned lanes = request.lanes; lanes != 0; lanes &= lanes - 1) {
        most = std::max(most, request.of[__builtin_ctz(lanes)].bytes);
    }
    const unsigned together = std::max(1u, BANKS * BANK_BYTES / most);
    Cost cost{0, 0};
    for (unsigned first = 0; first < WARP; first += together) {
        pieces_.clear();
        for (unsigned lane = first; lane < std::min(WARP, first + together); lane++) {
            if (request.lanes >> lane & 1) add_pieces(request.of[lane], BANK_BYTES);
        }
        if (pieces_.empty()) continue;
        const uint64_t words = distinct(pieces_);
        cost.actual += busiest_bank(pieces_, words);
        cost.ideal += (words + BANKS - 1) / BANKS;
    }
    return cost;
}

// The parts of memory of this size that an access touches.
void Recorder::add_pieces(const Access& access, uintptr_t size) {
    for (uintptr_t i = access.address / size; i <= (access.address + access.bytes - 1) / size; i++) {
        pieces_.push_back(i);
    }
}

uint64_t Recorder::distinct_addresses(const Request& request) {
    pieces_.clear();
    for (unsigned lanes = request.lanes; lanes != 0; lanes &= lanes - 1) {
        pieces_.push_back(request.of[__builtin_ctz(lanes)].address);
    }
    return distinct(pieces_);
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
    for (size_t i = 0; launch_->sites != nullptr && i < sites_.size(); i++) {
        if (sites_[i].counts.requests == 0) continue;
        Site* total_of_site = entry_of(*launch_->sites, sites_[i]);
        if (total_of_site != nullptr) {
            add_site(*total_of_site, sites_[i]);
        } else {
            launch_->sites->lost += sites_[i].counts.requests;
        }
    }
    is_finished_ = true;
}

}  // namespace pagedlab
