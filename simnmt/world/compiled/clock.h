/* The clock: events in the order of (time, kind, number). See devices/device.py. */
#ifndef SIMNMT_WORLD_CLOCK_H
#define SIMNMT_WORLD_CLOCK_H

#include "memory.h"

enum { REACHES, ARRIVES, ASKS, BATCH_ACTS };

typedef struct {
    double at_s;
    int64_t order; /* kind and number, see `order_of` */
    void *event;
} Entry;

typedef struct {
    Entry *heap;
    int64_t count, capacity;
} Clock;

/* Return a number by which events of one moment are ordered: by kind, then by the event's own number. */
static inline int64_t order_of(int kind, int64_t number) { return ((int64_t)kind << 56) + number; }

static inline int kind_of(int64_t order) { return (int)(order >> 56); }

static inline int64_t number_of(int64_t order) { return order & (((int64_t)1 << 56) - 1); }

static inline int is_before(double at_s, int64_t order, double other_s, int64_t other) {
    return at_s < other_s || (at_s == other_s && order < other);
}

static void clock_push(Memory *memory, Clock *clock, double at_s, int64_t order, void *event) {
    GROW(memory, clock->heap, clock->count, clock->capacity);
    Entry *heap = clock->heap;
    int64_t place = clock->count++;
    while (place > 0) {
        int64_t parent = (place - 1) / 2;
        if (!is_before(at_s, order, heap[parent].at_s, heap[parent].order)) break;
        heap[place] = heap[parent];
        place = parent;
    }
    heap[place] = (Entry){at_s, order, event};
}

static Entry clock_pop(Clock *clock) {
    Entry *heap = clock->heap, first = heap[0], last = heap[--clock->count];
    int64_t place = 0, count = clock->count;
    for (int64_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && is_before(heap[child + 1].at_s, heap[child + 1].order, heap[child].at_s, heap[child].order)) child += 1;
        if (!is_before(heap[child].at_s, heap[child].order, last.at_s, last.order)) break;
        heap[place] = heap[child];
        place = child;
    }
    if (count) heap[place] = last;
    return first;
}

#endif
