/* The clock: events in the order of (time, kind, number). See devices/device.py. */
#ifndef SIMNMT_WORLD_CLOCK_H
#define SIMNMT_WORLD_CLOCK_H

#include "containers.h"

enum { COMPLETES, LOADED, REACHES, REFUSAL, DEFERS, ARRIVES, ASKS, BATCH_ACTS };

typedef struct {
    double at_s;
    int64_t order; /* kind and number, see `order_of` */
    void *event; /* the request that reaches its target or is refused there, or the pool of the box that acts, has loaded a model or
                  * completes a request */
} Entry;

/* Return a number by which events of one moment are ordered: by kind, then by the event's own number. */
static inline int64_t order_of(int kind, int64_t number) { return ((int64_t)kind << 56) + number; }

static inline int kind_of(int64_t order) { return (int)(order >> 56); }

static inline int64_t number_of(int64_t order) { return order & (((int64_t)1 << 56) - 1); }

static inline int is_before(double at_s, int64_t order, double other_s, int64_t other) {
    return at_s < other_s || (at_s == other_s && order < other);
}

static inline int happens_before(const Entry *one, const Entry *other) {
    return is_before(one->at_s, one->order, other->at_s, other->order);
}

DEFINE_HEAP(Clock, Entry, clock, happens_before)

#endif
