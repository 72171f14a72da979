/* The source side of a sharp model: bidirectional GRU or LSTM layers over one sentence, run once before its search (SHARP-16).

   Of each layer the products of all positions with the weights of both directions are one call, since they wait for nothing (SHARP-01). What is left
   for the recurrent steps is one row times W h of all gates, which is bound by reading the weights: 16 bits halve that. */
#pragma once

#include "sharp_model.h"

/* Memory for one sentence. */
typedef struct {
    float *below[2];          /* states of the layer below and of this one, by turns: [src_len][2 width] */
    float *gathered, *given;  /* embeddings of words without kept products; input products, [src_len][2 gates width] */
    const float **given_rows; /* each position's row, in `given` or in the table */
    float *carried, *gate, *cell[2], *zeros;
    void *rows;
} sharp_reader;

static int64_t sharp_lay_out_reader(char *memory, sharp_reader *reader, const sharp_source *source, int64_t most_src) {
    int64_t widest = 0, gates = 0, e = source->stack->input.inner;
    for (const sharp_layer *layer = source->stack; layer < source->stack + 2 * source->layers; layer++) {
        widest = sharp_larger(widest, layer->width);
        gates = sharp_larger(gates, sharp_gates(layer) * layer->width);
    }
    sharp_arena arena = {memory, 0};
    for (int turn = 0; turn < 2; turn++) {
        reader->below[turn] = sharp_floats(&arena, most_src * 2 * widest);
        reader->cell[turn] = sharp_floats(&arena, widest);
    }
    reader->gathered = sharp_floats(&arena, most_src * e);
    reader->given = sharp_floats(&arena, most_src * 2 * gates);
    reader->given_rows = sharp_take(&arena, most_src, sizeof *reader->given_rows);
    reader->carried = sharp_floats(&arena, gates);
    reader->gate = sharp_floats(&arena, gates);
    reader->zeros = sharp_floats(&arena, widest);
    reader->rows = sharp_floats(&arena, most_src * (sharp_larger(e, 2 * widest) + 1));
    if (memory) memset(reader->zeros, 0, (size_t)widest * sizeof(float));
    return arena.used;
}

/* Bytes of memory for one sentence; to be aligned to 64. */
SIMNMT_EXPORT int64_t simnmt_sharp_source_bytes(const sharp_source *source, int64_t most_src) {
    sharp_reader counted;
    return sharp_lay_out_reader(NULL, &counted, source, most_src);
}

/* The recurrent steps of one direction over the input products; `out`: states [src_len][2 width], of which this direction writes its half. */
static void sharp_read_direction(const sharp_source *source, sharp_reader *reader, const sharp_layer *layer, int backward, int64_t src_len, float *out) {
    int64_t w = layer->width, gates = sharp_gates(layer) * w;
    const float *h = reader->zeros;
    memset(reader->cell[0], 0, (size_t)w * sizeof(float));
    memset(reader->carried, 0, (size_t)gates * sizeof(float)); /* W h of the first step, whose h is 0 */
    for (int64_t step = 0; step < src_len; step++) {
        int64_t t = backward ? src_len - 1 - step : step;
        const float *given = reader->given_rows[t] + backward * gates;
        float *after = out + t * 2 * w + backward * w;
        if (step) sharp_multiply(source->int16, &layer->state, h, 1, reader->rows, reader->carried, gates);
        if (layer->kind == SHARP_GRU) {
            sharp_add(reader->carried + 2 * w, layer->reset_bias, w);
            sharp_gru(reader->carried, given, NULL, layer->bias, h, w, (int)source->activation, reader->gate, after);
        } else {
            sharp_lstm(reader->carried, given, NULL, layer->bias, reader->cell[step & 1], w, (int)source->activation, reader->gate, after,
                       reader->cell[!(step & 1)]);
        }
        h = after;
    }
}

/* The last layer's states of a sentence into `states`, [src_len][2 width], both directions side by side; `memory`: of the size above. */
SIMNMT_EXPORT void simnmt_sharp_encode(const sharp_source *source, void *memory, int64_t most_src, const int64_t *words, int64_t src_len,
                                       float *states) {
    sharp_reader laid_out, *reader = &laid_out;
    sharp_lay_out_reader(memory, reader, source, most_src);
    for (int64_t i = 0; i < source->layers; i++) {
        const sharp_layer *layer = source->stack + 2 * i;
        const sharp_matrix *input = &layer->input;
        if (i) {
            sharp_multiply(source->int16, input, reader->below[!(i & 1)], src_len, reader->rows, reader->given, input->outputs);
            for (int64_t t = 0; t < src_len; t++) reader->given_rows[t] = reader->given + t * input->outputs;
        } else {
            sharp_embed(source->int16, input, source->embedding, source->table, source->table_words, words, src_len, reader->gathered, reader->rows,
                        reader->given, reader->given_rows);
        }
        float *out = i == source->layers - 1 ? states : reader->below[i & 1];
        for (int backward = 0; backward < 2; backward++) sharp_read_direction(source, reader, layer + backward, backward, src_len, out);
    }
}
