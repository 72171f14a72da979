/* What Python tells the sharp decoder, and the pieces that both sides of a model share: memory, products, cells. Everything is the caller's: nothing
   here allocates. Python reads the structures and the numbers of the layers' kinds from this file. */
#pragma once

#include "activations.c"
#include "packed_products.c"

enum { SHARP_FC_RELU, SHARP_FC_TANH, SHARP_GRU, SHARP_LSTM };

#define SHARP_RELU_LIMIT 10.0f

/* Packed weights [outputs][inner]; inputs are clipped to +-limit and scaled only where the product is of int16. */
typedef struct {
    const void *packed;
    int64_t outputs, inner;
    float limit, scale, rescale;
} sharp_matrix;

/* A layer above the bottom cell (`skips`: the output of the layer two below is added), or one direction of a source layer: then the input matrix of
   the forward direction is that of both, one above the other. */
typedef struct {
    int64_t kind, width, skips;
    sharp_matrix input, state;
    const float *bias, *reset_bias; /* reset_bias: added to W_h h before the reset gate multiplies it, or NULL */
} sharp_layer;

/* `table`: products of the first words' embeddings with `word`, or with the input matrix of the first layer (SHARP-06). */
typedef struct {
    int64_t layers, int16, activation, table_words;
    const float *embedding, *table;
    const sharp_layer *stack;
} sharp_source;

typedef struct {
    int64_t vocab, r, s, a, gates, layers, additive, int16, activation, attention_kept, merge, table_words;
    sharp_matrix state, word, context, key, output; /* [W; W_a], [V; V_a], U, U_a, and the output layer, not packed where candidates are */
    const float *embedding, *bias, *score, *output_bias, *table;
    const void *output_rows; /* [vocab][units], to be packed by candidates */
    const sharp_layer *stack;
} sharp_model;

/* One sentence: what is asked, the memory of simnmt_sharp_bytes, and the results. ids: candidates, `columns` of them, or NULL for all words;
   forced: the end is banned, so that all steps are taken. */
typedef struct {
    int64_t members, src_len, columns, beam, steps, start, eos, pad, forced, fused, clock;
    double margin;
    const sharp_model *const *models;
    const float *const *sources;
    const int64_t *ids;
    void *memory;
    int64_t *tokens, *attended; /* of the best translation, [steps] */
    double log_prob;
    int64_t length, taken, distinct, hypotheses, stopped_early;
    double seconds[4]; /* prepare, body, product, search */
    /* Along given words, of all words: each step's best word, and the given word's log-probability (SHARP-10). */
    const int64_t *words;
    int64_t *best;
    float *log_probs;
} sharp_call;

/* Memory handed out in order, cache line by cache line; without a base it only counts. */
typedef struct {
    char *base;
    int64_t used;
} sharp_arena;

static void *sharp_take(sharp_arena *arena, int64_t count, int64_t size) {
    int64_t start = arena->used;
    arena->used = (start + count * size + 64) / 64 * 64;
    return arena->base ? arena->base + start : NULL;
}

INLINE float *sharp_floats(sharp_arena *arena, int64_t count) { return sharp_take(arena, count, sizeof(float)); }
INLINE int64_t sharp_larger(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t sharp_wide(int64_t count) { return (count + PANEL - 1) / PANEL * PANEL; }
INLINE int64_t sharp_gates(const sharp_layer *layer) { return layer->kind == SHARP_GRU ? 3 : layer->kind == SHARP_LSTM ? 4 : 1; }

/* out[row] = weights . x[row], rows of x one after the other; `rows` is memory for them as the product takes them. */
static void sharp_multiply(int64_t int16, const sharp_matrix *matrix, const float *x, int64_t count, void *rows, float *out, int64_t out_stride) {
    if (int16) {
        quantise_rows(x, count, matrix->inner, matrix->scale, matrix->limit, rows);
        product_int16(rows, count, matrix->packed, matrix->outputs, matrix->inner, matrix->rescale, out, out_stride);
    } else {
        interleave_rows(x, matrix->inner, count, matrix->inner, rows);
        product_float32(rows, count, matrix->packed, matrix->outputs, matrix->inner, out, out_stride);
    }
}

/* Products of words' embeddings into `given_rows`, looked up where kept (SHARP-06), the others in one product; `gathered`, `given`: memory for them. */
static void sharp_embed(int64_t int16, const sharp_matrix *matrix, const float *embedding, const float *table, int64_t table_words,
                        const int64_t *words, int64_t count, float *gathered, void *rows, float *given, const float **given_rows) {
    int64_t missing = 0, e = matrix->inner;
    for (int64_t i = 0; i < count; i++) {
        if (words[i] < table_words) {
            given_rows[i] = table + words[i] * matrix->outputs;
            continue;
        }
        memcpy(gathered + missing * e, embedding + words[i] * e, (size_t)e * sizeof(float));
        given_rows[i] = given + missing++ * matrix->outputs;
    }
    if (missing) sharp_multiply(int16, matrix, gathered, missing, rows, given, matrix->outputs);
}

/* x becomes x + bias. */
static void sharp_add(float *restrict x, const float *restrict bias, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] += bias[i];
}

/* h' = u h + (1 - u) tanh(q (W_h h) + given_h), gates in the order update, reset, candidate (SHARP-04). `carried` is W h; `given` + `more` + `bias` is
   all else, `more` NULL or 0 to be left out. `gate` is memory of 3 w. */
static void sharp_gru(const float *restrict carried, const float *restrict given, const float *restrict more, const float *restrict bias,
                      const float *restrict h, int64_t w, int method, float *restrict gate, float *restrict out) {
    if (more)
        for (int64_t i = 0; i < 3 * w; i++) gate[i] = given[i] + more[i] + bias[i];
    else
        for (int64_t i = 0; i < 3 * w; i++) gate[i] = given[i] + bias[i];
    sharp_add(gate, carried, 2 * w);
    simnmt_sigmoid(gate, 2 * w, method, gate);
    const float *update = gate, *reset = gate + w;
    float *candidate = gate + 2 * w;
    for (int64_t i = 0; i < w; i++) candidate[i] += reset[i] * carried[2 * w + i];
    simnmt_tanh(candidate, w, method, candidate);
    for (int64_t i = 0; i < w; i++) out[i] = candidate[i] + update[i] * (h[i] - candidate[i]);
}

/* cell' = f cell + i m, h' = o tanh(cell'), gates in the order input, forget, cell (m), output. `gate` is memory of 4 w. */
static void sharp_lstm(const float *restrict carried, const float *restrict given, const float *restrict more, const float *restrict bias,
                       const float *restrict cell, int64_t w, int method, float *restrict gate, float *restrict out, float *restrict cell_out) {
    if (more)
        for (int64_t i = 0; i < 4 * w; i++) gate[i] = carried[i] + given[i] + more[i] + bias[i];
    else
        for (int64_t i = 0; i < 4 * w; i++) gate[i] = carried[i] + given[i] + bias[i];
    simnmt_sigmoid(gate, 2 * w, method, gate);
    simnmt_tanh(gate + 2 * w, w, method, gate + 2 * w);
    simnmt_sigmoid(gate + 3 * w, w, method, gate + 3 * w);
    for (int64_t i = 0; i < w; i++) cell_out[i] = gate[w + i] * cell[i] + gate[i] * gate[2 * w + i];
    simnmt_tanh(cell_out, w, method, out);
    for (int64_t i = 0; i < w; i++) out[i] *= gate[3 * w + i];
}
