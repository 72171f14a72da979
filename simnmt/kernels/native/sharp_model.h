/* What the sharp decoder is told of a model, and the memory that one sentence takes. Everything is the caller's: nothing here allocates. */
#ifndef SIMNMT_SHARP_MODEL_H
#define SIMNMT_SHARP_MODEL_H

#include "activations.h"
#include "product.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHARP_POISON 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SHARP_POISON 1
#endif
#if SHARP_POISON
#include <sanitizer/asan_interface.h>
#endif

/* Known to sharp/native_search.py by the same numbers, as is the order of all members; it compares what simnmt_sharp_layout tells. */
enum { SHARP_FC_RELU, SHARP_FC_TANH, SHARP_GRU, SHARP_LSTM };
#define SHARP_RELU_LIMIT 10.0f

/* Packed weights [outputs][inner]; inputs are clipped to +-limit and scaled only where the product is of int16. */
typedef struct {
    const void *packed;
    int64_t outputs, inner;
    float limit, scale, rescale;
} sharp_matrix;

typedef struct {
    int64_t kind, width, skip; /* skip: the layer whose output is added, or -1 */
    sharp_matrix input, state;
    const float *bias;
} sharp_layer;

typedef struct {
    int64_t vocab, e, r, s, a, gates, top, layers;
    int64_t additive, int16, activation, attention_kept, merge, table_words;
    sharp_matrix state;   /* [W; W_a] */
    sharp_matrix word;    /* [V; V_a] */
    sharp_matrix context; /* U */
    sharp_matrix key;     /* U_a */
    sharp_matrix output;  /* packed NULL: candidates alone are decoded */
    const float *embedding, *bias, *score, *output_bias;
    const float *table;       /* [table_words][gates r + a], products of the first words' embeddings */
    const void *output_rows;  /* [vocab][top] float32, or int16 with top made even; to be packed by candidates */
    const sharp_layer *stack;
} sharp_model;

/* One model in one sentence. */
typedef struct {
    float *h[2], *cell[2];                    /* [beam][r], of this step and of the one before, by turns */
    float *(*layer_h)[2], *(*layer_cell)[2];  /* of each layer */
    float *gathered, *carried, *given, *query, *sums, *mixed, *gate, *attention;
    const float **given_rows;
    float *keys, *values, *prepared;
    void *rows, *candidates;
    float *bias, *logits;
    int64_t *distinct, *place;
    int64_t turn, src_len, columns, stride; /* stride: floats from one row of logits to the next */
    const void *output;
} sharp_member;

/* Memory handed out in order, cache line by cache line; without a base it only counts. What lies between is poisoned for the address sanitizer. */
typedef struct {
    char *base;
    int64_t used;
} sharp_arena;

static void *sharp_take(sharp_arena *arena, int64_t count, int64_t size) {
    enum { ALIGNMENT = 64 };
    int64_t start = arena->used, end = start + count * size;
    arena->used = (end + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    if (!arena->base) return NULL;
#if SHARP_POISON
    ASAN_UNPOISON_MEMORY_REGION(arena->base + start, (size_t)(end - start));
    ASAN_POISON_MEMORY_REGION(arena->base + end, (size_t)(arena->used - end));
#endif
    return arena->base + start;
}

INLINE float *sharp_floats(sharp_arena *arena, int64_t count) { return sharp_take(arena, count, sizeof(float)); }
INLINE int64_t sharp_larger(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE int64_t sharp_wide(int64_t count) { return (count + PANEL - 1) / PANEL * PANEL; }
INLINE int64_t sharp_gates(const sharp_layer *layer) { return layer->kind == SHARP_GRU ? 3 : layer->kind == SHARP_LSTM ? 4 : 1; }

/* Lay a member out for so many hypotheses, source words and candidates; `columns` 0: no list of candidates, all words. */
static void sharp_lay_out(sharp_arena *arena, sharp_member *member, const sharp_model *model, int64_t beam, int64_t most_src, int64_t columns) {
    int64_t given = model->gates * model->r + model->a, widest = model->r, inner = sharp_larger(model->e, sharp_larger(model->s, model->a));
    for (int64_t i = 0; i < model->layers; i++) {
        const sharp_layer *layer = model->stack + i;
        given = sharp_larger(given, sharp_gates(layer) * layer->width);
        widest = sharp_larger(widest, layer->width);
    }
    inner = sharp_larger(sharp_larger(inner, widest), most_src);
    for (int turn = 0; turn < 2; turn++) {
        member->h[turn] = sharp_floats(arena, beam * model->r);
        member->cell[turn] = sharp_floats(arena, beam * model->r);
    }
    member->layer_h = sharp_take(arena, model->layers, sizeof *member->layer_h);
    member->layer_cell = sharp_take(arena, model->layers, sizeof *member->layer_cell);
    for (int64_t i = 0; i < model->layers; i++)
        for (int turn = 0; turn < 2; turn++) {
            float *h = sharp_floats(arena, beam * model->stack[i].width), *cell = sharp_floats(arena, beam * model->stack[i].width);
            if (arena->base) member->layer_h[i][turn] = h, member->layer_cell[i][turn] = cell;
        }
    member->gathered = sharp_floats(arena, beam * sharp_larger(widest, model->e));
    member->carried = sharp_floats(arena, beam * given);
    member->given = sharp_floats(arena, beam * given);
    member->given_rows = sharp_take(arena, beam, sizeof *member->given_rows);
    member->query = sharp_floats(arena, beam * model->a);
    member->sums = sharp_floats(arena, beam * model->gates * model->r);
    member->mixed = sharp_floats(arena, beam * model->s);
    member->gate = sharp_floats(arena, 4 * sharp_larger(widest, model->a));
    member->attention = sharp_floats(arena, beam * sharp_wide(most_src));
    member->keys = sharp_floats(arena, sharp_larger(packed_size(most_src, model->a), most_src * model->a));
    member->values = sharp_floats(arena, packed_size(model->attention_kept ? model->gates * model->r : model->s, most_src));
    member->prepared = sharp_floats(arena, most_src * sharp_larger(model->gates * model->r, model->a));
    member->rows = sharp_take(arena, rows_size(sharp_larger(beam, most_src), inner), sizeof(float));
    member->candidates = sharp_take(arena, packed_size(columns, model->top), model->int16 ? sizeof(int16_t) : sizeof(float));
    member->bias = sharp_floats(arena, columns ? columns : model->vocab);
    member->stride = sharp_wide(columns ? columns : model->vocab);
    member->logits = sharp_floats(arena, beam * member->stride);
    member->distinct = sharp_take(arena, beam, sizeof(int64_t));
    member->place = sharp_take(arena, beam, sizeof(int64_t));
}

/* out[row] = weights . x[row], rows of x one after the other; `rows` is memory for them as the product takes them. */
static void sharp_multiply(int64_t int16, const sharp_matrix *matrix, const void *packed, const float *x, int64_t count, void *rows, float *out,
                           int64_t out_stride) {
    if (int16) {
        quantise_rows(x, matrix->inner, count, matrix->inner, matrix->scale, matrix->limit, rows);
        product_int16(rows, count, packed, matrix->outputs, matrix->inner, matrix->rescale, 0, out, out_stride);
    } else {
        interleave_rows(x, matrix->inner, count, matrix->inner, rows);
        product_float32(rows, count, packed, matrix->outputs, matrix->inner, 0, out, out_stride);
    }
}

#endif
