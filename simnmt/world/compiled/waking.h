/* What an execution takes longer because its box idled before it. See `WakingCost` in profile/waking.py. */
#ifndef SIMNMT_WORLD_WAKING_H
#define SIMNMT_WORLD_WAKING_H

#include <math.h>

typedef struct {
    double seconds, time_constant_s;
} Waking;

/* Return the seconds added to an execution after a gap; `self`: NULL for a box that does not wake up. */
static inline double waking_after(const Waking *self, double idle_s) {
    return self != NULL && idle_s > 0.0 ? self->seconds * -expm1(-idle_s / self->time_constant_s) : 0.0;
}

#endif
