/* Boxes that stream their model from the disk, and a decider's estimate of their state. See streaming_server.py, and `PlanView`
 * in policies/views.py. */
#ifndef SIMNMT_WORLD_STREAMING_SERVER_H
#define SIMNMT_WORLD_STREAMING_SERVER_H

#include <math.h>

#include "memory.h"

enum { COLD, FIRST_TURN };

/* One set of plans, as Python hands it over; bytes and seconds by state. */
typedef struct {
    double begin_s, fill_s, within_s, slowing, engagement_gap_s, reclaimed_after_s, engaged_s;
    int64_t fill_bytes, offset, keeps_preload;
    const double *read_s;
    const int64_t *held_bytes, *kept_bytes, *streamed_bytes;
} Plans;

typedef struct {
    int64_t states, phases, columns;
    const Plans *plans; /* by phase */
} StreamingSettings;

/* As `StreamingServer`; Python reads it back after the run. */
typedef struct {
    double free_s, disk_free_s, begun_s, compute_s, filled_s, held_byte_s, deferred_since_s;
    int64_t state, phase, is_deferred, deferred_warm, filled_bytes, peak_bytes, peak_shard_bytes, last_shard_bytes;
    int64_t *counts; /* by phase and state; NULL in a look ahead */
} StreamingBox;

typedef struct {
    double begin_s, finish_s, stall_s;
    int64_t state;
} StreamingOutcome;

static void streaming_begin(StreamingBox *self) {
    memset(self, 0, sizeof *self);
    self->free_s = self->disk_free_s = self->begun_s = -INFINITY;
}

static int64_t lifecycle_next(const StreamingSettings *settings, const Plans *plans, int64_t state, double idle_s) {
    if (idle_s > plans->reclaimed_after_s || idle_s == INFINITY) return COLD;
    if (idle_s > plans->engagement_gap_s) return plans->keeps_preload ? FIRST_TURN : COLD;
    int64_t turn = state > FIRST_TURN ? state : FIRST_TURN;
    return turn < settings->states - 1 ? turn + 1 : turn;
}

static double changes_at_s(const StreamingBox *self, const StreamingSettings *settings) {
    return self->phase + 1 < settings->phases ? settings->plans[self->phase + 1].begin_s : INFINITY;
}

static double keeps_for_s(const Plans *plans) { return plans->keeps_preload ? plans->reclaimed_after_s : plans->engaged_s; }

static double least_of(double one, double other) { return other < one ? other : one; }

static double idle_preload_byte_s(const Plans *plans, double idle_s) {
    return (double)plans->held_bytes[FIRST_TURN] * least_of(idle_s, keeps_for_s(plans));
}

/* Return the byte-seconds held since the last end: all that was kept, then the preload buffer, then nothing. */
static double idle_byte_s(const StreamingBox *self, const Plans *plans, double idle_s) {
    if (idle_s <= plans->engaged_s) return (double)plans->kept_bytes[self->state] * idle_s;
    double byte_s = (double)plans->kept_bytes[self->state] * plans->engaged_s;
    if (plans->keeps_preload) byte_s += (double)plans->held_bytes[FIRST_TURN] * (least_of(idle_s, plans->reclaimed_after_s) - plans->engaged_s);
    return byte_s;
}

/* Apply the changes up to a moment: each ends the engagement and fills the buffer for its plans. */
static void replan(StreamingBox *self, const StreamingSettings *settings, double now_s) {
    for (double at_s; now_s >= (at_s = changes_at_s(self, settings));) {
        const Plans *plans = settings->plans + self->phase;
        int first = !self->is_deferred, warm = first ? self->free_s > -INFINITY : (int)self->deferred_warm;
        double since_s = first ? self->free_s : self->deferred_since_s, begins_s = since_s > at_s ? since_s : at_s;
        if (warm) {
            double idle_s = begins_s - since_s;
            self->held_byte_s += first ? idle_byte_s(self, plans, idle_s) : idle_preload_byte_s(plans, idle_s);
            warm = idle_s <= keeps_for_s(plans);
        }
        self->phase += 1;
        plans = settings->plans + self->phase;
        if (warm) {
            self->disk_free_s = (at_s > self->disk_free_s ? at_s : self->disk_free_s) + plans->fill_s;
            self->filled_s += plans->fill_s;
            self->filled_bytes += plans->fill_bytes;
            if (plans->held_bytes[FIRST_TURN] > self->peak_bytes) self->peak_bytes = plans->held_bytes[FIRST_TURN];
        }
        self->is_deferred = 1;
        self->deferred_since_s = begins_s;
        self->deferred_warm = warm;
    }
}

/* Return the state of the first request after a change, and add its idle time to the held bytes. */
static int64_t after_change(StreamingBox *self, const StreamingSettings *settings, double entry_s) {
    const Plans *plans = settings->plans + self->phase;
    double idle_s = entry_s - self->deferred_since_s;
    if (!(idle_s >= 0.0)) idle_s = 0.0;
    self->is_deferred = 0;
    if (!self->deferred_warm) return COLD;
    self->held_byte_s += idle_preload_byte_s(plans, idle_s);
    return idle_s <= keeps_for_s(plans) ? FIRST_TURN : COLD;
}

/* Return the state of a request that would enter at a moment after all earlier entries. */
static int64_t next_state(const StreamingBox *self, const StreamingSettings *settings, double now_s) {
    if (now_s >= changes_at_s(self, settings) || self->is_deferred) {
        StreamingBox trial = *self;
        replan(&trial, settings, now_s);
        return after_change(&trial, settings, now_s);
    }
    return lifecycle_next(settings, settings->plans + self->phase, self->state, now_s - self->free_s);
}

/* Let a request enter; `added`: its columns, see `StreamingServerSpec.row_columns`. */
static StreamingOutcome streaming_serve(StreamingBox *self, const StreamingSettings *settings, double entry_s, double execution_s, const double *added) {
    double free_s = self->free_s, idle_s = entry_s - free_s;
    if (entry_s >= changes_at_s(self, settings)) replan(self, settings, entry_s);
    const Plans *plans = settings->plans + self->phase;
    const double *from_read_s = added + 2 + plans->offset;
    int64_t state;
    if (plans->offset) execution_s = from_read_s[-3];
    if (self->is_deferred) {
        state = after_change(self, settings, entry_s);
        idle_s = 0.0;
    } else if (idle_s <= plans->engaged_s) {
        state = lifecycle_next(settings, plans, self->state, 0.0);
    } else {
        state = lifecycle_next(settings, plans, self->state, idle_s);
    }
    double disk_s = self->disk_free_s;
    if (disk_s < self->begun_s) disk_s = self->begun_s;
    if (disk_s < entry_s) disk_s = entry_s;
    double begin_s = free_s > entry_s ? free_s : entry_s, finish_s = begin_s + execution_s, stall_s = 0.0;
    double read_until_s = disk_s + plans->read_s[state];
    if (plans->slowing != 0.0 && read_until_s > begin_s) stall_s = plans->slowing * (read_until_s - begin_s);
    double late_s = disk_s + from_read_s[state] - finish_s;
    if (late_s > stall_s) stall_s = late_s;
    finish_s += stall_s;
    if (idle_s > 0.0 && self->peak_bytes) self->held_byte_s += idle_byte_s(self, plans, idle_s);
    int64_t held_bytes = plans->held_bytes[state], kept_bytes = plans->kept_bytes[state];
    self->held_byte_s += (double)held_bytes * (finish_s - begin_s);
    int64_t peak_bytes = held_bytes > kept_bytes ? held_bytes : kept_bytes;
    if (peak_bytes > self->peak_bytes) self->peak_bytes = peak_bytes;
    int64_t own_bytes = held_bytes + plans->streamed_bytes[state], shard_bytes = own_bytes;
    if (disk_s < free_s) { /* read while the request before is computed, whose shards are there as well */
        int64_t both_bytes = self->last_shard_bytes + plans->streamed_bytes[state];
        if (both_bytes > shard_bytes) shard_bytes = both_bytes;
    }
    if (shard_bytes > self->peak_shard_bytes) self->peak_shard_bytes = shard_bytes;
    self->last_shard_bytes = own_bytes;
    self->disk_free_s = read_until_s;
    self->begun_s = begin_s;
    self->free_s = finish_s;
    self->state = state;
    if (self->counts != NULL) self->counts[self->phase * settings->states + state] += 1;
    self->compute_s += execution_s;
    return (StreamingOutcome){begin_s, finish_s, stall_s, state};
}

/* One decider's estimate of the state that a request will meet at a remote target. */
typedef struct {
    const StreamingSettings *settings; /* NULL: no view of this target */
    int64_t latest, state, under_way;
    double done_s;
    double *answer_counts; /* by estimated and reported state */
    int *errs;             /* by state, whether an estimate was ever wrong */
} PlanView;

#define PLAN_MEMORY 64

static void plan_view_begin(Memory *memory, PlanView *self, const StreamingSettings *settings) {
    int64_t states = settings->states;
    self->settings = settings;
    self->latest = -1;
    self->done_s = -INFINITY;
    self->answer_counts = zeroed(memory, states * states, sizeof(double));
    self->errs = zeroed(memory, states, sizeof(int));
    for (int64_t state = 0; state < states; state++) self->answer_counts[state * states + state] = 1.0;
}

static int64_t believed_state(const PlanView *self, double entry_s) {
    return lifecycle_next(self->settings, self->settings->plans, self->state, self->under_way ? -1.0 : entry_s - self->done_s);
}

/* `beyond_s`: by state, the seconds beyond the plane of the requests of a block. */
static double plan_view_added_s(const PlanView *self, double entry_s, const double *const *beyond_s, int64_t in_block) {
    int64_t believed = believed_state(self, entry_s), states = self->settings->states;
    if (!self->errs[believed]) return beyond_s[believed][in_block];
    double total_s = 0.0, answers = 0.0;
    for (int64_t state = 0; state < states; state++) {
        double count = self->answer_counts[believed * states + state];
        total_s += count * beyond_s[state][in_block];
        answers += count;
    }
    return total_s / answers;
}

/* Note a request that is sent; return its estimated state. */
static int64_t plan_view_sent(PlanView *self, int64_t request, double entry_s) {
    self->latest = request;
    self->state = believed_state(self, entry_s);
    self->under_way += 1;
    return self->state;
}

static void plan_view_reported(PlanView *self, int64_t request, int64_t believed, int64_t state, double done_s) {
    int64_t states = self->settings->states;
    double *counts = self->answer_counts + believed * states, kept = 1.0 - 1.0 / PLAN_MEMORY;
    self->under_way -= 1;
    if (state != believed) self->errs[believed] = 1;
    for (int64_t number = 0; number < states; number++) counts[number] = kept * counts[number];
    counts[state] += 1.0;
    if (request == self->latest) self->state = state;
    if (done_s > self->done_s) self->done_s = done_s;
}

#endif
