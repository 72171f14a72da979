/* Bias, softmax and the best columns of rows of products: fused into one pass by the output layer's own kernel (FNI-05), or stage by stage. */
#ifndef SIMNMT_SHARP_BEST_H
#define SIMNMT_SHARP_BEST_H

#include "output_layer.h"
#include "sharp_cells.h"

/* Of each row of x + bias the `size` best columns and their log-probabilities, [rows][size]; x stays as it is, log_sums is memory of `rows`. A row
   without a result, all its words banned or one of them NaN, gets an empty list. */
static void sharp_fused_best(const float *x, int64_t stride, const float *bias, int64_t rows, int64_t count, int64_t size, int64_t *columns,
                             float *values, float *log_sums) {
    for (int64_t first = 0; first < rows; first++) {
        int64_t bad = simnmt_best(FLOAT32, x + first * stride, stride, bias, rows - first, count, 0, size, columns + first * size,
                                  values + first * size, log_sums, NULL, NULL);
        int64_t end = bad < 0 ? rows : first + bad;
        for (int64_t row = first; row < end; row++)
            for (int64_t i = size - 1; i >= 0; i--) /* the best last: the others are taken relative to it */
                values[row * size + i] = (values[row * size + i] - values[row * size]) - log_sums[row - first];
        if (end < rows) empty_list((List){values + end * size, columns + end * size, size});
        first = end;
    }
}

/* x becomes its log-softmax, or its softmax times `share`. */
static void sharp_normalise(float *x, int64_t count, int logarithm, float share) {
    vf most = vset(-INFINITY), sum = vset(0);
    for (int64_t i = 0; i < count; i += LANES) most = vmax(most, count - i >= LANES ? vload(x + i) : vload_some(x + i, count - i, -INFINITY));
    float top = vreduce_max(most);
    if (top == -INFINITY) return;
    for (int64_t i = 0; i < count; i += LANES) {
        int64_t left = count - i;
        vf grown = vexp((left >= LANES ? vload(x + i) : vload_some(x + i, left, -INFINITY)) - top);
        sum += grown;
        if (!logarithm) left >= LANES ? vstore(x + i, grown) : vstore_some(x + i, grown, left);
    }
    float total = vreduce_add(sum), log_total = logf(total), factor = share / total;
    if (logarithm)
        for (int64_t i = 0; i < count; i++) x[i] = (x[i] - top) - log_total;
    else
        for (int64_t i = 0; i < count; i++) x[i] *= factor;
}

/* The best of x, searched alone. */
static void sharp_search_best(const float *x, int64_t count, List list) {
    empty_list(list);
    float32.search((Row){x, NULL}, 0, count, list);
}

#endif
