// Nothing here is a race between two accesses, yet the result depends on who comes first.

// A ticket says where to write. Right: the index does.
extern "C" __global__ void ticket_for_a_place(int* out, int* count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int place = BUG(atomicAdd(count, 1)) FIX(i);
    out[place] = i;
}

// Who is first wins. Right: the least index does.
extern "C" __global__ void first_one_wins(int* winner) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    BUG(atomicCAS(winner, -1, i);)
    FIX(atomicMin(reinterpret_cast<unsigned*>(winner), i);)
}

// The last one stays.
extern "C" __global__ void last_one_stays(int* winner, const int* x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    BUG(atomicExch(winner, x[i]);)
    FIX(atomicMax(winner, x[i]);)
}

// Block 0 is thought to run before the others.
extern "C" __global__ void block_zero_first(int* out, int* offset) {
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) atomicExch(offset, 100);
        const int seen = BUG(atomicAdd(offset, 0)) FIX(100);
        out[blockIdx.x] = seen + blockIdx.x;
    }
}

// The limit that a thread sees depends on how many came before it.
extern "C" __global__ void count_to_a_limit(int* out, int* count) {
    const int i = threadIdx.x;
    const bool is_taken = BUG(atomicAdd(count, 1) < 16) FIX(i < 16);
    out[i] = is_taken;
}
