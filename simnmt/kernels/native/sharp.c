/* The sharp decoder (SHARP-01): the whole beam search of one sentence, by one model or an ensemble, on one thread. */
#pragma once

#include "output_layer.c"
#include "sharp_step.h"

#include <time.h>

/* Of an ensemble. */
enum { SHARP_MOST_MEMBERS = 16 };

/* The open hypotheses of one sentence, what led to them, and the best that is completed (SHARP-01, SHARP-03). */
typedef struct {
    int64_t width, open, steps;
    int64_t *words, *parents, *attended; /* of all steps, [steps][width]; the first row stands for the start */
    double *scores, *new_scores;         /* of the open ones, descending */
    float *values, *log_sums, *mixture;  /* lists of each row's best, [width][width + 1]; [width]; [width][columns], of ensembles */
    int64_t *columns, *heads;
    int64_t best_length, best_row;
    double best_score;
} sharp_beam;

/* Lay out everything that a sentence takes; returns the bytes. */
static int64_t sharp_lay_out_all(const sharp_call *call, char *memory, sharp_member *members, sharp_beam *beam) {
    sharp_arena arena = {memory, 0};
    int64_t width = call->beam, cells = (call->steps + 1) * width;
    for (int64_t i = 0; i < call->members; i++) sharp_lay_out(&arena, members + i, call->models[i], call);
    beam->words = sharp_take(&arena, cells, sizeof(int64_t));
    beam->parents = sharp_take(&arena, cells, sizeof(int64_t));
    beam->attended = sharp_take(&arena, cells, sizeof(int64_t));
    beam->scores = sharp_take(&arena, width, sizeof(double));
    beam->new_scores = sharp_take(&arena, width, sizeof(double));
    beam->values = sharp_floats(&arena, width * (width + 1));
    beam->columns = sharp_take(&arena, width * (width + 1), sizeof(int64_t));
    beam->log_sums = sharp_floats(&arena, width);
    beam->heads = sharp_take(&arena, width, sizeof(int64_t));
    beam->mixture = sharp_floats(&arena, call->members > 1 ? width * call->columns : 0);
    beam->width = width, beam->open = 1, beam->steps = 0, beam->best_length = -1, beam->best_row = 0, beam->best_score = -INFINITY;
    if (memory) beam->words[0] = call->start, beam->parents[0] = 0, beam->scores[0] = 0;
    return arena.used;
}

/* Bytes of memory for a sentence; to be aligned to 64. */
SIMNMT_EXPORT int64_t simnmt_sharp_bytes(const sharp_call *call) {
    sharp_member members[SHARP_MOST_MEMBERS];
    sharp_beam beam;
    return sharp_lay_out_all(call, NULL, members, &beam);
}

/* Seconds since the last call, added to *total where a clock was asked for. */
static void sharp_lap(int64_t wanted, struct timespec *last, double *total) {
    if (!wanted) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *total += (double)(now.tv_sec - last->tv_sec) + 1e-9 * (double)(now.tv_nsec - last->tv_nsec);
    *last = now;
}

/* The best of x, searched alone. */
static void sharp_search_best(const float *x, int64_t count, List list) {
    empty_list(list);
    float32.search((Row){x, NULL}, 0, count, list);
}

/* Of each row of logits + bias the best columns and their log-probabilities, in one pass (FNI-05). A row without a result, all its words banned or one
   of them NaN, gets an empty list. */
static void sharp_fused_best(sharp_beam *beam, const sharp_member *member) {
    int64_t size = beam->width + 1;
    for (int64_t first = 0; first < beam->open; first++) {
        int64_t bad = simnmt_best(FLOAT32, member->logits + first * member->stride, member->stride, member->bias, beam->open - first,
                                  member->output.outputs, 0, size, beam->columns + first * size, beam->values + first * size, beam->log_sums, NULL,
                                  NULL);
        int64_t end = bad < 0 ? beam->open : first + bad;
        for (int64_t row = first; row < end; row++)
            for (int64_t i = size - 1; i >= 0; i--) { /* the best last: the others are taken relative to it */
                float *values = beam->values + row * size;
                values[i] = (values[i] - values[0]) - beam->log_sums[row - first];
            }
        if (end < beam->open) empty_list((List){beam->values + end * size, beam->columns + end * size, size});
        first = end;
    }
}

/* Each open row's best columns, from the members' logits. */
static void sharp_rank(sharp_beam *beam, sharp_member *members, const sharp_call *call) {
    int64_t columns = call->columns, size = beam->width + 1;
    if (call->members == 1 && call->fused) {
        sharp_fused_best(beam, members);
        return;
    }
    for (int64_t row = 0; row < beam->open; row++) {
        List list = {beam->values + row * size, beam->columns + row * size, size};
        float *mixture = beam->mixture + row * columns;
        for (int64_t i = 0; i < call->members; i++) {
            float *logits = members[i].logits + row * members[i].stride;
            sharp_add(logits, members[i].bias, columns);
            sharp_normalise(logits, columns, call->members == 1, 1 / (float)call->members);
            if (call->members == 1)
                sharp_search_best(logits, columns, list);
            else if (i == 0)
                memcpy(mixture, logits, (size_t)columns * sizeof(float));
            else
                sharp_add(mixture, logits, columns);
        }
        if (call->members == 1) continue;
        sharp_search_best(mixture, columns, list);
        for (int64_t i = 0; i < size; i++) list.values[i] = logf(list.values[i]);
    }
}

/* Where each open row looks most, over the members' mean: the first of those that tie. */
static void sharp_note_attention(sharp_beam *beam, const sharp_member *members, const sharp_call *call) {
    for (int64_t row = 0; row < beam->open; row++) {
        float most = -1;
        for (int64_t j = 0; j < call->src_len; j++) {
            float sum = 0;
            for (int64_t i = 0; i < call->members; i++) sum += members[i].attention[row * sharp_wide(call->src_len) + j];
            if (sum > most) most = sum, beam->attended[beam->steps * beam->width + row] = j;
        }
    }
}

static void sharp_complete(sharp_beam *beam, int64_t length, int64_t row, double score) {
    if (score > beam->best_score) beam->best_length = length, beam->best_row = row, beam->best_score = score;
}

/* From each row's list, one more than the beam is wide, to the next beam: the best that do not end go on, what ends before the last of them is
   completed (what ends at a rank beyond the beam's width comes after a better one that ends, so it changes nothing). One row gives at most `width`
   that go on and one that ends, so its list is long enough. */
static void sharp_advance(sharp_beam *beam, const sharp_call *call) {
    int64_t *words = beam->words + (beam->steps + 1) * beam->width, *parents = beam->parents + (beam->steps + 1) * beam->width;
    int64_t rows = beam->open, size = beam->width + 1, open = 0;
    memset(beam->heads, 0, (size_t)rows * sizeof *beam->heads);
    while (open < beam->width) {
        int64_t from = -1;
        double score = -INFINITY;
        for (int64_t row = 0; row < rows; row++) {
            if (beam->heads[row] == size) continue;
            double sum = beam->scores[row] + (double)beam->values[row * size + beam->heads[row]];
            if (sum > score) score = sum, from = row;
        }
        if (from < 0) break;
        int64_t column = beam->columns[from * size + beam->heads[from]++], word = call->ids ? call->ids[column] : column;
        if (word == call->eos) {
            sharp_complete(beam, beam->steps, from, score);
            continue;
        }
        words[open] = word, parents[open] = from, beam->new_scores[open++] = score;
    }
    double *scores = beam->scores;
    beam->scores = beam->new_scores, beam->new_scores = scores;
    beam->open = open, beam->steps++;
}

/* Prepare the members for a sentence. */
static void sharp_begin(const sharp_call *call, sharp_member *members, sharp_beam *beam) {
    sharp_lay_out_all(call, call->memory, members, beam);
    for (int64_t i = 0; i < call->members; i++) {
        sharp_read_source(members + i, call->sources[i]);
        sharp_choose_columns(members + i, call);
    }
}

/* Returns 0 where no word could be chosen, else 1. */
SIMNMT_EXPORT int64_t simnmt_sharp_decode(sharp_call *call) {
    sharp_member members[SHARP_MOST_MEMBERS];
    sharp_beam laid_out, *beam = &laid_out;
    struct timespec last = {0, 0};
    double unused = 0;
    sharp_lap(call->clock, &last, &unused);
    sharp_begin(call, members, beam);
    sharp_lap(call->clock, &last, call->seconds);
    while (beam->steps < call->steps && beam->open && !call->stopped_early) {
        const int64_t *words = beam->words + beam->steps * beam->width, *parents = beam->parents + beam->steps * beam->width;
        call->distinct += sharp_distinct(parents, beam->open, members->distinct, members->place);
        call->hypotheses += beam->open;
        for (int64_t i = 0; i < call->members; i++) {
            const float *top = sharp_body(members + i, words, parents, beam->open);
            sharp_lap(call->clock, &last, call->seconds + 1);
            sharp_project(members + i, top, beam->open);
            sharp_lap(call->clock, &last, call->seconds + 2);
        }
        sharp_rank(beam, members, call);
        sharp_note_attention(beam, members, call);
        sharp_advance(beam, call);
        /* SHARP-03; before any is completed the best is minus infinity, which never stops. */
        call->stopped_early = beam->open && beam->best_score - beam->scores[0] >= call->margin;
        sharp_lap(call->clock, &last, call->seconds + 3);
    }
    if (beam->open && !call->stopped_early) sharp_complete(beam, beam->steps, 0, beam->scores[0]);
    call->taken = beam->steps;
    if (beam->best_length < 0) return 0;
    call->log_prob = beam->best_score;
    call->length = beam->best_length;
    for (int64_t step = beam->best_length - 1, row = beam->best_row; step >= 0; step--) {
        call->tokens[step] = beam->words[(step + 1) * beam->width + row];
        row = beam->parents[(step + 1) * beam->width + row];
        call->attended[step] = beam->attended[step * beam->width + row];
    }
    return 1;
}

/* Along given words: see the end of sharp_call. */
SIMNMT_EXPORT void simnmt_sharp_forced(sharp_call *call) {
    sharp_member member;
    sharp_beam beam;
    sharp_begin(call, &member, &beam);
    for (int64_t step = 0; step < call->steps; step++) {
        int64_t parent = 0, column;
        float value;
        sharp_project(&member, sharp_body(&member, step ? call->words + step - 1 : &call->start, &parent, 1), 1);
        sharp_add(member.logits, member.bias, call->columns);
        sharp_normalise(member.logits, call->columns, 1, 1);
        sharp_search_best(member.logits, call->columns, (List){&value, &column, 1});
        call->best[step] = column;
        call->log_probs[step] = member.logits[call->words[step]];
    }
}
