/* Estimates of the transfer time of a target, learnt from answers. See policies/estimates.py. */
#ifndef SIMNMT_WORLD_ESTIMATES_H
#define SIMNMT_WORLD_ESTIMATES_H

#include "memory.h"
#include "numbers.h"

typedef struct {
    double value_s, measured_at_s;
    double weight, quantile;
    double *latest_s, *sorted_s; /* a ring of `window` measurements, and the same sorted */
    int64_t window, measured, oldest;
    int kind;
} TransferEstimate;

static void estimate_begin(Memory *memory, TransferEstimate *self, const EstimateSettings *settings) {
    self->value_s = settings->initial_s;
    self->measured_at_s = 0.0;
    self->weight = settings->weight;
    self->quantile = settings->quantile;
    self->kind = (int)settings->kind;
    if (self->kind == QUANTILE) {
        self->window = settings->window;
        self->latest_s = zeroed(memory, self->window, sizeof(double));
        self->sorted_s = zeroed(memory, self->window + 1, sizeof(double));
    }
}

static double quantile_with(TransferEstimate *self, double transfer_s) {
    double *sorted_s = self->sorted_s;
    if (self->measured == self->window) {
        int64_t gone = bisected_left(sorted_s, self->measured, self->latest_s[self->oldest]);
        self->measured -= 1;
        memmove(sorted_s + gone, sorted_s + gone + 1, (size_t)(self->measured - gone) * sizeof(double));
        self->oldest = (self->oldest + 1) % self->window;
    }
    self->latest_s[(self->oldest + self->measured) % self->window] = transfer_s;
    int64_t place = bisected_left(sorted_s, self->measured, transfer_s);
    memmove(sorted_s + place + 1, sorted_s + place, (size_t)(self->measured - place) * sizeof(double));
    sorted_s[place] = transfer_s;
    self->measured += 1;
    double at = self->quantile * (double)(self->measured - 1);
    int64_t below = (int64_t)at, above = below + 1 < self->measured ? below + 1 : self->measured - 1;
    double low_s = sorted_s[below], high_s = sorted_s[above];
    return low_s + (at - (double)below) * (high_s - low_s);
}

static inline void estimate_learn(TransferEstimate *self, double transfer_s, double at_s) {
    self->measured_at_s = at_s;
    if (self->kind == QUANTILE)
        self->value_s = quantile_with(self, transfer_s);
    else if (self->weight == 1.0)
        self->value_s = transfer_s;
    else
        self->value_s += self->weight * (transfer_s - self->value_s);
}

#endif
