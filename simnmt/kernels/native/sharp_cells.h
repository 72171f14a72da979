/* The element-wise part of recurrent layers (SHARP-04), of one hypothesis. `way`: of activations.h. */
#ifndef SIMNMT_SHARP_CELLS_H
#define SIMNMT_SHARP_CELLS_H

#include "activations.h"

/* x becomes x + bias. */
static void sharp_add_bias(float *restrict x, const float *restrict bias, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] += bias[i];
}

/* h' = u h + (1 - u) tanh(q (W_h h) + given_h), gates in the order update, reset, candidate. `carried` is W h; `given` + `more` + `bias` is all
   else, `more` NULL or 0 to be left out. `gate` is memory of 3 w. */
static void sharp_gru(const float *restrict carried, const float *restrict given, const float *restrict more, const float *restrict bias,
                      const float *restrict h, int64_t w, int way, float *restrict gate, float *restrict out) {
    if (more)
        for (int64_t i = 0; i < 3 * w; i++) gate[i] = given[i] + more[i] + bias[i];
    else
        for (int64_t i = 0; i < 3 * w; i++) gate[i] = given[i] + bias[i];
    for (int64_t i = 0; i < 2 * w; i++) gate[i] += carried[i];
    sigmoid_array(gate, 2 * w, way, gate);
    const float *update = gate, *reset = gate + w;
    float *candidate = gate + 2 * w;
    for (int64_t i = 0; i < w; i++) candidate[i] += reset[i] * carried[2 * w + i];
    tanh_array(candidate, w, way, candidate);
    for (int64_t i = 0; i < w; i++) out[i] = candidate[i] + update[i] * (h[i] - candidate[i]);
}

/* cell' = f cell + i m, h' = o tanh(cell'), gates in the order input, forget, cell (m), output. `gate` is memory of 4 w. */
static void sharp_lstm(const float *restrict carried, const float *restrict given, const float *restrict more, const float *restrict bias,
                       const float *restrict cell, int64_t w, int way, float *restrict gate, float *restrict out, float *restrict cell_out) {
    if (more)
        for (int64_t i = 0; i < 4 * w; i++) gate[i] = carried[i] + given[i] + more[i] + bias[i];
    else
        for (int64_t i = 0; i < 4 * w; i++) gate[i] = carried[i] + given[i] + bias[i];
    sigmoid_array(gate, 2 * w, way, gate);
    tanh_array(gate + 2 * w, w, way, gate + 2 * w);
    sigmoid_array(gate + 3 * w, w, way, gate + 3 * w);
    for (int64_t i = 0; i < w; i++) cell_out[i] = gate[w + i] * cell[i] + gate[i] * gate[2 * w + i];
    tanh_array(cell_out, w, way, out);
    for (int64_t i = 0; i < w; i++) out[i] *= gate[3 * w + i];
}

#endif
