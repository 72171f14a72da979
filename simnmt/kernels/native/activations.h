/* tanh and sigmoid over arrays, in the four ways that can be compared (SHARP-08): the C library's, tables, and a polynomial in vectors.

   Bounds on the absolute error over all reals: tables, nearest entry 0.001954 (tanh) and 0.000489 (sigmoid); with linear interpolation 1.7e-6 and
   3.4e-4 (the tail beyond the table); polynomial 6e-7 and 4e-7. NaN stays NaN.

   A lookup is a gather: 6,144 values of tanh take 64 us by the library, 2.7 by the table and 1.3 by the polynomial with AVX-512; with SSE2, which
   has no gather and no fused multiply-add, 64, 3.8 and 4.2. */
#ifndef SIMNMT_ACTIVATIONS_H
#define SIMNMT_ACTIVATIONS_H

#include "vectors.h"

/* How an activation is computed; the numbers are known to activations.py. */
enum { ACTIVATION_LIBRARY, ACTIVATION_TABLE, ACTIVATION_POLYNOMIAL, ACTIVATION_LINEAR_TABLE };

/* Intervals of the tables, on [-TABLE_RANGE, TABLE_RANGE]. */
enum { TABLE_INTERVALS = 4096, TABLE_RANGE = 8 };

static float tanh_table[TABLE_INTERVALS + 1], sigmoid_table[TABLE_INTERVALS + 1];

/* Once, when the library is loaded. */
__attribute__((constructor)) static void fill_tables(void) {
    for (int i = 0; i <= TABLE_INTERVALS; i++) {
        double x = (i - TABLE_INTERVALS / 2) * (2.0 * TABLE_RANGE / TABLE_INTERVALS);
        tanh_table[i] = (float)tanh(x);
        sigmoid_table[i] = (float)(1 / (1 + exp(-x)));
    }
}

INLINE vf vgather(const float *table, vi index) {
#if LANES == 16
    return _mm512_i32gather_ps((__m512i)index, table, 4);
#elif LANES == 8
    return _mm256_i32gather_ps(table, (__m256i)index, 4);
#else
    vf values;
    for (int lane = 0; lane < LANES; lane++) values[lane] = table[index[lane]];
    return values;
#endif
}

/* How many steps of the table x, held within it, lies from 0. NaN lies at the end. */
INLINE vf vtable_steps(vf x) {
    x = vmax(vmin(x, vset(TABLE_RANGE)), vset(-TABLE_RANGE));
    return x * vset(TABLE_INTERVALS / (2.0f * TABLE_RANGE));
}

INLINE vf vtable(const float *table, vf x) {
    vi index = __builtin_convertvector(vtable_steps(x) + (TABLE_INTERVALS / 2 + 0.5f), vi);
    return vselect(x != x, x, vgather(table, index));
}

/* How far x lies within its interval is told from 0, not from the table's start: there the bits are that a step has. */
INLINE vf vtable_linear(const float *table, vf x) {
    vf steps = vtable_steps(x);
    vi index = __builtin_convertvector(vmin(steps + TABLE_INTERVALS / 2, vset(TABLE_INTERVALS - 1)), vi);
    vf within = steps - __builtin_convertvector(index - TABLE_INTERVALS / 2, vf);
    vf low = vgather(table, index), high = vgather(table, index + 1);
    return vselect(x != x, x, vfma(within, high - low, low));
}

/* A ratio of polynomials in x^2, the least relative error on [-8.5, 8.5] (1.2e-8 before rounding); constant beyond. */
INLINE vf vtanh(vf x) {
    x = vmax(vset(-8.5f), vmin(vset(8.5f), x));
    vf square = x * x;
    vf over = vfma(vset(1.42692531e-8f), square, vset(2.12510631e-5f));
    over = vfma(over, square, vset(0.00353402804f));
    over = vfma(over, square, vset(0.134132479f));
    over = vfma(over, square, vset(0.999999988f));
    vf under = vfma(vset(8.14513388e-7f), square, vset(0.00033488667f));
    under = vfma(under, square, vset(0.0260227559f));
    under = vfma(under, square, vset(0.467465707f));
    under = vfma(under, square, vset(1.0f));
    return x * over / under;
}

INLINE vf vsigmoid(vf x) { return vfma(vtanh(x * 0.5f), vset(0.5f), vset(0.5f)); }

#define OVER_VECTORS(expression) \
    for (int64_t i = 0; i < count; i += LANES) { \
        int64_t left = count - i; \
        vf v = left >= LANES ? vload(x + i) : vload_some(x + i, left, 0); \
        v = expression; \
        if (left >= LANES) \
            vstore(out + i, v); \
        else \
            vstore_some(out + i, v, left); \
    }

/* out[i] = tanh(x[i]) in the way asked for; in place where out is x. */
static void tanh_array(const float *x, int64_t count, int way, float *out) {
    if (way == ACTIVATION_POLYNOMIAL) {
        OVER_VECTORS(vtanh(v))
    } else if (way == ACTIVATION_TABLE) {
        OVER_VECTORS(vtable(tanh_table, v))
    } else if (way == ACTIVATION_LINEAR_TABLE) {
        OVER_VECTORS(vtable_linear(tanh_table, v))
    } else {
        for (int64_t i = 0; i < count; i++) out[i] = tanhf(x[i]);
    }
}

/* out[i] = 1 / (1 + e^-x[i]), likewise. */
static void sigmoid_array(const float *x, int64_t count, int way, float *out) {
    if (way == ACTIVATION_POLYNOMIAL) {
        OVER_VECTORS(vsigmoid(v))
    } else if (way == ACTIVATION_TABLE) {
        OVER_VECTORS(vtable(sigmoid_table, v))
    } else if (way == ACTIVATION_LINEAR_TABLE) {
        OVER_VECTORS(vtable_linear(sigmoid_table, v))
    } else {
        for (int64_t i = 0; i < count; i++) out[i] = 1 / (1 + expf(-x[i]));
    }
}

SIMNMT_EXPORT void simnmt_tanh(const float *x, int64_t count, int way, float *out) { tanh_array(x, count, way, out); }

SIMNMT_EXPORT void simnmt_sigmoid(const float *x, int64_t count, int way, float *out) { sigmoid_array(x, count, way, out); }

#endif
