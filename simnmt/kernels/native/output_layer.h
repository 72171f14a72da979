/* The fused output layer: bias, softmax and the n best of each row in one pass over memory (FNI-03 to FNI-07).

   A row is walked in blocks that stay in the first cache. Its sum of exponentials is kept relative to a reference, the largest value of the
   blocks before: a block is read once, its maximum and its sum are taken together, and only where that maximum lies so far above the reference
   that the sum could overflow is the block summed again. */
#ifndef SIMNMT_OUTPUT_LAYER_H
#define SIMNMT_OUTPUT_LAYER_H

#include "output_walks.h"

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
    static const Walks *const kinds[][2] = {{&float32, &float32_bias}, {&float16, &float16_bias}, {&bfloat16, &bfloat16_bias}};
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

#endif
