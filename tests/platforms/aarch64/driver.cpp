// Launches the kernels of kernels.cu where no Python runs, and compares what they do.
//
// Arguments: for the plain and for the instrumented module its file and, from Module of grader/emulator/compiler/toolchain.py,
// reference, code (begin, bytes), image_bytes, shared_anchor, shared_bytes, and begin and bytes of `flawed`'s tile.
// Prints the name of each case that is right; the others with what was wrong, and exits with 1.
#include <dlfcn.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "runtime.h"

using namespace pagedlab;

extern "C" {
void pagedlab_start(unsigned num_cores);
void pagedlab_catch_faults(int control);
void pagedlab_launch(Launch* launch);
void pagedlab_mark(uintptr_t begin, size_t bytes, bool is_written);
}

namespace {

constexpr size_t MEMORY_BYTES = 1 << 20;
constexpr unsigned NUM_SEEDS = 3;
char* memory;
bool is_right = true;

struct Module {
    void* library;
    char* base;
    long code_begin, code_bytes, image_bytes, anchor, shared_bytes, tile_begin, tile_bytes;

    explicit Module(char** given) : library(dlopen(given[0], RTLD_NOW | RTLD_LOCAL)) {
        if (library == nullptr) {
            fprintf(stderr, "%s\n", dlerror());
            exit(1);
        }
        const long reference = atol(given[1]);
        base = static_cast<char*>(dlsym(library, "pagedlab_shared")) - reference;
        long* fields[] = {&code_begin,   &code_bytes, &image_bytes, &anchor,
                          &shared_bytes, &tile_begin, &tile_bytes};
        for (int i = 0; i < 7; i++) *fields[i] = atol(given[2 + i]);
    }

    Launch launch(const char* name, unsigned grid, unsigned block) const {
        Launch launch{};
        launch.kernel =
            static_cast<const Kernel*>(dlsym(library, (std::string("pagedlab_kernel_") + name).c_str()));
        launch.name = name;
        launch.shared_anchor = reinterpret_cast<char* (*)()>(dlsym(library, "pagedlab_shared"));
        launch.anchor_offset = static_cast<size_t>(anchor);
        launch.static_shared = static_cast<size_t>(shared_bytes);
        launch.code = {base + code_begin, base + code_begin + code_bytes};
        launch.memory = {memory, memory + MEMORY_BYTES};
        for (int i = 0; i < 3; i++) launch.grid[i] = launch.block[i] = 1;
        launch.grid[0] = grid;
        launch.block[0] = block;
        return launch;
    }
};

// The arguments of a kernel, each at a multiple of its size.
class Packed {
  public:
    template <class... Types>
    explicit Packed(Types... values) {
        (add(values), ...);
    }

    void run(Launch& launch) {
        launch.arguments = bytes_;
        pagedlab_launch(&launch);
    }

  private:
    template <class T>
    void add(T value) {
        end_ = (end_ + sizeof value - 1) / sizeof value * sizeof value;
        memcpy(bytes_ + end_, &value, sizeof value);
        end_ += sizeof value;
    }

    alignas(16) char bytes_[64] = {};
    size_t end_ = 0;
};

void expect(const std::string& name, bool holds, const Launch& launch) {
    is_right = is_right && holds;
    if (holds) {
        printf("%s\n", name.c_str());
    } else {
        printf("%s: wrong; error %d at %p: %s\n", name.c_str(), launch.code_of_error, launch.address,
               launch.detail);
    }
}

template <class Function>
bool all_of(const float* values, int count, Function wanted) {
    for (int i = 0; i < count; i++) {
        if (values[i] != static_cast<float>(wanted(i))) return false;
    }
    return true;
}

float* out() {
    return reinterpret_cast<float*>(memory);
}
float* input() {
    return reinterpret_cast<float*>(memory + MEMORY_BYTES / 2);
}

void check_results(const Module& module, const std::string& build) {
    for (unsigned seed = 0; seed < NUM_SEEDS; seed++) {
        const std::string which = build + " order " + std::to_string(seed);
        Launch floats = module.launch("float_state", 3, 128);
        floats.order_seed = seed;
        Packed(out(), 20).run(floats);
        expect(which + " float_state",
               all_of(out(), 3 * 128, [](int i) { return 12 * i + 34 + 20 * (36 + 10) + 20; }), floats);

        Launch sums = module.launch("row_sums", 4, 256);
        sums.dynamic_shared = 256 * sizeof(float);
        sums.order_seed = seed;
        Packed(out(), input(), 1000).run(sums);
        // Row r holds the whole numbers from 1000 r on.
        expect(which + " row_sums",
               all_of(out(), 4 * 256, [](int i) { return 1000 * (1000 * (i / 256)) + 499500; }), sums);

        auto* counts = reinterpret_cast<int*>(memory + MEMORY_BYTES / 4);
        counts[0] = counts[1] = 0;
        Launch lanes = module.launch("collectives", 8, 64);
        lanes.order_seed = seed;
        Packed(out(), counts).run(lanes);
        const bool sums_are_right = all_of(out(), 8 * 64, [](int i) {
            const int lane = i % 32;
            return 496 + 16 + (lane < 31 ? lane + 1 : 31) + 0.5;
        });
        expect(which + " collectives", sums_are_right && counts[0] == 512 && counts[1] == 7, lanes);
    }
}

void check_faults(const Module& module, const std::string& build) {
    const char* const names[] = {"null", "stack", "__trap", "assert"};
    const int codes[] = {ILLEGAL_ADDRESS, LAUNCH_FAILED, LAUNCH_FAILED, ASSERT};
    const char* const texts[] = {"null pointer", "recursion too deep", "__trap() in line", "assertion"};
    for (int how = 0; how < 4; how++) {
        Launch launch = module.launch("fail", 2, 64);
        Packed(out(), how).run(launch);
        const bool names_place =
            strstr(launch.detail, "thread (40,0,0)") && strstr(launch.detail, texts[how]);
        const bool has_address = how != 0 || launch.address == reinterpret_cast<void*>(8);
        expect(build + " " + names[how], launch.code_of_error == codes[how] && names_place && has_address,
               launch);
    }
    Launch after = module.launch("fail", 2, 64);
    Packed(out(), -1).run(after);
    expect(build + " after faults",
           after.code_of_error == SUCCESS && all_of(out(), 64, [](int) { return 1; }), after);
}

template <class... Types>
Counters counted(const Module& module, const char* name, Launch& launch, Types... arguments) {
    Counters counters{};
    Range ranges[] = {{memory, memory + MEMORY_BYTES / 2},
                      {memory + MEMORY_BYTES / 2, memory + MEMORY_BYTES}};
    launch = module.launch(name, 1, 32);
    launch.counters = &counters;
    launch.pointed_into = ranges;
    launch.num_pointers = 2;
    Packed(arguments...).run(launch);
    return counters;
}

void check_counters(const Module& module) {
    Launch launch;
    Counters strided = counted(module, "copy_strided", launch, out(), input(), 2);
    expect("counted strides", strided.sectors[0] == 8 && strided.sectors[1] == 4 && strided.bytes[0] == 128,
           launch);
    Counters vectors = counted(module, "copy_vectors", launch, out(), input());
    expect("counted vectors", vectors.accesses == 64 && vectors.arguments[1][0] == 512, launch);
    Counters copies = counted(module, "copy_bytes", launch, out(), input(), 4);
    expect("counted copies", copies.arguments[1][0] == 128 && copies.arguments[0][1] == 128, launch);
}

void check_checker(const Module& module) {
    const char* const names[] = {"nothing", "global", "race", "shared", "unwritten", "barrier"};
    const int verdicts[] = {
        -1, OUT_OF_BOUNDS, DATA_RACE, OUT_OF_BOUNDS, UNINITIALISED_READ, BARRIER_DIVERGENCE};
    const Range arrays[] = {{memory, memory + 256},
                            {memory + MEMORY_BYTES / 2, memory + MEMORY_BYTES / 2 + 256}};
    const Range tile = {reinterpret_cast<const char*>(module.tile_begin),
                        reinterpret_cast<const char*>(module.tile_begin + module.tile_bytes)};
    for (int how = 0; how < 6; how++) {
        Checks checks{};
        checks.arrays = arrays;
        checks.num_arrays = 2;
        checks.shared_variables = &tile;
        checks.num_shared_variables = 1;
        checks.image = {module.base, module.base + module.image_bytes};
        pagedlab_mark(reinterpret_cast<uintptr_t>(input()), 256, true);
        Launch launch = module.launch("flawed", 1, 64);
        launch.checks = &checks;
        Packed(out(), input(), how).run(launch);
        bool is_found = how == 0 && checks.num_reports == 0;
        for (unsigned i = 0; i < checks.num_reports; i++) {
            is_found = is_found || checks.reports[i].verdict == verdicts[how];
        }
        expect(std::string("checked ") + names[how], is_found, launch);
    }
}

}  // namespace

int main(int, char** arguments) {
    memory = static_cast<char*>(
        mmap(nullptr, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (int i = 0; i < 4000; i++) input()[i] = static_cast<float>(i);
    pagedlab_start(2);
    pagedlab_catch_faults(-1);
    const Module plain(arguments + 1), instrumented(arguments + 10);
    check_results(plain, "plain");
    check_results(instrumented, "instrumented");
    check_faults(plain, "plain");
    check_faults(instrumented, "instrumented");
    check_counters(instrumented);
    check_checker(instrumented);
    return is_right ? 0 : 1;
}
