/* Walks over a block of one row of products: its maximum, its sum of exponentials, its best columns. */
#ifndef SIMNMT_OUTPUT_WALKS_H
#define SIMNMT_OUTPUT_WALKS_H

#include "vectors.h"

enum { FLOAT32, FLOAT16, BFLOAT16 };
#define STRIDE (4 * LANES) /* columns a turn of the inner loops */
#define CHAINS (LANES == 16 ? 4 : 2) /* independent maxima and sums: as many as the registers hold beside the constants of the exponential */
#define AHEAD 512 /* bytes fetched before they are needed, also where the processor does not, across pages. Measured: a twentieth less time */
#define FAR 60.0f /* SCALE e^60 times the columns of a block is still a float */

/* A row of products and the bias added to it; `kind` is one of the three above, known when compiled. */
typedef struct {
    const void *products;
    const float *bias; /* or NULL */
} Row;

INLINE vf values_at(Row row, int kind, int with_bias, ptrdiff_t at) {
    vf v = kind == FLOAT32 ? vload((const float *)row.products + at)
           : kind == FLOAT16 ? vload_half((const uint16_t *)row.products + at)
                             : vload_bfloat((const uint16_t *)row.products + at);
    return with_bias ? v + vload(row.bias + at) : v;
}

/* The last lanes of a row, of which there are n, or none, or more than a vector: -inf beyond it. */
INLINE vf some_values_at(Row row, int kind, int with_bias, ptrdiff_t at, ptrdiff_t n) {
    vf v;
    if (n <= 0) return vset(-INFINITY);
    if (n >= LANES) return values_at(row, kind, with_bias, at);
    if (kind == FLOAT32) {
        v = vload_some((const float *)row.products + at, n, -INFINITY);
    } else {
        uint16_t padded[LANES];
        for (int i = 0; i < LANES; i++) padded[i] = kind == FLOAT16 ? 0xfc00 : 0xff80;
        memcpy(padded, (const uint16_t *)row.products + at, (size_t)n * sizeof *padded);
        v = kind == FLOAT16 ? vload_half(padded) : vload_bfloat(padded);
    }
    return with_bias ? v + vload_some(row.bias + at, n, 0.0f) : v;
}

/* The n best so far, descending; equal values in the order of their columns, which is the order they are met in. */
typedef struct {
    float *values;
    int64_t *columns;
    ptrdiff_t count;
} List;

INLINE float worst(List list) { return list.values[list.count - 1]; }

static void insert(List list, float value, int64_t column) {
    ptrdiff_t at = list.count - 1;
    for (; at > 0 && value > list.values[at - 1]; at--) {
        list.values[at] = list.values[at - 1];
        list.columns[at] = list.columns[at - 1];
    }
    list.values[at] = value;
    list.columns[at] = column;
}

INLINE void insert_above(List list, vf v, int64_t column) {
    unsigned bits = vbits(vabove(v, vset(worst(list))));
    if (!bits) return;
    float lanes[LANES];
    vstore(lanes, v);
    for (; bits; bits &= bits - 1) {
        int lane = __builtin_ctz(bits);
        if (lanes[lane] > worst(list)) insert(list, lanes[lane], column + lane);
    }
}

/* Put into the list whatever of the columns [begin, end) belongs there. */
INLINE void search_block(Row row, int kind, int with_bias, ptrdiff_t begin, ptrdiff_t end, List list) {
    ptrdiff_t at = begin;
    for (; at + STRIDE <= end; at += STRIDE) {
        vf v[4];
        for (int k = 0; k < 4; k++) v[k] = values_at(row, kind, with_bias, at + k * LANES);
        vf above = vmax(vmax(v[0], v[1]), vmax(v[2], v[3]));
        if (vbits(vabove(above, vset(worst(list)))))
            for (int k = 0; k < 4; k++) insert_above(list, v[k], at + k * LANES);
    }
    for (; at < end; at += LANES) insert_above(list, some_values_at(row, kind, with_bias, at, end - at), at);
}

/* SCALE e^x for x <= FAR, NaN for NaN, whatever for more: for sums, which are divided by SCALE once. Written for the fewest additions, which bound
   it: e^x = 2^n (2^(f/2))^2 with x log2 e = n + f, and 2^(f/2) by a polynomial whose highest coefficient is 1, so that it is SCALE^(1/2) at 0.
   Relative error below 4e-7 + 8e-8 |x|: in a sum of such terms the far ones, which lose most, weigh least. */
#define ROOT_OF_SCALE 1664.93591f
#define SCALE (ROOT_OF_SCALE * ROOT_OF_SCALE)

/* Of four vectors at once, step by step: their chains of operations then overlap within what a processor looks ahead. */
INLINE void exponentials(vf x[4]) {
    const vf shift = vset(12583039.0f);
    vf t[4], p[4];
    for (int k = 0; k < 4; k++) x[k] = vmax(vset(-87.33f), x[k]) * vset(1.44269504f);
    for (int k = 0; k < 4; k++) t[k] = x[k] + shift;
    for (int k = 0; k < 4; k++) x[k] = x[k] - (t[k] - shift);
    for (int k = 0; k < 4; k++) t[k] = (vf)((vi)t[k] << 23);
    for (int k = 0; k < 4; k++) p[k] = vfma(x[k] + vset(11.5727272f), x[k], vset(99.990799f));
    for (int k = 0; k < 4; k++) p[k] = vfma(p[k], x[k], vset(577.021545f));
    for (int k = 0; k < 4; k++) p[k] = vfma(p[k], x[k], vset(ROOT_OF_SCALE));
    for (int k = 0; k < 4; k++) x[k] = p[k] * p[k] * t[k];
}

/* The largest value of the columns [begin, end); and with_sum their sum of exponentials relative to `reference`, which means nothing where the
   largest lies more than FAR above it. Where a column is NaN so is the sum, and without a sum the largest. */
typedef struct {
    float maximum, sum;
} BlockResult;

INLINE BlockResult walk_block(Row row, int kind, int with_bias, ptrdiff_t begin, ptrdiff_t end, int with_sum, float reference) {
    const vf from = vset(reference);
    const int size = kind == FLOAT32 ? 4 : 2;
    const int chains = with_sum ? CHAINS : 4;
    vf maxima[4], sums[4];
    vflags broken = (vflags){0};
    for (int k = 0; k < chains; k++) maxima[k] = vset(-INFINITY), sums[k] = vset(0.0f);
    for (ptrdiff_t at = begin; at < end; at += STRIDE) {
        vf v[4];
        if (at + STRIDE <= end) {
            for (int k = 0; k < 4; k++) v[k] = values_at(row, kind, with_bias, at + k * LANES);
        } else {
            /* Lanes beyond the row count e^-87 each: nothing beside the e^0 of the largest. */
            for (int k = 0; k < 4; k++) v[k] = some_values_at(row, kind, with_bias, at + k * LANES, end - at - k * LANES);
        }
        for (int k = 0; k < 4; k++) maxima[k % chains] = vmax(v[k], maxima[k % chains]);
        if (with_sum) {
            for (int line = 0; line < STRIDE * size; line += 64) __builtin_prefetch((const char *)row.products + at * size + AHEAD + line);
            for (int k = 0; k < 4; k++) v[k] -= from;
            exponentials(v);
            for (int k = 0; k < 4; k++) sums[k % chains] += v[k];
        } else {
            broken |= vunordered(v[0], v[1]) | vunordered(v[2], v[3]);
        }
    }
    for (int k = 1; k < chains; k++) maxima[0] = vmax(maxima[0], maxima[k]), sums[0] += sums[k];
    BlockResult result = {vreduce_max(maxima[0]), with_sum ? vreduce_add(sums[0]) / SCALE : 0.0f};
    if (!with_sum && vbits(broken)) result.maximum = NAN;
    return result;
}

/* The three walks of a kind of products, with and without a bias, each compiled for itself. */
typedef struct {
    BlockResult (*sum)(Row row, ptrdiff_t begin, ptrdiff_t end, float reference);
    BlockResult (*maximum)(Row row, ptrdiff_t begin, ptrdiff_t end);
    void (*search)(Row row, ptrdiff_t begin, ptrdiff_t end, List list);
} Walks;

#if defined(__GNUC__) && !defined(__clang__)
/* Scheduled before registers are given out, but with an eye to their number, the portable walk takes a twelfth less time. */
#pragma GCC push_options
#pragma GCC optimize("schedule-insns,sched-pressure")
#endif

#define WALKS(name, kind, with_bias)                                                                                                           \
    static BlockResult name##_sum(Row row, ptrdiff_t begin, ptrdiff_t end, float reference) {                                                  \
        return walk_block(row, kind, with_bias, begin, end, 1, reference);                                                                     \
    }                                                                                                                                          \
    static BlockResult name##_maximum(Row row, ptrdiff_t begin, ptrdiff_t end) { return walk_block(row, kind, with_bias, begin, end, 0, 0); }  \
    static void name##_search(Row row, ptrdiff_t begin, ptrdiff_t end, List list) { search_block(row, kind, with_bias, begin, end, list); }    \
    static const Walks name = {name##_sum, name##_maximum, name##_search};

WALKS(float32, FLOAT32, 0)
WALKS(float32_bias, FLOAT32, 1)
WALKS(float16, FLOAT16, 0)
WALKS(float16_bias, FLOAT16, 1)
WALKS(bfloat16, BFLOAT16, 0)
WALKS(bfloat16_bias, BFLOAT16, 1)
#undef WALKS

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

#undef STRIDE
#undef CHAINS
#undef AHEAD
#undef ROOT_OF_SCALE
#undef SCALE

#endif
