/* Boxes whose requests wait in queues by class, or take longer the more are there, so that a request starts when a worker takes it,
 * and not when it enters. See `FifoBox` in devices/fifo.py. */
#ifndef SIMNMT_WORLD_QUEUE_BOX_H
#define SIMNMT_WORLD_QUEUE_BOX_H

#include "classes.h"
#include "containers.h"
#include "numbers.h"

/* A request that waits for a worker. */
typedef struct {
    double since_s, execution_s;
    void *event; /* of the request */
} Queued;

DEFINE_QUEUE(QueuedRequests, Queued, queued)

static inline int is_earlier(const double *one, const double *other) { return *one < *other; }

DEFINE_HEAP(Moments, double, moments, is_earlier)

typedef struct {
    const Classes *classes;
    QueuedRequests *queues;        /* by class */
    int64_t waiting, unused;       /* requests that wait; workers that have never worked */
    Moments idle_since_s, ends_s;  /* of the other workers: when the idle ones became so, when the others end */
    Moments trial_s;               /* room to foresee a wait */
    int64_t *taken;
} QueueBox;

static void queue_box_begin(Memory *memory, QueueBox *self, const Classes *classes, int64_t workers) {
    self->classes = classes;
    self->unused = workers;
    self->queues = zeroed(memory, classes->count, sizeof(QueuedRequests));
    self->taken = zeroed(memory, classes->count, sizeof(int64_t));
}

static inline int has_idle_worker(const QueueBox *self) { return self->unused || self->idle_since_s.count; }

/* Return since when the worker is idle that has been so longest. */
static inline double idle_since(const QueueBox *self) { return self->unused ? 0.0 : self->idle_since_s.items[0]; }

/* Return the requests that are executed or wait. */
static inline int64_t queue_box_occupancy(const QueueBox *self) { return self->ends_s.count + self->waiting; }

/* Let the worker that has been idle longest work until a moment. */
static void queue_box_occupy(Memory *memory, QueueBox *self, double until_s) {
    if (self->unused)
        self->unused -= 1;
    else
        moments_pop(&self->idle_since_s);
    moments_push(memory, &self->ends_s, until_s);
}

/* Let the worker that ends first become idle. */
static void queue_box_release(Memory *memory, QueueBox *self) { moments_push(memory, &self->idle_since_s, moments_pop(&self->ends_s)); }

/* Let a request of a class wait. */
static void queue_box_add(Memory *memory, QueueBox *self, int64_t rank, Queued request) {
    queued_add(memory, self->queues + rank, request);
    self->waiting += 1;
}

/* Return the class of the request that is served next once `taken` ones of each class are gone. */
static NextClass queue_box_next(const QueueBox *self, const int64_t *taken, double now_s) {
    NextClass next = {-1, 0.0, 0};
    for (int64_t rank = 0; rank < self->classes->count; rank++)
        if (self->queues[rank].count > taken[rank])
            offer_class(&next, self->classes, rank, queued_at(self->queues + rank, taken[rank])->since_s, now_s);
    return next;
}

/* Remove the request that is served next. */
static Queued queue_box_take(QueueBox *self, double now_s) {
    memset(self->taken, 0, (size_t)self->classes->count * sizeof(int64_t));
    self->waiting -= 1;
    return queued_take(self->queues + queue_box_next(self, self->taken, now_s).rank);
}

/* Return the seconds until a request of a class could start that entered now, if no other one came. */
static double queue_box_work_left(Memory *memory, QueueBox *self, double now_s, int64_t rank) {
    if (has_idle_worker(self)) return 0.0;
    Moments *ends_s = &self->trial_s;
    ends_s->count = 0;
    for (int64_t worker = 0; worker < self->ends_s.count; worker++) APPEND(memory, *ends_s, self->ends_s.items[worker]);
    memset(self->taken, 0, (size_t)self->classes->count * sizeof(int64_t));
    for (;;) {
        NextClass next = queue_box_next(self, self->taken, now_s);
        if (next.rank < 0 || (next.rank > rank && !next.is_overdue)) break;
        const Queued *request = queued_at(self->queues + next.rank, self->taken[next.rank]++);
        moments_replace_first(ends_s, ends_s->items[0] + request->execution_s);
    }
    return larger(0.0, ends_s->items[0] - now_s);
}

#endif
