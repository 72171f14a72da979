/* The fused output layer: bias, softmax and the n best of each row in one pass over memory (FNI-03 to FNI-07).

   A row is walked in blocks that stay in the first cache. Its sum of exponentials is kept relative to a reference, the largest value of the
   blocks before: a block is read once, its maximum and its sum are taken together, and only where that maximum lies so far above the reference
   that the sum could overflow is the block summed again. */
#ifndef SIMNMT_OUTPUT_LAYER_H
#define SIMNMT_OUTPUT_LAYER_H

#include "output_walks.h"

#define BLOCK 1024 /* columns */

/* Fill the list, return the largest value and put the sum relative to it into *total, if that is asked for. NaN and +inf in the row are returned
   at once; a row without a finite value gives -inf, and a total of 0. */
static float best_of_row(const Walks *walks, Row row, ptrdiff_t width, List list, double *total) {
    float reference = -INFINITY;
    double sum = 0;
    for (ptrdiff_t i = 0; i < list.count; i++) list.values[i] = -INFINITY, list.columns[i] = -1;
    for (ptrdiff_t begin = 0; begin < width; begin += BLOCK) {
        ptrdiff_t end = width - begin < BLOCK ? width : begin + BLOCK;
        int relative = total && reference != -INFINITY;
        BlockResult block = relative ? walks->sum(row, begin, end, reference) : walks->maximum(row, begin, end);
        if (!(block.maximum < INFINITY)) return block.maximum;
        if (block.maximum == -INFINITY) {
            if (block.sum != block.sum) return NAN;
            continue;
        }
        if (total && (!relative || block.maximum - reference > FAR)) {
            block = walks->sum(row, begin, end, block.maximum);
            sum = sum * exp((double)reference - block.maximum) + block.sum;
        } else {
            sum += block.sum;
            if (block.maximum > reference) sum *= exp((double)reference - block.maximum);
        }
        if (block.maximum > reference) reference = block.maximum;
        if (sum != sum) return NAN;
        if (block.maximum > worst(list)) walks->search(row, begin, end, list);
    }
    /* Rounding must not give the best a probability above 1, nor below 1 / width (FNI-07). */
    if (total) *total = reference == -INFINITY ? 0 : fmin(fmax(sum, 1), (double)width);
    return reference;
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
   [rows, count]; log_sum, maximum and total [rows] or NULL: without log_sum and total no exponential is taken. With `maximum` these columns are
   a part of the rows, which then may be without a finite value. Returns the first row that has no result, or -1. */
SIMNMT_EXPORT int64_t simnmt_best(int kind, const void *products, int64_t stride, const float *bias, int64_t rows, int64_t width,
                                  int64_t first_column, int64_t count, int64_t *columns, float *values, float *log_sum, float *maximum,
                                  float *total) {
    static const Walks *const walks[][2] = {{&float32, &float32_bias}, {&float16, &float16_bias}, {&bfloat16, &bfloat16_bias}};
    for (int64_t i = 0; i < rows; i++) {
        Row row = {(const char *)products + i * stride * (kind == FLOAT32 ? 4 : 2), bias};
        List list = {values + i * count, columns + i * count, count};
        double sum = 0;
        float largest = best_of_row(walks[kind][bias != NULL], row, width, list, log_sum || total ? &sum : NULL);
        if (!(largest < INFINITY) || (largest == -INFINITY && !maximum)) return i;
        fill_list(list);
        for (int64_t k = 0; k < count; k++) list.columns[k] += first_column;
        if (log_sum) log_sum[i] = (float)(largest + log(sum));
        if (maximum) maximum[i] = largest;
        if (total) total[i] = (float)sum;
    }
    return -1;
}

#undef BLOCK
#undef FAR

#endif
