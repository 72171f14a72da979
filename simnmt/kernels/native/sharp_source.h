/* The source side of a sharp model: bidirectional GRU or LSTM layers over one sentence, run once before its search (SHARP-16).

   Of each layer the products of all positions with the weights of both directions are one call, since they wait for nothing (SHARP-01); those of
   the first layer are looked up where they are kept (SHARP-06). What is left for the recurrent steps is one row times W h of all gates, which is
   bound by reading the weights: 16 bits halve that. */
#ifndef SIMNMT_SHARP_SOURCE_H
#define SIMNMT_SHARP_SOURCE_H

#include "sharp_cells.h"
#include "sharp_model.h"

/* One layer. Rows of `input` and `bias`: the gates of the forward direction, then those of the backward direction. */
typedef struct {
    int64_t kind, width;     /* SHARP_GRU or SHARP_LSTM; width of one direction */
    sharp_matrix input;      /* [2 gates width][width of the layer below] */
    sharp_matrix state[2];   /* W of each direction, [gates width][width] */
    const float *bias;       /* [2 gates width] */
    const float *reset_bias; /* GRU: [2][width], added to W_h h before the reset gate multiplies it; LSTM: NULL */
} sharp_source_layer;

typedef struct {
    int64_t vocab, e, layers, int16, activation, table_words;
    const float *embedding; /* [vocab][e] */
    const float *table;     /* [table_words][2 gates width of the first layer], products of the first words' embeddings */
    const sharp_source_layer *stack;
} sharp_source;

/* Memory for one sentence. */
typedef struct {
    float *below[2];          /* states of the layer below and of this one, by turns: [src_len][2 width] */
    float *gathered;          /* embeddings of words without kept products */
    float *given;             /* input products, [src_len][2 gates width] */
    const float **given_rows; /* each position's row, in `given` or in the table */
    float *carried, *gate, *cell[2], *zeros;
    void *rows;
} sharp_reader;

static int64_t sharp_source_gates(const sharp_source_layer *layer) { return (layer->kind == SHARP_GRU ? 3 : 4) * layer->width; }

static void sharp_lay_out_reader(sharp_arena *arena, sharp_reader *reader, const sharp_source *source, int64_t most_src) {
    int64_t widest = 0, gates = 0, inner = source->e;
    for (int64_t i = 0; i < source->layers; i++) {
        widest = sharp_larger(widest, source->stack[i].width);
        gates = sharp_larger(gates, sharp_source_gates(source->stack + i));
    }
    inner = sharp_larger(inner, 2 * widest);
    for (int turn = 0; turn < 2; turn++) reader->below[turn] = sharp_floats(arena, most_src * 2 * widest);
    reader->gathered = sharp_floats(arena, most_src * source->e);
    reader->given = sharp_floats(arena, most_src * 2 * gates);
    reader->given_rows = sharp_take(arena, most_src, sizeof *reader->given_rows);
    reader->carried = sharp_floats(arena, gates);
    reader->gate = sharp_floats(arena, gates);
    for (int turn = 0; turn < 2; turn++) reader->cell[turn] = sharp_floats(arena, widest);
    reader->zeros = sharp_floats(arena, widest);
    reader->rows = sharp_take(arena, rows_size(most_src, inner), sizeof(float));
}

/* Memory for one sentence, in bytes; to be aligned to 64. */
SIMNMT_EXPORT int64_t simnmt_sharp_source_bytes(const sharp_source *source, int64_t most_src) {
    sharp_arena arena = {NULL, 0};
    sharp_reader counted;
    sharp_lay_out_reader(&arena, &counted, source, most_src);
    return arena.used;
}

/* The first layer's input products of all words: looked up where kept, the others in one product. */
static void sharp_read_words(const sharp_source *source, sharp_reader *reader, const int64_t *words, int64_t src_len) {
    const sharp_matrix *input = &source->stack->input;
    int64_t missing = 0;
    for (int64_t t = 0; t < src_len; t++) {
        if (words[t] < source->table_words) {
            reader->given_rows[t] = source->table + words[t] * input->outputs;
            continue;
        }
        memcpy(reader->gathered + missing * source->e, source->embedding + words[t] * source->e, (size_t)source->e * sizeof(float));
        reader->given_rows[t] = reader->given + missing++ * input->outputs;
    }
    if (missing) sharp_multiply(source->int16, input, input->packed, reader->gathered, missing, reader->rows, reader->given, input->outputs);
}

/* The recurrent steps of one direction over the input products; `out`: states [src_len][2 width], of which this direction writes its half. */
static void sharp_read_direction(const sharp_source *source, sharp_reader *reader, const sharp_source_layer *layer, int direction, int64_t src_len,
                                 float *out) {
    int64_t w = layer->width, gates = sharp_source_gates(layer);
    const float *bias = layer->bias + direction * gates, *h = reader->zeros;
    memset(reader->cell[0], 0, (size_t)w * sizeof(float));
    memset(reader->carried, 0, (size_t)gates * sizeof(float)); /* W h of the first step, whose h is 0 */
    for (int64_t step = 0; step < src_len; step++) {
        int64_t t = direction ? src_len - 1 - step : step;
        const float *given = reader->given_rows[t] + direction * gates;
        float *after = out + t * 2 * w + direction * w;
        if (step)
            sharp_multiply(source->int16, layer->state + direction, layer->state[direction].packed, h, 1, reader->rows, reader->carried, gates);
        if (layer->kind == SHARP_GRU) {
            sharp_add_bias(reader->carried + 2 * w, layer->reset_bias + direction * w, w);
            sharp_gru(reader->carried, given, NULL, bias, h, w, (int)source->activation, reader->gate, after);
        } else {
            sharp_lstm(reader->carried, given, NULL, bias, reader->cell[step & 1], w, (int)source->activation, reader->gate, after,
                       reader->cell[!(step & 1)]);
        }
        h = after;
    }
}

/* The last layer's states of a sentence into `states`, [src_len][2 width], both directions side by side; `memory`: of the size above. */
SIMNMT_EXPORT void simnmt_sharp_encode(const sharp_source *source, void *memory, int64_t most_src, const int64_t *words, int64_t src_len,
                                       float *states) {
    sharp_arena arena = {memory, 0};
    sharp_reader laid_out, *reader = &laid_out;
    sharp_lay_out_reader(&arena, reader, source, most_src);
    int64_t widest = 0;
    for (int64_t i = 0; i < source->layers; i++) widest = sharp_larger(widest, source->stack[i].width);
    memset(reader->zeros, 0, (size_t)widest * sizeof(float));
    sharp_read_words(source, reader, words, src_len);
    for (int64_t i = 0; i < source->layers; i++) {
        const sharp_source_layer *layer = source->stack + i;
        const sharp_matrix *input = &layer->input;
        if (i) {
            sharp_multiply(source->int16, input, input->packed, reader->below[!(i & 1)], src_len, reader->rows, reader->given, input->outputs);
            for (int64_t t = 0; t < src_len; t++) reader->given_rows[t] = reader->given + t * input->outputs;
        }
        float *out = i == source->layers - 1 ? states : reader->below[i & 1];
        for (int direction = 0; direction < 2; direction++) sharp_read_direction(source, reader, layer, direction, src_len, out);
    }
}

#endif
