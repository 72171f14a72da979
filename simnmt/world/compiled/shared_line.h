/* A shared line: the messages on it share its bandwidth equally. See shared_line.py and `Capacity` in network/message_paths.py. */
#ifndef SIMNMT_WORLD_SHARED_LINE_H
#define SIMNMT_WORLD_SHARED_LINE_H

#include <math.h>

#include "clock.h"

/* The bandwidth of a line: a constant, or a series over laps. */
typedef struct {
    int64_t samples; /* 0: a constant */
    double bps, begin_s, lap_s, lap_bits;
    const double *time_s, *rate, *carried; /* `carried`: bits of a lap before each sample */
} Capacity;

typedef struct {
    double finish; /* the virtual time at which it is done */
    int64_t number;
    void *message;
} Sending;

typedef struct {
    const Capacity *capacity;
    Sending *heap, *sorted;
    int64_t count, heap_capacity, sorted_capacity, number;
    double next_s, base_s, base_work;
    double armed_s; /* the last moment for which it was put on the clock */
} SharedLine;

/* Return the whole part and set the rest of a division as Python's `divmod` of floats does, for a positive divisor. */
static double divided(double value, double by, double *rest) {
    double remainder = fmod(value, by), quotient = (value - remainder) / by;
    if (remainder != 0.0 && remainder < 0.0) {
        remainder += by;
        quotient -= 1.0;
    }
    *rest = remainder;
    double whole = floor(quotient);
    return quotient - whole > 0.5 ? whole + 1.0 : whole;
}

/* Return the last sample whose number is not above a value. */
static int64_t sample_of(const double *numbers, int64_t samples, double value) {
    int64_t low = 0, high = samples;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (value < numbers[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low ? low - 1 : samples - 1;
}

static double bits_until(const Capacity *self, double at_s) {
    double in_lap_s, laps = divided(at_s + self->begin_s, self->lap_s, &in_lap_s);
    int64_t sample = sample_of(self->time_s, self->samples, in_lap_s);
    return laps * self->lap_bits + self->carried[sample] + (in_lap_s - self->time_s[sample]) * self->rate[sample];
}

static double bits_between(const Capacity *self, double begin_s, double end_s) {
    if (!self->samples) return (end_s - begin_s) * self->bps;
    return bits_until(self, end_s) - bits_until(self, begin_s);
}

static double end_of(const Capacity *self, double begin_s, double bits) {
    if (!self->samples) return begin_s + bits / self->bps;
    double in_lap, laps = divided(bits_until(self, begin_s) + bits, self->lap_bits, &in_lap);
    int64_t sample = sample_of(self->carried, self->samples, in_lap);
    double in_lap_s = self->time_s[sample] + (in_lap - self->carried[sample]) / self->rate[sample];
    double end_s = laps * self->lap_s + in_lap_s - self->begin_s;
    return end_s < begin_s ? begin_s : end_s;
}

static void line_begin(SharedLine *self, const Capacity *capacity, int64_t number) {
    self->capacity = capacity;
    self->number = number;
    self->next_s = self->armed_s = INFINITY;
}

static inline int is_sent_before(const Sending *one, const Sending *other) {
    return one->finish < other->finish || (one->finish == other->finish && one->number < other->number);
}

static double line_work_at(const SharedLine *self, double now_s) {
    double work = self->base_work + bits_between(self->capacity, self->base_s, now_s) / (double)self->count;
    return self->heap[0].finish < work ? self->heap[0].finish : work;
}

static void line_foresee(SharedLine *self) {
    self->next_s = INFINITY;
    if (self->count) self->next_s = end_of(self->capacity, self->base_s, (self->heap[0].finish - self->base_work) * (double)self->count);
}

static void line_enter(Memory *memory, SharedLine *self, void *message, int64_t number, double bits, double now_s) {
    self->base_work = self->count ? line_work_at(self, now_s) : 0.0;
    self->base_s = now_s;
    GROW(memory, self->heap, self->count, self->heap_capacity);
    Sending sending = {self->base_work + bits, number, message};
    int64_t place = self->count++;
    for (; place > 0 && is_sent_before(&sending, self->heap + (place - 1) / 2); place = (place - 1) / 2) self->heap[place] = self->heap[(place - 1) / 2];
    self->heap[place] = sending;
    line_foresee(self);
}

/* Return the next message of those that are done, in their order; NULL if there is none. */
static void *line_pop(SharedLine *self) {
    if (!self->count || self->heap[0].finish > self->base_work) return NULL;
    Sending *heap = self->heap, first = heap[0], last = heap[--self->count];
    int64_t place = 0, count = self->count;
    for (int64_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && is_sent_before(heap + child + 1, heap + child)) child += 1;
        if (!is_sent_before(heap + child, &last)) break;
        heap[place] = heap[child];
        place = child;
    }
    if (count) heap[place] = last;
    return first.message;
}

static int compare_sendings(const void *one, const void *other) { return is_sent_before(one, other) ? -1 : 1; }

/* Return the seconds of a message that entered now if none came after it. */
static double line_foreseen_s(Memory *memory, SharedLine *self, double bits, double now_s) {
    if (!self->count) return end_of(self->capacity, now_s, bits) - now_s;
    while (self->sorted_capacity < self->count) GROW(memory, self->sorted, self->sorted_capacity, self->sorted_capacity);
    memcpy(self->sorted, self->heap, (size_t)self->count * sizeof(Sending));
    qsort(self->sorted, (size_t)self->count, sizeof(Sending), compare_sendings);
    double work = line_work_at(self, now_s), shared = 0.0;
    for (int64_t place = 0; place < self->count; place++) {
        double left = self->sorted[place].finish - work;
        shared += bits < left ? bits : left;
    }
    return end_of(self->capacity, now_s, bits + shared) - now_s;
}

#endif
