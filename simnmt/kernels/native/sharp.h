/* The sharp decoder (SHARP-01): the whole beam search of one sentence, by one model or an ensemble, on one thread; sharp/native_search.py calls it. The
   source side before it: sharp_source.h. */
#ifndef SIMNMT_SHARP_H
#define SIMNMT_SHARP_H

#include "sharp_beam.h"
#include "sharp_source.h"
#include "sharp_step.h"

#include <time.h>

/* Of an ensemble; known to sharp/native_search.py. */
enum { SHARP_MOST_MEMBERS = 16 };

typedef struct {
    int64_t members, src_len, columns, beam, max_len; /* max_len: most steps */
    const int64_t *ids;                               /* candidates, `columns` of them; NULL: all words */
    int64_t start, eos, pad, forced, fused, clock;    /* forced: the end is banned, so that all steps are taken */
    double margin;
} sharp_request;

typedef struct {
    double log_prob;
    int64_t length, steps, distinct, hypotheses, stopped_early;
    double seconds[4]; /* prepare, body, product, search */
} sharp_result;

/* What sharp/native_search.py must know alike: sizes, then numbers, into `told` where it is not NULL. Returns how many. */
SIMNMT_EXPORT int64_t simnmt_sharp_layout(int64_t *told) {
    const int64_t own[] = {
        sizeof(sharp_matrix), sizeof(sharp_layer), sizeof(sharp_model),   sizeof(sharp_request),   sizeof(sharp_result),
        sizeof(sharp_source), sizeof(sharp_source_layer),
        SHARP_MOST_MEMBERS,   SHARP_FC_RELU,       SHARP_FC_TANH,         SHARP_GRU,               SHARP_LSTM,
        ACTIVATION_LIBRARY,   ACTIVATION_TABLE,    ACTIVATION_POLYNOMIAL, ACTIVATION_LINEAR_TABLE, ROW_BLOCK,
    };
    if (told) memcpy(told, own, sizeof own);
    return sizeof own / sizeof *own;
}

/* Seconds since the last call, added to *total where a clock was asked for. */
static void sharp_lap(int64_t wanted, struct timespec *last, double *total) {
    if (!wanted) return;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *total += (double)(now.tv_sec - last->tv_sec) + 1e-9 * (double)(now.tv_nsec - last->tv_nsec);
    *last = now;
}

static void sharp_ban(sharp_member *member, const sharp_request *request) {
    for (int64_t i = 0; i < member->columns; i++) {
        int64_t word = request->ids ? request->ids[i] : i;
        if ((word == request->pad && word != request->eos) || (request->forced && word == request->eos)) member->bias[i] = -INFINITY;
    }
}

/* Each open row's best columns, from the members' logits. */
static void sharp_rank(sharp_beam *beam, sharp_member **members, const sharp_request *request) {
    int64_t columns = members[0]->columns;
    if (request->members == 1 && request->fused) {
        sharp_fused_best(members[0]->logits, members[0]->stride, members[0]->bias, beam->open, columns, beam->width + 1, beam->columns,
                         beam->values, beam->log_sums);
        return;
    }
    for (int64_t row = 0; row < beam->open; row++) {
        List list = sharp_list_of(beam, row);
        float *mixture = request->members > 1 ? beam->mixture + row * columns : NULL;
        for (int64_t i = 0; i < request->members; i++) {
            sharp_member *member = members[i];
            float *logits = member->logits + row * member->stride;
            sharp_add_bias(logits, member->bias, columns);
            sharp_normalise(logits, columns, request->members == 1, 1 / (float)request->members);
            if (request->members == 1) {
                sharp_search_best(logits, columns, list);
            } else {
                if (i == 0) memset(mixture, 0, (size_t)columns * sizeof(float));
                for (int64_t column = 0; column < columns; column++) mixture[column] += logits[column];
            }
        }
        if (request->members > 1) {
            sharp_search_best(mixture, columns, list);
            for (int64_t i = 0; i < list.count; i++) list.values[i] = logf(list.values[i]);
        }
    }
}

/* Where each open row looks most, over the members' mean: the first of those that tie. */
static void sharp_note_attention(sharp_beam *beam, sharp_member **members, const sharp_request *request) {
    int64_t stride = sharp_wide(request->src_len);
    for (int64_t row = 0; row < beam->open; row++) {
        float most = -1;
        for (int64_t j = 0; j < request->src_len; j++) {
            float sum = 0;
            for (int64_t i = 0; i < request->members; i++) sum += members[i]->attention[row * stride + j];
            if (sum > most) most = sum, beam->attended[beam->steps * beam->width + row] = (int32_t)j;
        }
    }
}

/* A member at the beginning of its memory. */
static sharp_member *sharp_place(void *memory, const sharp_model *model, const sharp_request *request) {
    sharp_arena arena = {memory, 0};
    sharp_member *member = sharp_take(&arena, 1, sizeof *member);
    sharp_lay_out(&arena, member, model, request->beam, request->src_len, request->ids ? request->columns : 0);
    return member;
}

/* Memory for one sentence, in bytes; to be aligned to 64. */
SIMNMT_EXPORT int64_t simnmt_sharp_member_bytes(const sharp_model *model, int64_t beam, int64_t most_src, int64_t columns) {
    sharp_arena arena = {NULL, 0};
    sharp_member member;
    sharp_take(&arena, 1, sizeof member);
    sharp_lay_out(&arena, &member, model, beam, most_src, columns);
    return arena.used;
}

SIMNMT_EXPORT int64_t simnmt_sharp_beam_bytes(int64_t beam, int64_t max_len, int64_t mixture) {
    sharp_arena arena = {NULL, 0};
    sharp_beam counted;
    sharp_lay_out_beam(&arena, &counted, beam, max_len, mixture);
    return arena.used;
}

/* Products of the first `words` embeddings with `matrix` into table [words][matrix->outputs] (SHARP-06); `rows`: memory of
   ROW_BLOCK (matrix->inner + 1) floats. */
SIMNMT_EXPORT void simnmt_sharp_fill_table(int64_t int16, const sharp_matrix *matrix, const float *embedding, int64_t words, void *rows,
                                           float *table) {
    for (int64_t word = 0; word < words; word += ROW_BLOCK) {
        int64_t count = words - word < ROW_BLOCK ? words - word : ROW_BLOCK;
        sharp_multiply(int16, matrix, matrix->packed, embedding + word * matrix->inner, count, rows, table + word * matrix->outputs, matrix->outputs);
    }
}

/* tokens, attended: [max_len]. `members_memory` and `beam_memory`: of the sizes above. Returns 0 where no word could be chosen, else 1. */
SIMNMT_EXPORT int64_t simnmt_sharp_decode(const sharp_model *const *models, void *const *members_memory, void *beam_memory,
                                          const float *const *sources, const sharp_request *request, sharp_result *result, int64_t *tokens,
                                          int64_t *attended) {
    struct timespec last = {0, 0};
    double unused = 0;
    memset(result, 0, sizeof *result);
    sharp_lap(request->clock, &last, &unused);
    sharp_member *members[SHARP_MOST_MEMBERS];
    for (int64_t i = 0; i < request->members; i++) {
        members[i] = sharp_place(members_memory[i], models[i], request);
        sharp_begin(models[i], members[i], sources[i], request->src_len);
        sharp_choose_columns(models[i], members[i], request->ids, request->columns);
        sharp_ban(members[i], request);
    }
    sharp_arena arena = {beam_memory, 0};
    sharp_beam laid_out, *beam = &laid_out;
    sharp_lay_out_beam(&arena, beam, request->beam, request->max_len, request->members > 1 ? request->beam * members[0]->columns : 0);
    sharp_start_beam(beam, (int32_t)request->start);
    sharp_lap(request->clock, &last, result->seconds);
    while (beam->steps < request->max_len && beam->open && !result->stopped_early) {
        int64_t *distinct = members[0]->distinct, *place = members[0]->place;
        result->distinct += sharp_distinct(beam->from, beam->open, distinct, place);
        result->hypotheses += beam->open;
        for (int64_t i = 0; i < request->members; i++) {
            const float *top = sharp_body(models[i], members[i], beam->last, beam->from, beam->open);
            sharp_lap(request->clock, &last, result->seconds + 1);
            sharp_project(models[i], members[i], top, beam->open);
            sharp_lap(request->clock, &last, result->seconds + 2);
        }
        sharp_rank(beam, members, request);
        sharp_note_attention(beam, members, request);
        sharp_advance(beam, request->ids, request->eos);
        result->stopped_early = beam->open && sharp_stops(beam, request->margin);
        sharp_lap(request->clock, &last, result->seconds + 3);
    }
    if (beam->open && !result->stopped_early) sharp_complete(beam, beam->steps, 0, beam->scores[0]);
    result->steps = beam->steps;
    if (beam->best_length < 0) return 0;
    result->log_prob = beam->best_score;
    result->length = beam->best_length;
    sharp_walk_back(beam, tokens, attended);
    return 1;
}

/* Along given words, which are the columns `places`: each step's best column and the given word's log-probability (SHARP-10). */
SIMNMT_EXPORT void simnmt_sharp_forced(const sharp_model *model, void *member_memory, const float *source, const sharp_request *request,
                                       const int64_t *words, const int64_t *places, int64_t count, int64_t *best, float *log_probs) {
    sharp_member *member = sharp_place(member_memory, model, request);
    sharp_begin(model, member, source, request->src_len);
    sharp_choose_columns(model, member, request->ids, request->columns);
    sharp_ban(member, request);
    for (int64_t step = 0; step < count; step++) {
        int32_t word = (int32_t)(step ? words[step - 1] : request->start), parent = 0;
        int64_t column;
        float value;
        sharp_project(model, member, sharp_body(model, member, &word, &parent, 1), 1);
        sharp_add_bias(member->logits, member->bias, member->columns);
        sharp_normalise(member->logits, member->columns, 1, 1);
        sharp_search_best(member->logits, member->columns, (List){&value, &column, 1});
        best[step] = request->ids && column >= 0 ? request->ids[column] : column;
        log_probs[step] = member->logits[places[step]];
    }
}

#endif
