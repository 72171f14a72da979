/* The queues of one box, which decide its next move. See batching/batcher.py. */
#ifndef SIMNMT_WORLD_BATCHER_H
#define SIMNMT_WORLD_BATCHER_H

#include <math.h>

#include "classes.h"
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
    Queue *queues;  /* of the waiting sentences, by class */
    int64_t queued; /* their number */
    Queue sorted, ready;
    int64_t encodings, let_go;
} Batcher;

static void batcher_begin(Memory *memory, Batcher *self, const Batching *batching) {
    self->batching = *batching;
    self->queues = zeroed(memory, batching->classes.count, sizeof(Queue));
}

static inline void batcher_arrive(Memory *memory, Batcher *self, const Waiting *sentence, int64_t rank) {
    queue_add(memory, self->queues + rank, *sentence);
    self->queued += 1;
}

static inline int64_t batcher_waiting(const Batcher *self) { return self->queued + self->sorted.count + self->ready.count; }

/* Return since when the sentence waits that has waited longest; infinity without one. */
static double oldest_s(const Batcher *self) {
    double since_s = self->queues->count ? queue_at(self->queues, 0)->entry_s : INFINITY;
    for (int64_t rank = 1; rank < self->batching.classes.count; rank++)
        if (self->queues[rank].count) since_s = smaller(since_s, queue_at(self->queues + rank, 0)->entry_s);
    return since_s;
}

static double batcher_due_s(const Batcher *self) {
    if (self->sorted.count || self->ready.count) return -INFINITY;
    return oldest_s(self) + self->batching.longest_wait_s;
}

/* Return the class of the waiting sentence that is taken next. */
static NextClass next_class(const Batcher *self, double now_s) {
    NextClass next = {-1, 0.0, 0};
    for (int64_t rank = 0; rank < self->batching.classes.count; rank++)
        if (self->queues[rank].count) offer_class(&next, &self->batching.classes, rank, queue_at(self->queues + rank, 0)->entry_s, now_s);
    return next;
}

/* Return the queue of the waiting sentence that is taken next. */
static inline Queue *next_queue(const Batcher *self, double now_s) {
    return self->batching.classes.count == 1 ? self->queues : self->queues + next_class(self, now_s).rank;
}

/* Return whether the next sentence of a batcher is served before that of another; collected and encoded ones are. */
static int goes_before(const Batcher *self, const Batcher *other, double now_s) {
    if (!batcher_waiting(self) || !batcher_waiting(other)) return batcher_waiting(self) > 0;
    if (other->sorted.count || other->ready.count) return 0;
    if (self->sorted.count || self->ready.count) return 1;
    NextClass first = next_class(self, now_s), second = next_class(other, now_s);
    if (first.is_overdue != second.is_overdue) return first.is_overdue;
    if (!first.is_overdue && first.rank != second.rank) return first.rank < second.rank;
    if (first.since_s != second.since_s) return first.since_s < second.since_s;
    if (first.rank != second.rank) return first.rank < second.rank;
    return queue_at(self->queues + first.rank, 0)->request < queue_at(other->queues + second.rank, 0)->request;
}

static int is_full(const Batcher *self) {
    const Batching *batching = &self->batching;
    if (self->queued >= (batching->collected ? batching->collected : batching->size)) return 1;
    if (!batching->padded_tokens || batching->collected) return 0;
    int64_t longest = 0;
    for (const Queue *waiting = self->queues; waiting < self->queues + batching->classes.count; waiting++)
        for (int64_t place = 0; place < waiting->count; place++) {
            int64_t src_len = queue_at(waiting, place)->src_len;
            if (src_len > longest) longest = src_len;
        }
    return longest * (self->queued + 1) > batching->padded_tokens;
}

static int compare_sources(const void *one, const void *other) {
    const Waiting *first = one, *second = other;
    if (first->src_len != second->src_len) return first->src_len < second->src_len ? -1 : 1;
    return first->collected_as < second->collected_as ? -1 : 1;
}

/* Return whether sentences that are not encoded yet may be taken now; collect and sort them if due. */
static int may_begin(Memory *memory, Batcher *self, int64_t active, double now_s) {
    const Batching *batching = &self->batching;
    if (self->sorted.count) return 1;
    if (!self->queued) return 0;
    int joins = !batching->collected && (active > 0 || self->ready.count > 0);
    if (!(joins || is_full(self) || self->let_go || now_s >= oldest_s(self) + batching->longest_wait_s)) return 0;
    if (!batching->collected) return 1;
    int64_t count = batching->collected < self->queued ? batching->collected : self->queued;
    for (int64_t number = 0; number < count; number++) {
        Waiting sentence = queue_take(next_queue(self, now_s));
        sentence.collected_as = number;
        queue_add(memory, &self->sorted, sentence);
    }
    qsort(queue_at(&self->sorted, 0), (size_t)count, sizeof(Waiting), compare_sources);
    self->queued -= count;
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

/* Let waiting sentences be encoded in the order of their classes, as many as fit, and return their number. */
static int64_t encode_by_class(Memory *memory, Batcher *self, double now_s) {
    int64_t cap = self->batching.padded_tokens, most = self->batching.together, count = 0, longest = 0;
    for (; count < most && count < self->queued; count++) {
        Queue *queue = self->queues + next_class(self, now_s).rank;
        int64_t src_len = queue_at(queue, 0)->src_len;
        if (src_len > longest) longest = src_len;
        if (cap && longest * (count + 1) > cap && count > 0) break;
        queue_add(memory, &self->ready, queue_take(queue));
    }
    return count;
}

/* Let the next sentences be encoded, and return their number: collected ones, else waiting ones. */
static int64_t begin_encoding(Memory *memory, Batcher *self, double now_s) {
    int is_sorted = self->sorted.count > 0;
    int64_t count;
    if (is_sorted || self->batching.classes.count == 1) {
        Queue *queue = is_sorted ? &self->sorted : self->queues;
        count = taken(self, queue, self->batching.together, 0, 0);
        for (int64_t number = 0; number < count; number++) queue_add(memory, &self->ready, queue_take(queue));
    } else {
        count = encode_by_class(memory, self, now_s);
    }
    if (is_sorted) return count;
    self->queued -= count;
    self->let_go = self->let_go > count ? self->let_go - count : 0;
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
        *count = begin_encoding(memory, self, now_s);
        return ENCODE;
    }
    *count = taken(self, &self->ready, free_places, active, longest);
    if (!*count) return STEP;
    self->encodings = 0;
    return JOIN;
}

#endif
