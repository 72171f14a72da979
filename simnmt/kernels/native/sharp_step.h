/* One step of one model, up to its logits: attention, the bottom cell, the stack above it (SHARP-04, SHARP-07, SHARP-12), the output layer's product. */
#pragma once

#include "sharp_model.h"

/* One model in one sentence. */
typedef struct {
    const sharp_model *model;
    float *states[2]; /* of this step and the one before, by turns: of the bottom cell, then of each layer, h [beam][width] and cell [beam][width] */
    float *gathered, *carried, *given, *query, *sums, *mixed, *gate, *attention, *keys, *values, *prepared, *bias, *logits;
    const float **given_rows;
    void *rows, *candidates;
    int64_t *distinct, *place;
    sharp_matrix output; /* of all words or of the candidates */
    int64_t beam, turn, src_len, stride; /* stride: floats from one row of logits to the next */
} sharp_member;

/* Lay a member out for a sentence. */
static void sharp_lay_out(sharp_arena *arena, sharp_member *member, const sharp_model *model, const sharp_call *call) {
    int64_t beam = call->beam, src_len = call->src_len, columns = call->columns, width = model->gates * model->r;
    int64_t given = width + model->a, widest = model->r, all = model->r;
    for (const sharp_layer *layer = model->stack; layer < model->stack + model->layers; layer++) {
        given = sharp_larger(given, sharp_gates(layer) * layer->width);
        widest = sharp_larger(widest, layer->width);
        all += layer->width;
    }
    int64_t fed = sharp_larger(widest, model->word.inner), inner = sharp_larger(sharp_larger(fed, model->s), sharp_larger(model->a, src_len));
    for (int turn = 0; turn < 2; turn++) member->states[turn] = sharp_floats(arena, 2 * beam * all);
    member->gathered = sharp_floats(arena, beam * fed);
    member->carried = sharp_floats(arena, beam * given);
    member->given = sharp_floats(arena, beam * given);
    member->given_rows = sharp_take(arena, beam, sizeof *member->given_rows);
    member->query = sharp_floats(arena, beam * model->a);
    member->sums = sharp_floats(arena, beam * width);
    member->mixed = sharp_floats(arena, beam * model->s);
    member->gate = sharp_floats(arena, 4 * sharp_larger(widest, model->a));
    member->attention = sharp_floats(arena, beam * sharp_wide(src_len));
    member->keys = sharp_floats(arena, sharp_wide(src_len) * model->a);
    member->values = sharp_floats(arena, sharp_wide(model->attention_kept ? width : model->s) * src_len);
    member->prepared = sharp_floats(arena, src_len * sharp_larger(width, model->a));
    member->rows = sharp_floats(arena, sharp_larger(beam, src_len) * (inner + 1));
    member->candidates = sharp_take(arena, call->ids ? simnmt_packed_size(columns, model->output.inner + 1) : 0, model->int16 ? 2 : 4);
    member->bias = sharp_floats(arena, columns);
    member->stride = sharp_wide(columns);
    member->logits = sharp_floats(arena, beam * member->stride);
    member->distinct = sharp_take(arena, beam, sizeof(int64_t));
    member->place = sharp_take(arena, beam, sizeof(int64_t));
    member->model = model, member->output = model->output, member->beam = beam, member->turn = 0, member->src_len = src_len;
    if (arena->base) memset(member->states[0], 0, (size_t)(2 * beam * all) * sizeof(float));
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

/* Once a sentence: keys U_a s_j, and what is summed at each step, s_j or, kept, U s_j; both packed like weights. */
static void sharp_read_source(sharp_member *member, const float *source) {
    const sharp_model *model = member->model;
    int64_t a = model->a, src_len = member->src_len, width = model->attention_kept ? model->gates * model->r : model->s;
    float *prepared = member->prepared, *keys = model->additive ? member->keys : prepared;
    sharp_multiply(model->int16, &model->key, source, src_len, member->rows, keys, a);
    if (!model->additive) {
        simnmt_tanh(keys, src_len * a, (int)model->activation, keys);
        simnmt_pack((const unit *)keys, a, NULL, src_len, (unit *)member->keys);
    }
    if (model->attention_kept) sharp_multiply(model->int16, &model->context, source, src_len, member->rows, prepared, width);
    const float *values = model->attention_kept ? prepared : source;
    for (int64_t panel = 0; panel < width; panel += PANEL)
        for (int64_t j = 0; j < src_len; j++) {
            float *to = member->values + panel * src_len + j * PANEL;
            int64_t count = width - panel < PANEL ? width - panel : PANEL;
            memcpy(to, values + j * width + panel, (size_t)count * sizeof *to);
            memset(to + count, 0, (size_t)(PANEL - count) * sizeof *to);
        }
}

/* The candidates' rows of the output layer, and their biases; those that are never chosen get -inf. */
static void sharp_choose_columns(sharp_member *member, const sharp_call *call) {
    const sharp_model *model = member->model;
    const int64_t *ids = call->ids;
    if (ids) {
        simnmt_pack(model->output_rows, model->int16 ? (model->output.inner + 1) / 2 : model->output.inner, ids, call->columns, member->candidates);
        member->output.packed = member->candidates;
    }
    member->output.outputs = call->columns;
    for (int64_t i = 0; i < call->columns; i++) {
        int64_t word = ids ? ids[i] : i;
        int never = (word == call->pad && word != call->eos) || (call->forced && word == call->eos);
        member->bias[i] = never ? -INFINITY : model->output_bias[word];
    }
}

/* Weights of all hypotheses over the source from their queries W_a h + V_a x, which are used up: [count][sharp_wide(src_len)]. */
static void sharp_attend(sharp_member *member, int64_t count) {
    const sharp_model *model = member->model;
    int64_t a = model->a, src_len = member->src_len, stride = sharp_wide(src_len);
    int method = (int)model->activation;
    if (model->additive) {
        float *restrict sum = member->gate;
        for (int64_t row = 0; row < count; row++)
            for (int64_t j = 0; j < src_len; j++) {
                const float *query = member->query + row * a, *key = member->keys + j * a;
                for (int64_t i = 0; i < a; i++) sum[i] = query[i] + key[i];
                simnmt_tanh(sum, a, method, sum);
                vf score = vset(0);
                for (int64_t i = 0; i < a; i += LANES) {
                    int64_t left = a - i < LANES ? a - i : LANES;
                    score = vfma(vload_some(sum + i, left, 0), vload_some(model->score + i, left, 0), score);
                }
                member->attention[row * stride + j] = vreduce_add(score);
            }
    } else {
        simnmt_tanh(member->query, count * a, method, member->query);
        interleave_rows(member->query, a, count, a, member->rows);
        product_float32(member->rows, count, member->keys, src_len, a, member->attention, stride);
    }
    for (int64_t row = 0; row < count; row++) sharp_normalise(member->attention + row * stride, src_len, 0, 1);
}

/* U c of all hypotheses into member->sums, [count][gates r]. */
static void sharp_see(sharp_member *member, int64_t count) {
    const sharp_model *model = member->model;
    int64_t src_len = member->src_len, width = model->gates * model->r;
    interleave_rows(member->attention, sharp_wide(src_len), count, src_len, member->rows);
    if (model->attention_kept) {
        product_float32(member->rows, count, member->values, width, src_len, member->sums, width);
    } else {
        product_float32(member->rows, count, member->values, model->s, src_len, member->mixed, model->s);
        sharp_multiply(model->int16, &model->context, member->mixed, count, member->rows, member->sums, width);
    }
}

/* Each different parent once, in order of appearance, and where each hypothesis finds its own (SHARP-09). Returns how many. */
static int64_t sharp_distinct(const int64_t *parents, int64_t count, int64_t *distinct, int64_t *place) {
    int64_t found = 0;
    for (int64_t row = 0; row < count; row++) {
        int64_t at = 0;
        while (at < found && distinct[at] != parents[row]) at++;
        if (at == found) distinct[found++] = parents[row];
        place[row] = at;
    }
    return found;
}

/* The element-wise part of a cell of any layer: states at `before` and `after`, of member->beam rows h and then as many of the LSTM's cell. */
static void sharp_cell(sharp_member *member, int64_t gates, int64_t w, int64_t row, int64_t parent, const float *carried, const float *given,
                       const float *more, const float *bias, const float *before, float *after) {
    int method = (int)member->model->activation;
    const float *h = before + parent * w, *cell = h + member->beam * w;
    float *out = after + row * w;
    if (gates == 3)
        sharp_gru(carried, given, more, bias, h, w, method, member->gate, out);
    else
        sharp_lstm(carried, given, more, bias, cell, w, method, member->gate, out, out + member->beam * w);
}

static void sharp_bottom(sharp_member *member, const int64_t *words, const int64_t *parents, int64_t count, const float *before, float *after) {
    const sharp_model *model = member->model;
    int64_t r = model->r, a = model->a, gates = model->gates * r, width = gates + a, shared = count;
    sharp_embed(model->int16, &model->word, model->embedding, model->table, model->table_words, words, count, member->gathered, member->rows,
                member->given, member->given_rows);
    if (model->merge)
        shared = sharp_distinct(parents, count, member->distinct, member->place);
    else
        for (int64_t row = 0; row < count; row++) member->distinct[row] = parents[row], member->place[row] = row;
    for (int64_t i = 0; i < shared; i++) memcpy(member->gathered + i * r, before + member->distinct[i] * r, (size_t)r * sizeof(float));
    sharp_multiply(model->int16, &model->state, member->gathered, shared, member->rows, member->carried, width);
    for (int64_t row = 0; row < count; row++) {
        const float *restrict carried = member->carried + member->place[row] * width + gates, *restrict given = member->given_rows[row] + gates;
        float *restrict query = member->query + row * a;
        for (int64_t i = 0; i < a; i++) query[i] = carried[i] + given[i];
    }
    sharp_attend(member, count);
    sharp_see(member, count);
    for (int64_t row = 0; row < count; row++)
        sharp_cell(member, model->gates, r, row, parents[row], member->carried + member->place[row] * width, member->given_rows[row],
                   member->sums + row * gates, model->bias, before, after);
}

static void sharp_layer_above(sharp_member *member, const sharp_layer *layer, const float *below, const float *two_below, const int64_t *parents,
                              int64_t count, const float *before, float *after) {
    const sharp_model *model = member->model;
    int64_t w = layer->width, gates = sharp_gates(layer), all = count * w;
    if (gates > 1) {
        for (int64_t row = 0; row < count; row++) memcpy(member->gathered + row * w, before + parents[row] * w, (size_t)w * sizeof(float));
        sharp_multiply(model->int16, &layer->state, member->gathered, count, member->rows, member->carried, gates * w);
        sharp_multiply(model->int16, &layer->input, below, count, member->rows, member->given, gates * w);
        for (int64_t row = 0; row < count; row++)
            sharp_cell(member, gates, w, row, parents[row], member->carried + row * gates * w, member->given + row * gates * w, NULL, layer->bias,
                       before, after);
        return;
    }
    sharp_multiply(model->int16, &layer->input, below, count, member->rows, after, w);
    if (layer->kind == SHARP_FC_TANH) {
        simnmt_tanh(after, all, (int)model->activation, after);
        return;
    }
    if (layer->skips) sharp_add(after, two_below, all);
    for (int64_t i = 0; i < all; i++) after[i] = after[i] < 0 ? 0 : after[i] > SHARP_RELU_LIMIT ? SHARP_RELU_LIMIT : after[i];
}

/* Bottom and stack of hypotheses that end in `words` and grew from the rows `parents` of the step before. Returns the top layer's output. */
static const float *sharp_body(sharp_member *member, const int64_t *words, const int64_t *parents, int64_t count) {
    const sharp_model *model = member->model;
    const float *before = member->states[member->turn], *below = NULL, *two_below;
    float *after = member->states[!member->turn], *top = after;
    sharp_bottom(member, words, parents, count, before, after);
    int64_t used = 2 * member->beam * model->r;
    for (const sharp_layer *layer = model->stack; layer < model->stack + model->layers; layer++) {
        two_below = below, below = top, top = after + used;
        sharp_layer_above(member, layer, below, two_below, parents, count, before + used, top);
        used += 2 * member->beam * layer->width;
    }
    member->turn = !member->turn;
    return top;
}

/* The output layer's products, without bias: member->logits. */
static void sharp_project(sharp_member *member, const float *top, int64_t count) {
    sharp_multiply(member->model->int16, &member->output, top, count, member->rows, member->logits, member->stride);
}
