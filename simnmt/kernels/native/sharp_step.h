/* One step of one model, up to its logits: the bottom cell, the stack above it (SHARP-12), the output layer's product. */
#ifndef SIMNMT_SHARP_STEP_H
#define SIMNMT_SHARP_STEP_H

#include "sharp_attention.h"
#include "sharp_cells.h"

/* Each different parent once, in order of appearance, and where each hypothesis finds its own (SHARP-09). Returns how many. */
static int64_t sharp_distinct(const int32_t *parents, int64_t count, int64_t *distinct, int64_t *place) {
    int64_t found = 0;
    for (int64_t row = 0; row < count; row++) {
        int64_t at = 0;
        while (at < found && distinct[at] != parents[row]) at++;
        if (at == found) distinct[found++] = parents[row];
        place[row] = at;
    }
    return found;
}

static void sharp_begin(const sharp_model *model, sharp_member *member, const float *source, int64_t src_len) {
    sharp_read_source(model, member, source, src_len);
    member->turn = 0;
    memset(member->h[0], 0, (size_t)model->r * sizeof(float));
    memset(member->cell[0], 0, (size_t)model->r * sizeof(float));
    for (int64_t i = 0; i < model->layers; i++) {
        memset(member->layer_h[i][0], 0, (size_t)model->stack[i].width * sizeof(float));
        memset(member->layer_cell[i][0], 0, (size_t)model->stack[i].width * sizeof(float));
    }
}

/* Rows of 4-byte units, floats or pairs of int16, packed as pack_float32 and pack_int16 do; in pieces that stay in the nearest cache, with
   the rows to come called for beforehand: they lie far apart. */
static void sharp_gather(const int32_t *rows, int64_t units, const int64_t *ids, int64_t count, int32_t *packed) {
    enum { PIECE = 64, AHEAD = 8, LINE = 16 };
    for (int64_t first = 0; first < count; first += PANEL, packed += units * PANEL)
        for (int64_t start = 0; start < units; start += PIECE) {
            int64_t here = units - start < PIECE ? units - start : PIECE;
            for (int64_t output = 0; output < PANEL; output++) {
                int32_t *to = packed + start * PANEL + output;
                if (first + output + AHEAD < count)
                    for (int64_t i = 0; i < here; i += LINE) __builtin_prefetch(rows + ids[first + output + AHEAD] * units + start + i);
                if (first + output >= count) {
                    for (int64_t i = 0; i < here; i++) to[i * PANEL] = 0;
                    continue;
                }
                const int32_t *from = rows + ids[first + output] * units + start;
                for (int64_t i = 0; i < here; i++) to[i * PANEL] = from[i];
            }
        }
}

/* The candidates' rows of the output layer and their biases; `ids` NULL: all words. Those that are banned get theirs in sharp_ban. */
static void sharp_choose_columns(const sharp_model *model, sharp_member *member, const int64_t *ids, int64_t count) {
    member->columns = ids ? count : model->vocab;
    if (!ids) {
        member->output = model->output.packed;
        memcpy(member->bias, model->output_bias, (size_t)model->vocab * sizeof(float));
        return;
    }
    sharp_gather(model->output_rows, model->int16 ? (model->top + 1) / 2 : model->top, ids, count, member->candidates);
    for (int64_t i = 0; i < count; i++) member->bias[i] = model->output_bias[ids[i]];
    member->output = member->candidates;
}

/* Products of the last words' embeddings, looked up where kept (SHARP-06): member->given_rows. */
static void sharp_embed(const sharp_model *model, sharp_member *member, const int32_t *words, int64_t count) {
    int64_t width = model->gates * model->r + model->a, missing = 0;
    for (int64_t row = 0; row < count; row++) {
        if (words[row] < model->table_words) {
            member->given_rows[row] = model->table + words[row] * width;
            continue;
        }
        memcpy(member->gathered + missing * model->e, model->embedding + words[row] * model->e, (size_t)model->e * sizeof(float));
        member->given_rows[row] = member->given + missing++ * width;
    }
    if (missing) sharp_multiply(model->int16, &model->word, model->word.packed, member->gathered, missing, member->rows, member->given, width);
}

static void sharp_bottom(const sharp_model *model, sharp_member *member, const int32_t *words, const int32_t *parents, int64_t count) {
    int64_t r = model->r, a = model->a, gates = model->gates * r, width = gates + a, shared = count;
    const float *before = member->h[member->turn], *cells = member->cell[member->turn];
    float *after = member->h[!member->turn], *cells_after = member->cell[!member->turn];
    sharp_embed(model, member, words, count);
    if (model->merge)
        shared = sharp_distinct(parents, count, member->distinct, member->place);
    else
        for (int64_t row = 0; row < count; row++) member->distinct[row] = parents[row], member->place[row] = row;
    for (int64_t i = 0; i < shared; i++) memcpy(member->gathered + i * r, before + member->distinct[i] * r, (size_t)r * sizeof(float));
    sharp_multiply(model->int16, &model->state, model->state.packed, member->gathered, shared, member->rows, member->carried, width);
    for (int64_t row = 0; row < count; row++) {
        const float *restrict carried = member->carried + member->place[row] * width + gates, *restrict given = member->given_rows[row] + gates;
        float *restrict query = member->query + row * a;
        for (int64_t i = 0; i < a; i++) query[i] = carried[i] + given[i];
    }
    sharp_attend(model, member, count);
    sharp_see(model, member, count);
    for (int64_t row = 0; row < count; row++) {
        const float *carried = member->carried + member->place[row] * width, *given = member->given_rows[row], *sums = member->sums + row * gates;
        if (model->gates == 3)
            sharp_gru(carried, given, sums, model->bias, before + parents[row] * r, r, (int)model->activation, member->gate, after + row * r);
        else
            sharp_lstm(carried, given, sums, model->bias, cells + parents[row] * r, r, (int)model->activation, member->gate, after + row * r,
                       cells_after + row * r);
    }
}

static void sharp_recurrent_layer(const sharp_model *model, sharp_member *member, int64_t number, const float *below, const int32_t *parents,
                                  int64_t count) {
    const sharp_layer *layer = model->stack + number;
    int64_t w = layer->width, gates = sharp_gates(layer) * w;
    const float *before = member->layer_h[number][member->turn], *cells = member->layer_cell[number][member->turn];
    float *after = member->layer_h[number][!member->turn], *cells_after = member->layer_cell[number][!member->turn];
    for (int64_t row = 0; row < count; row++) memcpy(member->gathered + row * w, before + parents[row] * w, (size_t)w * sizeof(float));
    sharp_multiply(model->int16, &layer->state, layer->state.packed, member->gathered, count, member->rows, member->carried, gates);
    sharp_multiply(model->int16, &layer->input, layer->input.packed, below, count, member->rows, member->given, gates);
    for (int64_t row = 0; row < count; row++) {
        const float *carried = member->carried + row * gates, *given = member->given + row * gates;
        if (layer->kind == SHARP_GRU)
            sharp_gru(carried, given, NULL, layer->bias, before + parents[row] * w, w, (int)model->activation, member->gate, after + row * w);
        else
            sharp_lstm(carried, given, NULL, layer->bias, cells + parents[row] * w, w, (int)model->activation, member->gate, after + row * w,
                       cells_after + row * w);
    }
}

static void sharp_connected_layer(const sharp_model *model, sharp_member *member, int64_t number, const float *below, int64_t count) {
    const sharp_layer *layer = model->stack + number;
    int64_t all = count * layer->width;
    float *out = member->layer_h[number][!member->turn];
    sharp_multiply(model->int16, &layer->input, layer->input.packed, below, count, member->rows, out, layer->width);
    if (layer->kind == SHARP_FC_TANH) {
        tanh_array(out, all, (int)model->activation, out);
        return;
    }
    if (layer->skip >= 0) {
        const float *skipped = member->layer_h[layer->skip][!member->turn];
        for (int64_t i = 0; i < all; i++) out[i] += skipped[i];
    }
    for (int64_t i = 0; i < all; i++) out[i] = out[i] < 0 ? 0 : out[i] > SHARP_RELU_LIMIT ? SHARP_RELU_LIMIT : out[i];
}

/* Bottom and stack of hypotheses that end in `words` and grew from the rows `parents` of the step before. Returns the top layer's output. */
static const float *sharp_body(const sharp_model *model, sharp_member *member, const int32_t *words, const int32_t *parents, int64_t count) {
    sharp_bottom(model, member, words, parents, count);
    const float *below = member->h[!member->turn];
    for (int64_t i = 0; i < model->layers; i++) {
        int64_t kind = model->stack[i].kind;
        if (kind == SHARP_GRU || kind == SHARP_LSTM)
            sharp_recurrent_layer(model, member, i, below, parents, count);
        else
            sharp_connected_layer(model, member, i, below, count);
        below = member->layer_h[i][!member->turn];
    }
    member->turn = !member->turn;
    return below;
}

/* The output layer's products, without bias: member->logits. */
static void sharp_project(const sharp_model *model, sharp_member *member, const float *top, int64_t count) {
    sharp_matrix output = model->output;
    output.outputs = member->columns;
    sharp_multiply(model->int16, &output, member->output, top, count, member->rows, member->logits, member->stride);
}

#endif
