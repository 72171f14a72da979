/* Bias, softmax and the best columns of one row of products: stage by stage, or fused into one pass (FNI-05). */
#ifndef SIMNMT_SHARP_BEST_H
#define SIMNMT_SHARP_BEST_H

#include "vectors.h"

/* The `size` largest so far, descending, ties to the column that came first; slots not filled hold minus infinity. */
typedef struct {
    float *values;
    int32_t *columns;
    int64_t size;
} sharp_list;

static void sharp_empty(sharp_list list) {
    for (int64_t i = 0; i < list.size; i++) list.values[i] = -INFINITY, list.columns[i] = -1;
}

/* Offer x[0..count), which are the columns from `first` on. */
static void sharp_offer(sharp_list list, const float *x, int64_t first, int64_t count) {
    int64_t last = list.size - 1;
    for (int64_t i = 0; i < count; i++) {
        if (!(x[i] > list.values[last])) continue;
        int64_t at = last;
        for (; at > 0 && x[i] > list.values[at - 1]; at--) list.values[at] = list.values[at - 1], list.columns[at] = list.columns[at - 1];
        list.values[at] = x[i];
        list.columns[at] = (int32_t)(first + i);
    }
}

enum { SHARP_BLOCK = 16 * LANES };

/* The best of x + bias, or of x where bias is NULL, as log-probabilities in one pass; x stays as it is. */
static void sharp_fused_best(const float *x, const float *bias, int64_t count, sharp_list list) {
    float block[SHARP_BLOCK], top = -INFINITY, total = 0;
    sharp_empty(list);
    for (int64_t start = 0; start < count; start += SHARP_BLOCK) {
        int64_t here = count - start < SHARP_BLOCK ? count - start : SHARP_BLOCK, whole = here / LANES * LANES;
        vf most = vset(-INFINITY);
        for (int64_t i = 0; i < whole; i += LANES) {
            vf value = vload(x + start + i) + vload(bias + start + i);
            vstore(block + i, value);
            most = vmax(most, value);
        }
        if (whole < here) {
            vf value = vload_some(x + start + whole, here - whole, -INFINITY) + vload_some(bias + start + whole, here - whole, 0);
            vstore(block + whole, value);
            most = vmax(most, value);
        }
        float highest = vreduce_max(most);
        if (highest == -INFINITY) continue;
        if (highest > list.values[list.size - 1]) sharp_offer(list, block, start, here);
        if (highest > top) {
            total *= expf(top - highest);
            top = highest;
        }
        vf sum = vset(0);
        for (int64_t i = 0; i < here; i += LANES) sum += vexp(vload(block + i) - top);
        total += vreduce_add(sum);
    }
    float log_total = top + logf(total);
    for (int64_t i = 0; i < list.size; i++) list.values[i] -= log_total;
}

/* x becomes x + bias. */
static void sharp_add_bias(float *restrict x, const float *restrict bias, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] += bias[i];
}

/* x becomes its log-softmax, or its softmax times `share`. */
static void sharp_normalise(float *x, int64_t count, int logarithm, float share) {
    vf most = vset(-INFINITY), sum = vset(0);
    for (int64_t i = 0; i < count; i += LANES) most = vmax(most, count - i >= LANES ? vload(x + i) : vload_some(x + i, count - i, -INFINITY));
    float top = vreduce_max(most);
    if (top == -INFINITY) return;
    for (int64_t i = 0; i < count; i += LANES) {
        int64_t left = count - i < LANES ? count - i : LANES;
        vf grown = vexp(vload_some(x + i, left, -INFINITY) - top);
        sum += grown;
        if (!logarithm) vstore_some(x + i, grown, left);
    }
    float total = vreduce_add(sum), off = top + logf(total), factor = share / total;
    if (logarithm)
        for (int64_t i = 0; i < count; i++) x[i] -= off;
    else
        for (int64_t i = 0; i < count; i++) x[i] *= factor;
}

/* The best of x, searched alone. */
static void sharp_search_best(const float *x, int64_t count, sharp_list list) {
    sharp_empty(list);
    for (int64_t start = 0; start < count; start += SHARP_BLOCK) {
        int64_t here = count - start < SHARP_BLOCK ? count - start : SHARP_BLOCK;
        vf most = vset(-INFINITY);
        for (int64_t i = 0; i < here; i += LANES)
            most = vmax(most, here - i >= LANES ? vload(x + start + i) : vload_some(x + start + i, here - i, -INFINITY));
        if (vreduce_max(most) > list.values[list.size - 1]) sharp_offer(list, x + start, start, here);
    }
}

#endif
