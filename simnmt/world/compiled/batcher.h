/* The queues of one box, which decide its next move. See batching/batcher.py. */
#ifndef SIMNMT_WORLD_BATCHER_H
#define SIMNMT_WORLD_BATCHER_H

#include <math.h>

#include "containers.h"

enum { STEP, ENCODE, JOIN };

/* A sentence that has arrived at a server and has not joined a batch. */
typedef struct {
    double entry_s, begin_s, factor;
    int64_t request, src_len, tgt_len, collected_as, model;
    void *event; /* of the request */
} Waiting;

DEFINE_QUEUE(Queue, Waiting, queue)

typedef struct {
    Batching batching;
    Queue waiting, sorted, ready;
    int64_t encodings, let_go;
} Batcher;

static inline int64_t batcher_waiting(const Batcher *self) { return self->waiting.count + self->sorted.count + self->ready.count; }

static double batcher_due_s(const Batcher *self) {
    if (self->sorted.count || self->ready.count) return -INFINITY;
    return self->waiting.count ? queue_at(&self->waiting, 0)->entry_s + self->batching.longest_wait_s : INFINITY;
}

/* Return whether the oldest sentence of a batcher has waited longer than that of another; collected and encoded ones have. */
static int has_older(const Batcher *self, const Batcher *other) {
    if (!batcher_waiting(self) || !batcher_waiting(other)) return batcher_waiting(self) > 0;
    if (other->sorted.count || other->ready.count) return 0;
    if (self->sorted.count || self->ready.count) return 1;
    const Waiting *first = queue_at(&self->waiting, 0), *second = queue_at(&other->waiting, 0);
    return first->entry_s < second->entry_s || (first->entry_s == second->entry_s && first->request < second->request);
}

static int is_full(const Batcher *self) {
    const Batching *batching = &self->batching;
    const Queue *waiting = &self->waiting;
    if (waiting->count >= (batching->collected ? batching->collected : batching->size)) return 1;
    if (!batching->padded_tokens || batching->collected) return 0;
    int64_t longest = 0;
    for (int64_t place = 0; place < waiting->count; place++) {
        int64_t src_len = queue_at(waiting, place)->src_len;
        if (src_len > longest) longest = src_len;
    }
    return longest * (waiting->count + 1) > batching->padded_tokens;
}

static int compare_sources(const void *one, const void *other) {
    const Waiting *first = one, *second = other;
    if (first->src_len != second->src_len) return first->src_len < second->src_len ? -1 : 1;
    return first->collected_as < second->collected_as ? -1 : 1;
}

/* Return whether sentences that are not encoded yet may be taken now; collect and sort them if due. */
static int may_begin(Memory *memory, Batcher *self, int64_t active, double now_s) {
    const Batching *batching = &self->batching;
    Queue *waiting = &self->waiting;
    if (self->sorted.count) return 1;
    if (!waiting->count) return 0;
    int joins = !batching->collected && (active > 0 || self->ready.count > 0);
    if (!(joins || is_full(self) || self->let_go || now_s >= queue_at(waiting, 0)->entry_s + batching->longest_wait_s)) return 0;
    if (!batching->collected) return 1;
    int64_t count = batching->collected < waiting->count ? batching->collected : waiting->count;
    for (int64_t number = 0; number < count; number++) {
        Waiting sentence = queue_take(waiting);
        sentence.collected_as = number;
        queue_add(memory, &self->sorted, sentence);
    }
    qsort(queue_at(&self->sorted, 0), (size_t)count, sizeof(Waiting), compare_sources);
    self->let_go = self->let_go > count ? self->let_go - count : 0;
    return 1;
}

/* Return how many of the first sentences of a queue are taken: as many as fit, at least one if none is active. */
static int64_t taken(const Batcher *self, const Queue *queue, int64_t most, int64_t active, int64_t longest) {
    int64_t cap = self->batching.padded_tokens, count = 0;
    if (!cap) return most < queue->count ? most : queue->count;
    while (count < queue->count && count < most) {
        int64_t src_len = queue_at(queue, count)->src_len, together = active + count + 1;
        if (src_len > longest) longest = src_len;
        if (longest * together > cap && together > 1) break;
        count += 1;
    }
    return count;
}

/* Return the move before the next step, and set `*count` to its sentences: the last ones of `ready` are to be encoded, or its
 * first ones join. */
static int next_move(Memory *memory, Batcher *self, int64_t active, double now_s, int64_t longest, int64_t *count) {
    const Batching *batching = &self->batching;
    if (active > batching->threshold || !batcher_waiting(self)) return STEP;
    int64_t free_places = batching->size - active;
    if (self->ready.count < free_places && self->encodings * batching->together < free_places && may_begin(memory, self, active, now_s)) {
        self->encodings += 1;
        int is_sorted = self->sorted.count > 0;
        Queue *queue = is_sorted ? &self->sorted : &self->waiting;
        *count = taken(self, queue, batching->together, 0, 0);
        if (!is_sorted) self->let_go = self->let_go > *count ? self->let_go - *count : 0;
        for (int64_t number = 0; number < *count; number++) queue_add(memory, &self->ready, queue_take(queue));
        return ENCODE;
    }
    *count = taken(self, &self->ready, free_places, active, longest);
    if (!*count) return STEP;
    self->encodings = 0;
    return JOIN;
}

#endif
