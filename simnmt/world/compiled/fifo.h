/* First-in first-out boxes of some workers each; service times are known on entry, so no queue is kept. See devices/fifo.py. */
#ifndef SIMNMT_WORLD_FIFO_H
#define SIMNMT_WORLD_FIFO_H

#include "containers.h"
#include "numbers.h"

static inline int is_earlier(const double *one, const double *other) { return *one < *other; }

DEFINE_HEAP(Moments, double, moments, is_earlier)

typedef struct {
    double first_s;    /* when the first worker comes free: also the first of the following, which lie further away */
    Moments free_at_s; /* of the workers that have worked, and of one more */
    int64_t unused;    /* further workers, which have never worked */
} FifoBox;

static void fifo_begin(Memory *memory, FifoBox *self, int64_t workers) {
    moments_push(memory, &self->free_at_s, 0.0);
    self->unused = workers - 1;
}

static inline double fifo_work_left(const FifoBox *self, double now_s) { return larger(0.0, self->first_s - now_s); }

/* Let the first worker that comes free work until a moment. */
static inline void fifo_occupy(Memory *memory, FifoBox *self, double until_s) {
    moments_replace_first(&self->free_at_s, until_s);
    if (self->unused && self->free_at_s.items[0] > 0.0) {
        moments_push(memory, &self->free_at_s, 0.0);
        self->unused -= 1;
    }
    self->first_s = self->free_at_s.items[0];
}

/* Return when a request that enters now starts. */
static inline double fifo_serve(Memory *memory, FifoBox *self, double entry_s, double service_s) {
    double start_s = larger(self->first_s, entry_s);
    fifo_occupy(memory, self, start_s + service_s);
    return start_s;
}

/* Make `self` equal to `other`, to foresee waits. */
static void fifo_copy(Memory *memory, FifoBox *self, const FifoBox *other) {
    moments_copy(memory, &self->free_at_s, &other->free_at_s);
    self->first_s = other->first_s;
    self->unused = other->unused;
}

/* A worker of some box, by when it comes free. */
typedef struct {
    double free_s;
    int64_t box;
} Worker;

static inline int is_free_before(const Worker *one, const Worker *other) {
    return one->free_s < other->free_s || (one->free_s == other->free_s && one->box < other->box);
}

DEFINE_HEAP(Workers, Worker, workers, is_free_before)

/* The workers of a pool that takes the box with the least work. */
typedef struct {
    Workers workers;
    int64_t *unused; /* by box, workers that have never worked beside the one in the heap; NULL if there are none */
} LeastWorkPool;

static void least_work_begin(Memory *memory, LeastWorkPool *self, int64_t boxes, int64_t workers) {
    for (int64_t box = 0; box < boxes; box++) workers_push(memory, &self->workers, (Worker){0.0, box});
    if (workers == 1) return;
    self->unused = resized(memory, NULL, boxes, sizeof(int64_t));
    for (int64_t box = 0; box < boxes; box++) self->unused[box] = workers - 1;
}

/* Enter at the first worker to come free; return when that starts, and set `*box`. */
static double least_work_enter(Memory *memory, LeastWorkPool *self, double entry_s, double service_s, int64_t *box) {
    Worker first = self->workers.items[0];
    double start_s = larger(entry_s, first.free_s);
    workers_replace_first(&self->workers, (Worker){start_s + service_s, first.box});
    if (self->unused != NULL && first.free_s == 0.0 && self->unused[first.box]) {
        workers_push(memory, &self->workers, (Worker){0.0, first.box});
        self->unused[first.box] -= 1;
    }
    *box = first.box;
    return start_s;
}

static void least_work_copy(Memory *memory, LeastWorkPool *self, const LeastWorkPool *other, int64_t boxes) {
    workers_copy(memory, &self->workers, &other->workers);
    if (other->unused == NULL) return;
    if (self->unused == NULL) self->unused = resized(memory, NULL, boxes, sizeof(int64_t));
    memcpy(self->unused, other->unused, (size_t)boxes * sizeof(int64_t));
}

#endif
