/* Where the decoder looks, and what it sees there (SHARP-04, SHARP-07). */
#ifndef SIMNMT_SHARP_ATTENTION_H
#define SIMNMT_SHARP_ATTENTION_H

#include "sharp_model.h"

/* x[0..n) becomes its softmax. */
static void sharp_softmax(float *x, int64_t n) {
    const float none = -INFINITY;
    vf most = vset(none), sum = vset(0);
    for (int64_t i = 0; i < n; i += LANES) most = vmax(most, n - i >= LANES ? vload(x + i) : vload_some(x + i, n - i, none));
    vf top = vset(vreduce_max(most));
    for (int64_t i = 0; i < n; i += LANES) {
        int64_t left = n - i < LANES ? n - i : LANES;
        vf grown = vexp(vload_some(x + i, left, none) - top);
        sum += grown;
        vstore_some(x + i, grown, left);
    }
    float share = 1 / vreduce_add(sum);
    for (int64_t i = 0; i < n; i++) x[i] *= share;
}

/* Once a sentence: keys U_a s_j, and what is summed at each step, s_j or, kept, U s_j; both packed like weights. */
static void sharp_read_source(const sharp_model *model, sharp_member *member, const float *source, int64_t src_len) {
    int64_t a = model->a, width = model->attention_kept ? model->gates * model->r : model->s;
    float *prepared = member->prepared;
    member->src_len = src_len;
    float *keys = model->additive ? member->keys : prepared;
    sharp_multiply(model->int16, &model->key, model->key.packed, source, src_len, member->rows, keys, a);
    if (!model->additive) {
        tanh_array(keys, src_len * a, (int)model->activation, keys);
        pack_float32(keys, src_len, a, member->keys);
    }
    if (model->attention_kept)
        sharp_multiply(model->int16, &model->context, model->context.packed, source, src_len, member->rows, prepared, width);
    const float *values = model->attention_kept ? prepared : source;
    for (int64_t panel = 0; panel < width; panel += PANEL)
        for (int64_t j = 0; j < src_len; j++) {
            float *to = member->values + panel * src_len + j * PANEL;
            int64_t count = width - panel < PANEL ? width - panel : PANEL;
            memcpy(to, values + j * width + panel, (size_t)count * sizeof *to);
            memset(to + count, 0, (size_t)(PANEL - count) * sizeof *to);
        }
}

/* Weights of all hypotheses over the source from their queries W_a h + V_a x, which are used up: [count][sharp_wide(src_len)]. */
static void sharp_attend(const sharp_model *model, sharp_member *member, int64_t count) {
    int64_t a = model->a, src_len = member->src_len, stride = sharp_wide(src_len);
    int way = (int)model->activation;
    if (model->additive) {
        float *restrict sum = member->gate;
        for (int64_t row = 0; row < count; row++)
            for (int64_t j = 0; j < src_len; j++) {
                const float *query = member->query + row * a, *key = member->keys + j * a;
                for (int64_t i = 0; i < a; i++) sum[i] = query[i] + key[i];
                tanh_array(sum, a, way, sum);
                vf score = vset(0);
                for (int64_t i = 0; i < a; i += LANES) {
                    int64_t left = a - i < LANES ? a - i : LANES;
                    score = vfma(vload_some(sum + i, left, 0), vload_some(model->score + i, left, 0), score);
                }
                member->attention[row * stride + j] = vreduce_add(score);
            }
    } else {
        tanh_array(member->query, count * a, way, member->query);
        interleave_rows(member->query, a, count, a, member->rows);
        product_float32(member->rows, count, member->keys, src_len, a, 0, member->attention, stride);
    }
    for (int64_t row = 0; row < count; row++) sharp_softmax(member->attention + row * stride, src_len);
}

/* U c of all hypotheses into member->sums, [count][gates r]. */
static void sharp_see(const sharp_model *model, sharp_member *member, int64_t count) {
    int64_t src_len = member->src_len, width = model->gates * model->r;
    interleave_rows(member->attention, sharp_wide(src_len), count, src_len, member->rows);
    if (model->attention_kept) {
        product_float32(member->rows, count, member->values, width, src_len, 0, member->sums, width);
    } else {
        product_float32(member->rows, count, member->values, model->s, src_len, 0, member->mixed, model->s);
        sharp_multiply(model->int16, &model->context, model->context.packed, member->mixed, count, member->rows, member->sums, width);
    }
}

#endif
