// cublasGemmEx for bf16 operands: C = alpha · op(A) · op(B) + beta · C, column-major, summed in float32. Rows of
// op(A), most often a weight's, are read as bf16 and widened in registers; columns of op(B), activations, are widened
// once per call.
#include <algorithm>
#include <cstring>
#include <memory>

#include "runtime.h"

namespace pagedlab {

struct Gemm {
    int trans_a, trans_b;
    int64_t m, n, k;
    const uint16_t* a;
    int64_t lda;
    const uint16_t* b;
    int64_t ldb;
    void* c;
    int64_t ldc;
    float alpha, beta;
    int c_is_float;
};

namespace {

constexpr int LANES = 8, PAIR = 2 * LANES;  // numbers of a vector, and of the bf16 rows that fill one
constexpr int ROWS = 2, COLUMNS = 4;        // of one step, whose sums stay in registers
constexpr int64_t ROWS_PER_TASK = 32, COLUMNS_PER_TASK = 32;
constexpr int64_t LONG = 100000;  // multiplications from which on it is worth to wake the other cores

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
// At any address that holds numbers.
typedef float StoredFloats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t StoredWords __attribute__((vector_size(4 * LANES), aligned(2), may_alias));

Floats load(const float* values) {
    return *reinterpret_cast<const StoredFloats*>(values);
}

float widened(uint16_t bits) {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

uint16_t rounded(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value != value ? 0x7fff : static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void store(const Gemm& gemm, int64_t i, int64_t j, float sum) {
    float* floats = static_cast<float*>(gemm.c) + i + j * gemm.ldc;
    uint16_t* brains = static_cast<uint16_t*>(gemm.c) + i + j * gemm.ldc;
    float value = gemm.alpha * sum;
    // With beta 0 C is not read: it may hold NaNs.
    if (gemm.beta != 0) value += gemm.beta * (gemm.c_is_float ? *floats : widened(*brains));
    if (gemm.c_is_float) {
        *floats = value;
    } else {
        *brains = rounded(value);
    }
}

// A column of op(B) as floats; of each 16 the even elements first: in a vector of 32-bit words, rows of bf16 have their
// even elements in the lower halves and their odd ones in the upper halves.
void widen_column(const uint16_t* column, int64_t step, int64_t k, float* result) {
    const int64_t paired = k / PAIR * PAIR;
    for (int64_t p = 0; p < k; p++) {
        const int64_t position = p < paired ? p / PAIR * PAIR + p % 2 * LANES + p % PAIR / 2 : p;
        result[position] = widened(column[p * step]);
    }
}

// sums[r][j] = dot product of the k elements of row r and widened column j, which begin `stride` and k apart.
template <int R, int N>
void dot_products(const uint16_t* rows, int64_t stride, const float* columns, int64_t k, float (*sums)[N]) {
    Floats partial[R][N] = {};
    int64_t p = 0;
    for (; p + PAIR <= k; p += PAIR) {
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const Words words = *reinterpret_cast<const StoredWords*>(rows + r * stride + p);
            const Floats even = reinterpret_cast<Floats>(words << 16);
            const Floats odd = reinterpret_cast<Floats>(words & 0xffff0000u);
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) {
                partial[r][j] += even * load(columns + j * k + p);
                partial[r][j] += odd * load(columns + j * k + p + LANES);
            }
        }
    }
    for (int r = 0; r < R; r++) {
        for (int j = 0; j < N; j++) {
            sums[r][j] = 0;
            for (int lane = 0; lane < LANES; lane++) sums[r][j] += partial[r][j][lane];
            for (int64_t q = p; q < k; q++) sums[r][j] += widened(rows[r * stride + q]) * columns[j * k + q];
        }
    }
}

template <int R, int N>
void store_products(const Gemm& gemm, const uint16_t* a, int64_t stride, const float* b, int64_t i,
                    int64_t j) {
    float sums[R][N];
    dot_products<R, N>(a + i * stride, stride, b + j * gemm.k, gemm.k, sums);
    for (int r = 0; r < R; r++) {
        for (int column = 0; column < N; column++) store(gemm, i + r, j + column, sums[r][column]);
    }
}

}  // namespace

}  // namespace pagedlab

// The operands must be valid: emulated_gpu.py has checked them.
extern "C" void pagedlab_gemm(const pagedlab::Gemm* call) {
    using namespace pagedlab;
    const Gemm& gemm = *call;
    const int64_t k = gemm.k;
    const bool is_long = gemm.m * gemm.n * k > LONG;
    const std::unique_ptr<float[]> columns(new float[static_cast<size_t>(gemm.n * k)]);
    const int64_t stride = gemm.trans_b ? 1 : gemm.ldb, step = gemm.trans_b ? gemm.ldb : 1;
    parallel_for(static_cast<uint64_t>(gemm.n), is_long, [&](uint64_t j) {
        const int64_t column = static_cast<int64_t>(j);
        widen_column(gemm.b + column * stride, step, k, &columns[column * k]);
    });

    // Rows whose elements do not lie side by side are copied so that they do.
    std::unique_ptr<uint16_t[]> copy(gemm.trans_a ? nullptr : new uint16_t[static_cast<size_t>(gemm.m * k)]);
    for (int64_t p = 0; copy && p < k; p++) {
        for (int64_t i = 0; i < gemm.m; i++) copy[i * k + p] = gemm.a[p * gemm.lda + i];
    }
    const uint16_t* a = copy ? copy.get() : gemm.a;
    const int64_t row_stride = copy ? k : gemm.lda;

    const int64_t row_tasks = (gemm.m + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
    const int64_t column_tasks = (gemm.n + COLUMNS_PER_TASK - 1) / COLUMNS_PER_TASK;
    parallel_for(static_cast<uint64_t>(row_tasks * column_tasks), is_long, [&](uint64_t task) {
        const int64_t index = static_cast<int64_t>(task);
        int64_t i = index % row_tasks * ROWS_PER_TASK;
        const int64_t first_column = index / row_tasks * COLUMNS_PER_TASK;
        const int64_t last_row = std::min(i + ROWS_PER_TASK, gemm.m);
        const int64_t last_column = std::min(first_column + COLUMNS_PER_TASK, gemm.n);
        for (; i < last_row; i += ROWS) {
            const bool whole = i + ROWS <= last_row;
            int64_t j = first_column;
            for (; whole && j + COLUMNS <= last_column; j += COLUMNS) {
                store_products<ROWS, COLUMNS>(gemm, a, row_stride, columns.get(), i, j);
            }
            for (; whole && j < last_column; j++) {
                store_products<ROWS, 1>(gemm, a, row_stride, columns.get(), i, j);
            }
            for (; j < last_column; j++) store_products<1, 1>(gemm, a, row_stride, columns.get(), i, j);
        }
    });
}
