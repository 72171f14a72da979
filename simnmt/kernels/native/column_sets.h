/* The columns that a step multiplies: the union of the chosen sets, and what of them goes back to its place (FVP-06, FVP-07). */
#ifndef SIMNMT_COLUMN_SETS_H
#define SIMNMT_COLUMN_SETS_H

#include "vectors.h"

/* Where the columns are not ascending, each once, from 0 below `vocab`: the first such index; -1 where there is none. */
static int64_t first_unsound(const int32_t *columns, int64_t count, int64_t vocab) {
    if (count == 0) return -1;
    int32_t unsound = columns[0] < 0 || columns[count - 1] >= vocab;
    for (int64_t i = 1; i < count; i++) unsound |= columns[i] <= columns[i - 1];
    if (!unsound) return -1;
    for (int64_t i = 0; i < count; i++)
        if (columns[i] < 0 || columns[i] >= vocab || (i && columns[i] <= columns[i - 1])) return i;
    return -1;
}

/* Bit i is set where flag i is, of eight flags that are 0 or 1. */
INLINE uint64_t bits_of_flags(const uint8_t *flags) {
    uint64_t eight;
    memcpy(&eight, flags, sizeof eight);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    eight = __builtin_bswap64(eight);
#endif
    return eight * UINT64_C(0x0102040810204080) >> 56;
}

/* Ascending, the columns of all chosen sets into `out`; their number. `flags`: of the vocabulary's length, all 0, and left so. Set s is
   columns[starts[s]..starts[s + 1]), all of them below `vocab`; `out` has room for as many as the chosen sets have, or `vocab`, which is less. */
static int64_t union_of_sets(const int64_t *chosen, int64_t sets, const int64_t *starts, const int32_t *columns, uint8_t *flags, int64_t vocab,
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
static void scatter_columns(const float *products, int64_t rows, const int32_t *columns, int64_t count, int64_t vocab, const float *bias, float *out) {
    for (int64_t row = 0; row < rows; row++, products += count, out += vocab) {
        for (int64_t column = 0; column < vocab; column++) out[column] = -INFINITY;
        if (bias)
            for (int64_t k = 0; k < count; k++) out[columns[k]] = products[k] + bias[columns[k]];
        else
            for (int64_t k = 0; k < count; k++) out[columns[k]] = products[k];
    }
}

/* What Python calls. */
SIMNMT_EXPORT int64_t simnmt_union(const int64_t *chosen, int64_t sets, const int64_t *starts, const int32_t *columns, uint8_t *flags, int64_t vocab,
                                   int32_t *out) {
    return union_of_sets(chosen, sets, starts, columns, flags, vocab, out);
}

/* Returns what `first_unsound` does, and then writes nothing. */
SIMNMT_EXPORT int64_t simnmt_scatter(const float *products, int64_t rows, const int32_t *columns, int64_t count, int64_t vocab, const float *bias,
                                     float *out) {
    int64_t unsound = first_unsound(columns, count, vocab);
    if (unsound < 0) scatter_columns(products, rows, columns, count, vocab, bias, out);
    return unsound;
}

#endif
