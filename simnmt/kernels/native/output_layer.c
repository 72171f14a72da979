/* The fused output layer: bias, softmax and the n best of each row in one pass over memory (FNI-03 to FNI-07).

   A row is walked in blocks that stay in the first cache. Its sum of exponentials is kept relative to a reference, the largest value of the
   blocks before: a block is read once, its maximum and its sum are taken together, and only where that maximum lies so far above the reference
   that the sum could overflow is the block summed again. */
#pragma once
#include "vectors.h"

enum { FLOAT32, BFLOAT16 };
#define STRIDE (4 * LANES) /* columns a turn of the inner loops */
#define CHAINS (LANES == 16 ? 4 : 2) /* independent maxima and sums: as many as the registers hold beside the constants of the exponential */
#define AHEAD 512 /* bytes fetched before they are needed, also where the processor does not, across pages. Measured: a twentieth less time */
#define FAR 60.0f /* SCALE e^60 times the columns of a block is still a float */

/* A row of products and the bias added to it; `kind` is one of the two above, known when compiled. */
typedef struct {
    const void *products;
    const float *bias; /* or NULL */
} Row;

INLINE vf values_at(Row row, int kind, int with_bias, ptrdiff_t at) {
    vf v = kind == FLOAT32 ? vload((const float *)row.products + at) : vload_bfloat((const uint16_t *)row.products + at);
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
        for (int i = 0; i < LANES; i++) padded[i] = 0xff80;
        memcpy(padded, (const uint16_t *)row.products + at, (size_t)n * sizeof *padded);
        v = vload_bfloat(padded);
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


#define BLOCK 1024 /* columns */
/* Rows walked side by side: a block of the bias is fetched once for all. Measured: two take a sixth less time than one, and more take more, but
   where no exponential is taken four take a twelfth less than two. */
enum { GROUP_WITH_SUM = 2, GROUP_WITHOUT = 4 };

/* A row on its way: what its blocks so far gave. */
typedef struct {
    Row row;
    List list;
    float reference; /* the largest value */
    double sum;      /* of exponentials relative to it */
} Progress;

/* Take in the columns [begin, end), their exponentials too where asked to; 0 where one of them is NaN or +inf. */
static int take_block(const Walks *walks, Progress *of, ptrdiff_t begin, ptrdiff_t end, int with_sum) {
    int relative = with_sum && of->reference != -INFINITY;
    BlockResult block = relative ? walks->sum(of->row, begin, end, of->reference) : walks->maximum(of->row, begin, end);
    if (!(block.maximum < INFINITY)) return 0;
    if (block.maximum == -INFINITY) return block.sum == block.sum;
    if (with_sum && (!relative || block.maximum - of->reference > FAR)) {
        block = walks->sum(of->row, begin, end, block.maximum);
        of->sum = of->sum * exp((double)of->reference - block.maximum) + block.sum;
    } else {
        of->sum += block.sum;
        if (block.maximum > of->reference) of->sum *= exp((double)of->reference - block.maximum);
    }
    if (block.maximum > of->reference) of->reference = block.maximum;
    if (block.maximum > worst(of->list)) walks->search(of->row, begin, end, of->list);
    return of->sum == of->sum;
}

static void empty_list(List list) {
    for (ptrdiff_t i = 0; i < list.count; i++) list.values[i] = -INFINITY, list.columns[i] = -1;
}

/* Where fewer columns than asked for lie above -inf, the lowest of the others follow. */
static void fill_list(List list) {
    ptrdiff_t found = 0;
    while (found < list.count && list.columns[found] >= 0) found++;
    for (int64_t column = 0; found < list.count; column++) {
        int taken = 0;
        for (ptrdiff_t i = 0; i < found; i++) taken |= list.columns[i] == column;
        if (!taken) list.columns[found++] = column;
    }
}

/* Rows [0, rows) of `stride` elements, of which the first `width` are looked at; first_column is what their first is called. Values and columns
   [rows, count]; log_total (log of total), maximum and total [rows] or NULL: without log_total and total no exponential is taken. With `maximum` these columns are
   a part of the rows, which then may be without a finite value. Of one column `values` may be NULL. Returns the first row that has no result, or -1. */
SIMNMT_EXPORT int64_t simnmt_best(int kind, const void *products, int64_t stride, const float *bias, int64_t rows, int64_t width,
                                  int64_t first_column, int64_t count, int64_t *columns, float *values, float *log_total, float *maximum,
                                  float *total) {
    static const Walks *const kinds[][2] = {{&float32, &float32_bias}, {&bfloat16, &bfloat16_bias}};
    const Walks *walks = kinds[kind][bias != NULL];
    const int with_sum = log_total || total, side_by_side = with_sum ? GROUP_WITH_SUM : GROUP_WITHOUT;
    int64_t sound = rows; /* the rows before the first that has no result */
    for (int64_t first = 0; first < sound; first += side_by_side) {
        Progress group[GROUP_WITHOUT];
        float unasked[GROUP_WITHOUT];
        const int64_t end = first + side_by_side;
        for (int64_t i = first; i < end && i < sound; i++) {
            Row row = {(const char *)products + i * stride * (kind == FLOAT32 ? 4 : 2), bias};
            List list = {values ? values + i * count : unasked + (i - first), columns + i * count, count};
            group[i - first] = (Progress){row, list, -INFINITY, 0};
            empty_list(group[i - first].list);
        }
        for (int64_t begin = 0; begin < width; begin += BLOCK)
            for (int64_t i = first; i < end && i < sound; i++)
                if (!take_block(walks, &group[i - first], begin, width - begin < BLOCK ? width : begin + BLOCK, with_sum)) sound = i;
        for (int64_t i = first; i < end && i < sound; i++) {
            Progress *of = &group[i - first];
            int some = of->reference != -INFINITY;
            if (!some && !maximum) {
                sound = i;
                break;
            }
            fill_list(of->list);
            for (int64_t k = 0; k < count; k++) of->list.columns[k] += first_column;
            /* Rounding must not give the best a probability above 1, nor below 1 / width (FNI-07). */
            double sum = some ? fmin(fmax(of->sum, 1), (double)width) : 0;
            if (log_total) log_total[i] = (float)log(sum);
            if (maximum) maximum[i] = of->reference;
            if (total) total[i] = (float)sum;
        }
    }
    return sound < rows ? sound : -1;
}

/* A search that several threads divide: into groups of rows, into stretches of columns, or both. Each stretch has results of its own, one stretch
   after the other: columns and values [column_parts, rows, count]; log_total, maximum and total [column_parts, rows] or NULL as in simnmt_best. */
typedef struct {
    const void *products;
    const float *bias;
    int64_t *columns;
    float *values, *log_total, *maximum, *total;
    int64_t kind, stride, rows, width, count, row_parts, column_parts;
    int64_t next;   /* the part that the next free thread takes; 0 at first */
    int64_t broken; /* the first row that has no result; `rows` at first, and if all have one */
} SharedSearch;

/* Where part number `part` begins: at a multiple of `whole`. */
static int64_t bound(int64_t size, int64_t part, int64_t parts, int64_t whole) {
    return part == parts ? size : size * part / parts / whole * whole;
}

/* Search parts of `shared`, a SharedSearch, until none is left. Each thread calls this once; whichever comes late finds less to do. */
SIMNMT_EXPORT void simnmt_best_shared(void *shared) {
    SharedSearch *search = shared;
    const int64_t element = search->kind == FLOAT32 ? 4 : 2;
    for (;;) {
        const int64_t part = __atomic_fetch_add(&search->next, 1, __ATOMIC_RELAXED);
        if (part >= search->row_parts * search->column_parts) return;
        const int64_t stretch = part / search->row_parts, group = part % search->row_parts;
        const int64_t first = bound(search->rows, group, search->row_parts, GROUP_WITHOUT);
        const int64_t begin = bound(search->width, stretch, search->column_parts, 1);
        const int64_t rows = bound(search->rows, group + 1, search->row_parts, GROUP_WITHOUT) - first;
        const int64_t width = bound(search->width, stretch + 1, search->column_parts, 1) - begin;
        const int64_t row = stretch * search->rows + first;
        int64_t broken = simnmt_best((int)search->kind, (const char *)search->products + (first * search->stride + begin) * element, search->stride,
                                     search->bias ? search->bias + begin : NULL, rows, width, begin, search->count,
                                     search->columns + row * search->count, search->values ? search->values + row * search->count : NULL,
                                     search->log_total ? search->log_total + row : NULL, search->maximum ? search->maximum + row : NULL,
                                     search->total ? search->total + row : NULL);
        if (broken < 0) continue;
        int64_t lowest = __atomic_load_n(&search->broken, __ATOMIC_RELAXED);
        while (first + broken < lowest &&
               !__atomic_compare_exchange_n(&search->broken, &lowest, first + broken, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }
}

#undef BLOCK
#undef FAR
