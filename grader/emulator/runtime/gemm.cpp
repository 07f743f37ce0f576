// cublasGemmEx for bf16 operands: C = alpha · op(A) · op(B) + beta · C, column-major, summed in float32.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "arena.h"
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

constexpr int LANES = 8;
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
// At any address that holds numbers of the element's type.
typedef float StoredFloats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint16_t StoredShorts __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

Floats load(const float* values) { return *reinterpret_cast<const StoredFloats*>(values); }

float widened(uint16_t bits) {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return value;
}

Floats widened(const uint16_t* values) {
    const StoredShorts shorts = *reinterpret_cast<const StoredShorts*>(values);
    return reinterpret_cast<Floats>(__builtin_convertvector(shorts, Words) << 16);
}

uint16_t rounded(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return 0x7fff;
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void store(const Gemm& gemm, int64_t i, int64_t j, float sum) {
    const int64_t at = i + j * gemm.ldc;
    float* floats = static_cast<float*>(gemm.c);
    uint16_t* brains = static_cast<uint16_t*>(gemm.c);
    float value = gemm.alpha * sum;
    // With beta 0 C is not read: it may hold NaNs.
    if (gemm.beta != 0) value += gemm.beta * (gemm.c_is_float ? floats[at] : widened(brains[at]));
    if (gemm.c_is_float) {
        floats[at] = value;
    } else {
        brains[at] = rounded(value);
    }
}

// Few columns of B (rows of activations): each row of A, a weight's, is read once and widened in registers.

constexpr int MAX_COLUMNS = 16, ROWS_PER_TASK = 32;
constexpr int64_t LONG = 100000;  // elements of A, from which on it is worth to wake the other cores

// Dot products of one row of k elements with N columns, which lie k apart.
template <int N>
void row_products(const uint16_t* row, const float* columns, int64_t k, float* sums) {
    Floats partial[N] = {}, other[N] = {};  // two, so that one sum need not wait for the other
    int64_t p = 0;
    for (; p + 2 * LANES <= k; p += 2 * LANES) {
        const Floats first = widened(row + p), second = widened(row + p + LANES);
#pragma GCC unroll 8
        for (int j = 0; j < N; j++) {
            partial[j] += first * load(columns + j * k + p);
            other[j] += second * load(columns + j * k + p + LANES);
        }
    }
    for (int j = 0; j < N; j++) {
        const Floats both = partial[j] + other[j];
        sums[j] = 0;
        for (int lane = 0; lane < LANES; lane++) sums[j] += both[lane];
        for (int64_t rest = p; rest < k; rest++) sums[j] += widened(row[rest]) * columns[j * k + rest];
    }
}

void few_columns(const Gemm& gemm) {
    const std::unique_ptr<float[]> columns(new float[static_cast<size_t>(gemm.n * gemm.k)]);
    for (int64_t j = 0; j < gemm.n; j++) {
        for (int64_t p = 0; p < gemm.k; p++) columns[j * gemm.k + p] = widened(gemm.b[p + j * gemm.ldb]);
    }
    parallel_for(static_cast<uint64_t>((gemm.m + ROWS_PER_TASK - 1) / ROWS_PER_TASK), gemm.m * gemm.k > LONG,
                 [&](uint64_t task) {
        const int64_t begin = static_cast<int64_t>(task) * ROWS_PER_TASK;
        for (int64_t i = begin; i < std::min(begin + ROWS_PER_TASK, gemm.m); i++) {
            const uint16_t* row = gemm.a + i * gemm.lda;
            float sums[MAX_COLUMNS];
            int64_t j = 0;
            for (; j + 4 <= gemm.n; j += 4) row_products<4>(row, &columns[j * gemm.k], gemm.k, sums + j);
            for (; j < gemm.n; j++) row_products<1>(row, &columns[j * gemm.k], gemm.k, sums + j);
            for (j = 0; j < gemm.n; j++) store(gemm, i, j, sums[j]);
        }
    });
}

// The general product: tiles of C, each summed over blocks of k whose operands are widened into panels.

constexpr int64_t PANEL_ROWS = 2 * LANES, PANEL_COLUMNS = 6;
constexpr int64_t TILE_ROWS = 12 * PANEL_ROWS, TILE_COLUMNS = 16 * PANEL_COLUMNS, DEPTH = 256;

struct Tile {
    alignas(64) float rows[TILE_ROWS * DEPTH];        // panels of [DEPTH][PANEL_ROWS]
    alignas(64) float columns[TILE_COLUMNS * DEPTH];  // panels of [DEPTH][PANEL_COLUMNS]
    alignas(64) float sums[TILE_COLUMNS][TILE_ROWS];
};

// Widens `count` vectors of `depth` elements into panels of `width` vectors; the last panel is filled up with zeros.
void pack(const uint16_t* source, int64_t vector_stride, int64_t element_stride, int64_t count, int64_t depth,
          int64_t width, float* panels) {
    for (int64_t begin = 0; begin < count; begin += width) {
        float* panel = panels + begin * DEPTH;
        for (int64_t v = 0; v < width; v++) {
            const uint16_t* vector = source + (begin + v) * vector_stride;
            const bool exists = begin + v < count;
            for (int64_t p = 0; p < depth; p++) {
                panel[p * width + v] = exists ? widened(vector[p * element_stride]) : 0.0f;
            }
        }
    }
}

// sums[j][i] += the panels' product.
void add_product(const float* rows, const float* columns, int64_t depth, float* sums) {
    Floats upper[PANEL_COLUMNS] = {}, lower[PANEL_COLUMNS] = {};
    for (int64_t p = 0; p < depth; p++) {
        const Floats first = load(rows + p * PANEL_ROWS), second = load(rows + p * PANEL_ROWS + LANES);
#pragma GCC unroll 8
        for (int j = 0; j < PANEL_COLUMNS; j++) {
            upper[j] += first * columns[p * PANEL_COLUMNS + j];
            lower[j] += second * columns[p * PANEL_COLUMNS + j];
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < PANEL_COLUMNS; j++) {
        StoredFloats* sum = reinterpret_cast<StoredFloats*>(sums + j * TILE_ROWS);
        sum[0] += upper[j];
        sum[1] += lower[j];
    }
}

void compute_tile(const Gemm& gemm, int64_t first_row, int64_t first_column, Tile& tile) {
    const int64_t num_rows = std::min(TILE_ROWS, gemm.m - first_row);
    const int64_t num_columns = std::min(TILE_COLUMNS, gemm.n - first_column);
    const int64_t row_stride = gemm.trans_a ? gemm.lda : 1, row_step = gemm.trans_a ? 1 : gemm.lda;
    const int64_t column_stride = gemm.trans_b ? 1 : gemm.ldb, column_step = gemm.trans_b ? gemm.ldb : 1;
    memset(tile.sums, 0, sizeof tile.sums);
    for (int64_t p = 0; p < gemm.k; p += DEPTH) {
        const int64_t depth = std::min(DEPTH, gemm.k - p);
        pack(gemm.a + first_row * row_stride + p * row_step, row_stride, row_step, num_rows, depth, PANEL_ROWS,
             tile.rows);
        pack(gemm.b + first_column * column_stride + p * column_step, column_stride, column_step, num_columns, depth,
             PANEL_COLUMNS, tile.columns);
        for (int64_t j = 0; j < num_columns; j += PANEL_COLUMNS) {
            for (int64_t i = 0; i < num_rows; i += PANEL_ROWS) {
                add_product(tile.rows + i * DEPTH, tile.columns + j * DEPTH, depth, &tile.sums[j][i]);
            }
        }
    }
    for (int64_t j = 0; j < num_columns; j++) {
        for (int64_t i = 0; i < num_rows; i++) store(gemm, first_row + i, first_column + j, tile.sums[j][i]);
    }
}

void many_columns(const Gemm& gemm) {
    const int64_t tiles_down = (gemm.m + TILE_ROWS - 1) / TILE_ROWS;
    const int64_t tiles_across = (gemm.n + TILE_COLUMNS - 1) / TILE_COLUMNS;
    parallel_for(static_cast<uint64_t>(tiles_down * tiles_across), true, [&](uint64_t task) {
        thread_local const std::unique_ptr<Tile> tile(new Tile);
        const int64_t index = static_cast<int64_t>(task);
        compute_tile(gemm, index % tiles_down * TILE_ROWS, index / tiles_down * TILE_COLUMNS, *tile);
    });
}

// Why the call is refused, as cuBLAS would or as a GPU would fault; empty when it is valid.
std::string refusal_of_operand(const char* name, const void* begin, int64_t rows, int64_t columns, int64_t leading,
                               int64_t element) {
    if (leading < std::max<int64_t>(1, rows)) {
        return std::string("ld") + name + " is " + std::to_string(leading) + ", less than the " +
               std::to_string(rows) + " rows of " + name + " as it is stored";
    }
    if (rows == 0 || columns == 0) return "";
    const int64_t bytes = ((columns - 1) * leading + rows) * element;
    const Allocation allocation = arena.find(begin);
    const int64_t left = allocation.begin + allocation.bytes - static_cast<const char*>(begin);
    if (allocation.begin == nullptr) return std::string(name) + " is no address in device memory";
    if (bytes <= left) return "";
    return std::string(name) + " as described takes " + std::to_string(bytes) + " bytes, its allocation has " +
           std::to_string(left);
}

std::string refusal(const Gemm& gemm) {
    if (gemm.m < 0 || gemm.n < 0 || gemm.k < 0) return "m, n and k must not be negative";
    const int64_t m = gemm.m, n = gemm.n, k = gemm.k;
    std::string found = refusal_of_operand("a", gemm.a, gemm.trans_a ? k : m, gemm.trans_a ? m : k, gemm.lda, 2);
    if (found.empty()) {
        found = refusal_of_operand("b", gemm.b, gemm.trans_b ? n : k, gemm.trans_b ? k : n, gemm.ldb, 2);
    }
    if (found.empty()) found = refusal_of_operand("c", gemm.c, m, n, gemm.ldc, gemm.c_is_float ? 4 : 2);
    return found;
}

}  // namespace

}  // namespace pagedlab

using namespace pagedlab;

// False when the call is refused: `detail` says why, and nothing was written.
extern "C" bool pagedlab_gemm(const Gemm* gemm, bool run, char* detail, size_t detail_size) {
    const std::string found = refusal(*gemm);
    snprintf(detail, detail_size, "%s", found.c_str());
    if (!found.empty()) return false;
    if (!run || gemm->m == 0 || gemm->n == 0) return true;
    if (gemm->trans_a && !gemm->trans_b && gemm->n <= MAX_COLUMNS) {
        few_columns(*gemm);
    } else {
        many_columns(*gemm);
    }
    return true;
}
