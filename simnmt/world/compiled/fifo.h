/* First-in first-out boxes of some workers each; service times are known on entry, so no queue is kept. See devices/fifo.py. */
#ifndef SIMNMT_WORLD_FIFO_H
#define SIMNMT_WORLD_FIFO_H

#include "containers.h"
#include "numbers.h"

/* A worker of some box, by when it comes free. */
typedef struct {
    double free_s;
    int64_t box;
} Worker;

static inline int is_free_before(const Worker *one, const Worker *other) {
    return one->free_s < other->free_s || (one->free_s == other->free_s && one->box < other->box);
}

DEFINE_HEAP(Workers, Worker, workers, is_free_before)

/* One box, or all boxes of a pool that takes the box with the least work: its requests enter at the first worker to come free. */
typedef struct {
    double first_s;  /* when the first worker comes free: also the first of the following, which lie further away */
    Workers workers; /* those that have worked, and of each box one more */
    int64_t *unused; /* by box, further workers, which have never worked; NULL if there are none */
} FifoBox;

static void fifo_begin(Memory *memory, FifoBox *self, int64_t boxes, int64_t workers) {
    if (workers > 1) self->unused = zeroed(memory, boxes, sizeof(int64_t));
    for (int64_t box = 0; box < boxes; box++) {
        workers_push(memory, &self->workers, (Worker){0.0, box});
        if (workers > 1) self->unused[box] = workers - 1;
    }
}

/* When each request that waits at a box starts, the first one first. */
DEFINE_QUEUE(Starts, double, starts)

/* The requests that wait at a box, and the most that may. */
typedef struct {
    int64_t most;
    Starts starts;
} WaitingRoom;

/* Return a waiting room for each of some boxes. */
static WaitingRoom *rooms_new(Memory *memory, int64_t boxes, int64_t most) {
    WaitingRoom *rooms = zeroed(memory, boxes, sizeof *rooms);
    for (int64_t box = 0; box < boxes; box++) rooms[box].most = most;
    return rooms;
}

static inline int is_room_full(WaitingRoom *self, double now_s) {
    while (self->starts.count && *starts_at(&self->starts, 0) <= now_s) starts_take(&self->starts);
    return self->starts.count >= self->most;
}

static inline double fifo_work_left(const FifoBox *self, double now_s) { return larger(0.0, self->first_s - now_s); }

/* Let the first worker that comes free work until a moment. */
static inline void fifo_occupy(Memory *memory, FifoBox *self, double until_s) {
    Worker first = self->workers.items[0];
    workers_replace_first(&self->workers, (Worker){until_s, first.box});
    if (self->unused != NULL && first.free_s == 0.0 && self->unused[first.box]) {
        workers_push(memory, &self->workers, (Worker){0.0, first.box});
        self->unused[first.box] -= 1;
    }
    self->first_s = self->workers.items[0].free_s;
}

/* Return when a request that enters now starts. */
static inline double fifo_serve(Memory *memory, FifoBox *self, double entry_s, double service_s) {
    double start_s = larger(self->first_s, entry_s);
    fifo_occupy(memory, self, start_s + service_s);
    return start_s;
}

/* Make `self` equal to `other`, to foresee waits. It mostly has one worker: then a call of `memcpy` would cost more. */
static void fifo_copy(Memory *memory, FifoBox *self, const FifoBox *other, int64_t boxes) {
    Workers *workers = &self->workers;
    int64_t count = other->workers.count;
    if (workers->capacity < count) {
        workers->items = resized(memory, workers->items, count, sizeof(Worker));
        workers->capacity = count;
    }
    workers->items[0] = other->workers.items[0];
    if (count > 1) memcpy(workers->items, other->workers.items, (size_t)count * sizeof(Worker));
    workers->count = count;
    self->first_s = other->first_s;
    if (other->unused == NULL) return;
    if (self->unused == NULL) self->unused = zeroed(memory, boxes, sizeof(int64_t));
    memcpy(self->unused, other->unused, (size_t)boxes * sizeof(int64_t));
}

#endif
