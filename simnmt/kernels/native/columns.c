/* Products of a few rows with some columns of the vocabulary (FVP-07), the union of column sets, and the scatter of products (FVP-06). The weight is [vocab][width], as torch keeps it: a column is one stretch of
   memory, so nothing has to be copied to be multiplied. `columns` is NULL where the first ones of the weight are meant.

   Row-wise: a tile is COLUMN_TILE columns by ROW_TILE rows, whose sums stay in registers. Meanwhile columns of a later tile are asked for, since each may
   lie on a page of its own, which no prefetcher of the processor finds by itself. Into the second-level cache, since what the first holds would be
   pushed out: that takes 2.5 ms where the first takes 3.5 and no asking as long, of 15,000 x 1024 from memory (AMD EPYC, AVX-512).

   Gathered: columns are packed a panel at a time, as in packed_products.c, and multiplied while they are in the cache. */
#pragma once

#include "packed_products.c"

enum { COLUMN_TILE = 4, ROW_TILE = LANES == 16 ? 6 : 3, TILES_AHEAD = 2 };

typedef float v4 __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));

/* Four vectors of four as the columns of the four given. */
INLINE void turn_four(v4 *x) {
    v4 a = __builtin_shuffle(x[0], x[1], (v4i){0, 4, 1, 5}), b = __builtin_shuffle(x[0], x[1], (v4i){2, 6, 3, 7});
    v4 c = __builtin_shuffle(x[2], x[3], (v4i){0, 4, 1, 5}), d = __builtin_shuffle(x[2], x[3], (v4i){2, 6, 3, 7});
    x[0] = __builtin_shuffle(a, c, (v4i){0, 1, 4, 5}), x[1] = __builtin_shuffle(a, c, (v4i){2, 3, 6, 7});
    x[2] = __builtin_shuffle(b, d, (v4i){0, 1, 4, 5}), x[3] = __builtin_shuffle(b, d, (v4i){2, 3, 6, 7});
}

/* The sums of four vectors' lanes, side by side. */
INLINE v4 vreduce_four(const vf *x) {
    v4 sums[4];
    for (int k = 0; k < 4; k++) {
        v4 parts[LANES / 4];
        memcpy(parts, &x[k], sizeof x[k]);
        sums[k] = parts[0];
        for (int part = 1; part < LANES / 4; part++) sums[k] += parts[part];
    }
    turn_four(sums);
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Where column `index` of the chosen ones begins; the last one's for those beyond it. */
INLINE const float *column_at(const float *weight, int64_t width, const int32_t *columns, int64_t index, int64_t count) {
    if (index >= count) index = count - 1;
    return weight + (columns ? columns[index] : index) * width;
}

/* sums[row][k] = the product of a row of x with column k; `ahead`: columns to ask for meanwhile, where `asking`. */
INLINE void tile(const int rows, const int asking, const float *const *columns, const float *const *ahead, const float *x, int64_t width, v4 *sums) {
    vf total[ROW_TILE][COLUMN_TILE];
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int k = 0; k < COLUMN_TILE; k++) total[row][k] = vset(0);
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        vf value[ROW_TILE];
#pragma GCC unroll 6
        for (int row = 0; row < rows; row++) value[row] = vload(x + row * width + i);
#pragma GCC unroll 4
        for (int k = 0; k < COLUMN_TILE; k++) {
            if (asking && i % 16 == 0) __builtin_prefetch(ahead[k] + i, 0, 2);
            vf weights = vload(columns[k] + i);
#pragma GCC unroll 6
            for (int row = 0; row < rows; row++) total[row][k] = vfma(weights, value[row], total[row][k]);
        }
    }
    if (i < width)
#pragma GCC unroll 4
        for (int k = 0; k < COLUMN_TILE; k++) {
            vf weights = vload_some(columns[k] + i, width - i, 0);
#pragma GCC unroll 6
            for (int row = 0; row < rows; row++) total[row][k] = vfma(weights, vload_some(x + row * width + i, width - i, 0), total[row][k]);
        }
#pragma GCC unroll 6
    for (int row = 0; row < rows; row++) sums[row] = vreduce_four(total[row]);
}

static void tile_of(int64_t rows, int asking, const float *const *columns, const float *const *ahead, const float *x, int64_t width, v4 *sums) {
#define CALL(n) asking ? tile(n, 1, columns, ahead, x, width, sums) : tile(n, 0, columns, ahead, x, width, sums)
#if LANES == 16
    switch (rows) { SIX_ROWS(CALL) }
#else
    switch (rows) { ROWS(1, CALL) ROWS(2, CALL) ROWS(3, CALL) }
#endif
#undef CALL
}

/* out[row][k] = row of x . column k of the chosen ones. */
SIMNMT_EXPORT void simnmt_row_wise(const float *weight, int64_t width, const int32_t *columns, int64_t count, const float *x, int64_t rows, float *out) {
    int64_t blocks = (rows + ROW_TILE - 1) / ROW_TILE;
    for (int64_t first = 0; first < count; first += COLUMN_TILE) {
        const float *here[COLUMN_TILE], *ahead[COLUMN_TILE];
        for (int k = 0; k < COLUMN_TILE; k++) {
            here[k] = column_at(weight, width, columns, first + k, count);
            ahead[k] = column_at(weight, width, columns, first + TILES_AHEAD * COLUMN_TILE + k, count);
        }
        size_t size = (size_t)(count - first < COLUMN_TILE ? count - first : COLUMN_TILE) * sizeof *out;
        for (int64_t block = 0; block < blocks; block++) {
            int64_t row = block * rows / blocks, these = (block + 1) * rows / blocks - row;
            v4 sums[ROW_TILE];
            tile_of(these, block == 0, here, ahead, x + row * width, width, sums);
            for (int64_t k = 0; k < these; k++) memcpy(out + (row + k) * count + first, &sums[k], size);
        }
    }
}

/* Columns first..first + PANEL of the chosen ones as one packed panel, zeros beyond the last. */
static void pack_panel(const float *weight, int64_t width, const int32_t *columns, int64_t first, int64_t count, float *panel) {
    for (int64_t k = 0; k < PANEL; k += 4) {
        const float *from[4];
        for (int j = 0; j < 4; j++) from[j] = column_at(weight, width, columns, first + k + j, count);
        int64_t i = 0;
        for (; first + k + 4 <= count && i + 4 <= width; i += 4) {
            v4 four[4];
            for (int j = 0; j < 4; j++) memcpy(&four[j], from[j] + i, sizeof four[j]);
            turn_four(four);
            for (int j = 0; j < 4; j++) memcpy(panel + (i + j) * PANEL + k, &four[j], sizeof four[j]);
        }
        for (; i < width; i++)
            for (int j = 0; j < 4; j++) panel[i * PANEL + k + j] = first + k + j < count ? from[j][i] : 0;
    }
}

SIMNMT_EXPORT int64_t simnmt_gathered_scratch(int64_t width, int64_t rows) { return (PANEL + rows) * width; }

/* As simnmt_row_wise; `scratch`: of that many floats. */
SIMNMT_EXPORT void simnmt_gathered(const float *weight, int64_t width, const int32_t *columns, int64_t count, const float *x, int64_t rows,
                                   float *scratch, float *out) {
    float *panel = scratch, *interleaved = scratch + PANEL * width;
    interleave_rows(x, width, rows, width, interleaved);
    for (int64_t first = 0; first < count; first += PANEL) {
        pack_panel(weight, width, columns, first, count, panel);
        product_float32(interleaved, rows, panel, count - first < PANEL ? count - first : PANEL, width, out + first, count);
    }
}

/* Bit i is set where flag i is, of eight flags that are 0 or 1. */
INLINE uint64_t bits_of_flags(const uint8_t *flags) {
    uint64_t eight;
    memcpy(&eight, flags, sizeof eight);
    return eight * UINT64_C(0x0102040810204080) >> 56;
}

/* Ascending, the columns of all chosen sets into `out`; their number. `flags`: of the vocabulary's length, all 0, and left so. Set s is
   columns[starts[s]..starts[s + 1]), all of them below `vocab`; `out` has room for as many as the chosen sets have, or `vocab`, which is less. */
SIMNMT_EXPORT int64_t simnmt_union(const int64_t *chosen, int64_t sets, const int64_t *starts, const int32_t *columns, uint8_t *flags, int64_t vocab,
                                   int32_t *out) {
    for (int64_t k = 0; k < sets; k++)
        for (int64_t i = starts[chosen[k]]; i < starts[chosen[k] + 1]; i++) flags[columns[i]] = 1;
    int64_t found = 0, column = 0;
    for (; column + 64 <= vocab; column += 64) {
        uint64_t bits = 0;
        for (int part = 0; part < 8; part++) bits |= bits_of_flags(flags + column + 8 * part) << 8 * part;
        if (!bits) continue;
        memset(flags + column, 0, 64);
        for (; bits; bits &= bits - 1) out[found++] = (int32_t)(column + __builtin_ctzll(bits));
    }
    for (; column < vocab; column++) {
        if (flags[column]) out[found++] = (int32_t)column;
        flags[column] = 0;
    }
    return found;
}

/* out[row][columns[k]] = products[row][k] + bias[columns[k]], all others -inf; without bias where that is NULL. */
SIMNMT_EXPORT void simnmt_scatter(const float *products, int64_t rows, const int32_t *columns, int64_t count, int64_t vocab, const float *bias,
                                  float *out) {
    for (int64_t row = 0; row < rows; row++, products += count, out += vocab) {
        for (int64_t column = 0; column < vocab; column++) out[column] = -INFINITY;
        if (bias)
            for (int64_t k = 0; k < count; k++) out[columns[k]] = products[k] + bias[columns[k]];
        else
            for (int64_t k = 0; k < count; k++) out[columns[k]] = products[k];
    }
}
