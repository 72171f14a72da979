/* The beam of one sentence: which hypotheses are open, what led to them, and the best that is completed (SHARP-01, SHARP-03). */
#ifndef SIMNMT_SHARP_BEAM_H
#define SIMNMT_SHARP_BEAM_H

#include "sharp_best.h"
#include "sharp_model.h"

typedef struct {
    int64_t width, open, steps;
    int32_t *words, *parents, *attended; /* of all steps, [max_len][width] */
    int32_t *last, *from;                /* the open hypotheses' last words and their rows of the step before */
    double *scores, *new_scores;         /* of the open ones, descending */
    float *values;                       /* [width][width + 1], lists of each row's best */
    int64_t *columns;
    float *log_sums;                     /* [width] */
    int64_t *heads;
    float *mixture;                      /* [width][columns], of ensembles */
    int64_t best_length, best_row;
    double best_score;
} sharp_beam;

static void sharp_lay_out_beam(sharp_arena *arena, sharp_beam *beam, int64_t width, int64_t max_len, int64_t mixture) {
    beam->width = width;
    beam->words = sharp_take(arena, max_len * width, sizeof(int32_t));
    beam->parents = sharp_take(arena, max_len * width, sizeof(int32_t));
    beam->attended = sharp_take(arena, max_len * width, sizeof(int32_t));
    beam->last = sharp_take(arena, width, sizeof(int32_t));
    beam->from = sharp_take(arena, width, sizeof(int32_t));
    beam->scores = sharp_take(arena, width, sizeof(double));
    beam->new_scores = sharp_take(arena, width, sizeof(double));
    beam->values = sharp_take(arena, width * (width + 1), sizeof(float));
    beam->columns = sharp_take(arena, width * (width + 1), sizeof(int64_t));
    beam->log_sums = sharp_floats(arena, width);
    beam->heads = sharp_take(arena, width, sizeof(int64_t));
    beam->mixture = sharp_floats(arena, mixture);
}

static void sharp_start_beam(sharp_beam *beam, int32_t start) {
    beam->open = 1;
    beam->steps = 0;
    beam->last[0] = start;
    beam->from[0] = 0;
    beam->scores[0] = 0;
    beam->best_length = -1;
    beam->best_row = 0;
    beam->best_score = -INFINITY;
}

INLINE List sharp_list_of(const sharp_beam *beam, int64_t row) {
    int64_t size = beam->width + 1;
    return (List){beam->values + row * size, beam->columns + row * size, size};
}

static void sharp_complete(sharp_beam *beam, int64_t length, int64_t row, double score) {
    if (score > beam->best_score) beam->best_length = length, beam->best_row = row, beam->best_score = score;
}

/* From each row's list, one more than the beam is wide, to the next beam: the best that do not end go on, what ends before the last of them is
   completed (what ends at a rank beyond the beam's width comes after a better one that ends, so it changes nothing). One row gives at most `width`
   that go on and one that ends, so its list is long enough. `ids`: the columns' words, NULL where a column is its word. */
static void sharp_advance(sharp_beam *beam, const int64_t *ids, int64_t eos) {
    int32_t *words = beam->words + beam->steps * beam->width, *parents = beam->parents + beam->steps * beam->width;
    int64_t rows = beam->open, size = beam->width + 1, open = 0;
    for (int64_t row = 0; row < rows; row++) beam->heads[row] = 0;
    while (open < beam->width) {
        int64_t from = -1;
        double score = -INFINITY;
        for (int64_t row = 0; row < rows; row++) {
            if (beam->heads[row] == size) continue;
            double sum = beam->scores[row] + (double)beam->values[row * size + beam->heads[row]];
            if (sum > score) score = sum, from = row;
        }
        if (from < 0) break;
        int64_t column = beam->columns[from * size + beam->heads[from]++];
        int64_t word = ids ? ids[column] : column;
        if (word == eos) {
            sharp_complete(beam, beam->steps, from, score);
            continue;
        }
        words[open] = beam->last[open] = (int32_t)word;
        parents[open] = beam->from[open] = (int32_t)from;
        beam->new_scores[open++] = score;
    }
    double *scores = beam->scores;
    beam->scores = beam->new_scores;
    beam->new_scores = scores;
    beam->open = open;
    beam->steps++;
}

/* SHARP-03; before any is completed the best is minus infinity, which never stops. */
INLINE int sharp_stops(const sharp_beam *beam, double margin) { return beam->best_score - beam->scores[0] >= margin; }

/* The best translation's words and where each looked, first to last. */
static void sharp_walk_back(const sharp_beam *beam, int64_t *tokens, int64_t *attended) {
    int64_t row = beam->best_row;
    for (int64_t step = beam->best_length - 1; step >= 0; step--) {
        tokens[step] = beam->words[step * beam->width + row];
        row = beam->parents[step * beam->width + row];
        attended[step] = beam->attended[step * beam->width + row];
    }
}

#endif
