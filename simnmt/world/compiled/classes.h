/* The order in which classes of requests are served. See batching/class_queue.py. */
#ifndef SIMNMT_WORLD_CLASSES_H
#define SIMNMT_WORLD_CLASSES_H

#include <math.h>

#include "settings.h"

/* The class that is served next: that of the overdue request that has waited longest, else the first in which one waits. Classes are
 * offered in their order. */
typedef struct {
    int64_t rank; /* -1 if none waits */
    double since_s;
    int is_overdue;
} NextClass;

static inline void offer_class(NextClass *next, const Classes *classes, int64_t rank, double since_s, double now_s) {
    int is_overdue = now_s >= since_s + classes->max_wait_s[rank];
    if (next->rank >= 0 && !(is_overdue && (!next->is_overdue || since_s < next->since_s))) return;
    *next = (NextClass){rank, since_s, is_overdue};
}

#endif
