/* First-in first-out boxes of some workers each; service times are known on entry, so no queue is kept. See devices/fifo.py. */
#ifndef SIMNMT_WORLD_FIFO_H
#define SIMNMT_WORLD_FIFO_H

#include "memory.h"

typedef struct {
    double *free_at_s; /* a heap of the moments at which workers come free; NULL while `first_s` is the only one */
    double first_s;    /* the earliest of them */
    int64_t used, capacity, unused;
} FifoBox;

static void fifo_begin(FifoBox *self, int64_t workers) {
    memset(self, 0, sizeof *self);
    self->used = 1;
    self->unused = workers - 1;
}

/* Put `free_s` in the place of the earliest moment. */
static void fifo_replace_first(FifoBox *self, double free_s) {
    double *heap = self->free_at_s;
    if (heap == NULL) {
        self->first_s = free_s;
        return;
    }
    int64_t place = 0;
    for (int64_t child = 1; child < self->used; child = 2 * place + 1) {
        if (child + 1 < self->used && heap[child + 1] < heap[child]) child += 1;
        if (!(heap[child] < free_s)) break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = free_s;
    self->first_s = heap[0];
}

static void fifo_push(Memory *memory, FifoBox *self, double free_s) {
    if (self->free_at_s == NULL) {
        self->capacity = 8;
        self->free_at_s = resized(memory, NULL, self->capacity, sizeof(double));
        self->free_at_s[0] = self->first_s;
    }
    GROW(memory, self->free_at_s, self->used, self->capacity);
    int64_t place = self->used++;
    double *heap = self->free_at_s;
    for (; place > 0 && free_s < heap[(place - 1) / 2]; place = (place - 1) / 2) heap[place] = heap[(place - 1) / 2];
    heap[place] = free_s;
    self->first_s = heap[0];
}

/* Return when a request that enters now starts. */
static double fifo_serve(Memory *memory, FifoBox *self, double entry_s, double service_s) {
    double start_s = self->first_s;
    if (start_s < entry_s) start_s = entry_s;
    fifo_replace_first(self, start_s + service_s);
    if (self->unused && self->first_s > 0.0) {
        fifo_push(memory, self, 0.0);
        self->unused -= 1;
    }
    return start_s;
}

static inline double fifo_work_left(const FifoBox *self, double now_s) { return self->first_s > now_s ? self->first_s - now_s : 0.0; }

/* Make `self` equal to `other`, to foresee waits. */
static void fifo_copy(Memory *memory, FifoBox *self, const FifoBox *other) {
    double *heap = self->free_at_s;
    int64_t capacity = self->capacity;
    if (other->free_at_s != NULL) {
        if (capacity < other->used) {
            heap = self->free_at_s = resized(memory, heap, other->used, sizeof(double));
            capacity = other->used;
        }
        memcpy(heap, other->free_at_s, (size_t)other->used * sizeof(double));
    } else {
        free(heap);
        heap = NULL;
        capacity = 0;
    }
    *self = *other;
    self->free_at_s = heap;
    self->capacity = capacity;
}

/* A worker of some box, by when it comes free: the heap of a pool that takes the box with the least work. */
typedef struct {
    double free_s;
    int64_t box;
} Worker;

typedef struct {
    Worker *heap;
    int64_t count, capacity;
    int64_t *unused; /* by box, workers that have never worked beside the one in the heap; NULL if there are none */
} LeastWorkPool;

static inline int is_sooner(Worker one, Worker other) { return one.free_s < other.free_s || (one.free_s == other.free_s && one.box < other.box); }

static void least_work_begin(Memory *memory, LeastWorkPool *self, int64_t boxes, int64_t workers) {
    memset(self, 0, sizeof *self);
    self->heap = resized(memory, NULL, boxes, sizeof(Worker));
    self->count = self->capacity = boxes;
    for (int64_t box = 0; box < boxes; box++) self->heap[box] = (Worker){0.0, box};
    if (workers == 1) return;
    self->unused = resized(memory, NULL, boxes, sizeof(int64_t));
    for (int64_t box = 0; box < boxes; box++) self->unused[box] = workers - 1;
}

/* Enter at the first worker to come free; return when that starts, and set `*box`. */
static double least_work_enter(Memory *memory, LeastWorkPool *self, double entry_s, double service_s, int64_t *box) {
    Worker *heap = self->heap, first = heap[0];
    double start_s = first.free_s > entry_s ? first.free_s : entry_s;
    Worker next = {start_s + service_s, first.box};
    int64_t place = 0;
    for (int64_t child = 1; child < self->count; child = 2 * place + 1) {
        if (child + 1 < self->count && is_sooner(heap[child + 1], heap[child])) child += 1;
        if (!is_sooner(heap[child], next)) break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = next;
    if (self->unused != NULL && first.free_s == 0.0 && self->unused[first.box]) {
        GROW(memory, self->heap, self->count, self->capacity);
        heap = self->heap;
        Worker fresh = {0.0, first.box};
        for (place = self->count++; place > 0 && is_sooner(fresh, heap[(place - 1) / 2]); place = (place - 1) / 2) heap[place] = heap[(place - 1) / 2];
        heap[place] = fresh;
        self->unused[first.box] -= 1;
    }
    *box = first.box;
    return start_s;
}

static void least_work_copy(Memory *memory, LeastWorkPool *self, const LeastWorkPool *other, int64_t boxes) {
    if (self->capacity < other->count) {
        self->heap = resized(memory, self->heap, other->count, sizeof(Worker));
        self->capacity = other->count;
    }
    memcpy(self->heap, other->heap, (size_t)other->count * sizeof(Worker));
    self->count = other->count;
    if (other->unused == NULL) return;
    if (self->unused == NULL) self->unused = resized(memory, NULL, boxes, sizeof(int64_t));
    memcpy(self->unused, other->unused, (size_t)boxes * sizeof(int64_t));
}

static void least_work_free(LeastWorkPool *self) {
    free(self->heap);
    free(self->unused);
}

#endif
