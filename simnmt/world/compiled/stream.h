/* A box that streams its model from the disk. See `StreamBox` in devices/stream.py; changes of the plans are in the reference
 * alone. */
#ifndef SIMNMT_WORLD_STREAM_H
#define SIMNMT_WORLD_STREAM_H

#include "memory.h"
#include "numbers.h"

enum { COLD, FIRST_TURN };

typedef struct {
    double begin_s, finish_s, stall_s;
    int64_t state;
} StreamOutcome;

static void stream_begin(Memory *memory, StreamBox *self, int64_t states) {
    self->free_s = self->disk_free_s = self->begun_s = -INFINITY;
    self->counts = zeroed(memory, states, sizeof(int64_t));
}

static int64_t lifecycle_next(const StreamSettings *settings, int64_t state, double idle_s) {
    if (idle_s > settings->reclaimed_after_s || idle_s == INFINITY) return COLD;
    if (idle_s > settings->engagement_gap_s) return settings->keeps_preload ? FIRST_TURN : COLD;
    int64_t turn = state > FIRST_TURN ? state : FIRST_TURN;
    return turn < settings->states - 1 ? turn + 1 : turn;
}

/* Return the byte-seconds held since the last end: all that was kept, then the preload buffer, then nothing. */
static double idle_byte_s(const StreamBox *self, const StreamSettings *settings, double idle_s) {
    if (idle_s <= settings->engaged_s) return (double)settings->kept_bytes[self->state] * idle_s;
    double byte_s = (double)settings->kept_bytes[self->state] * settings->engaged_s;
    double kept_s = smaller(settings->reclaimed_after_s, idle_s);
    if (settings->keeps_preload) byte_s += (double)settings->held_bytes[FIRST_TURN] * (kept_s - settings->engaged_s);
    return byte_s;
}

/* Let a request enter; `added`: its columns, see `Streamed.row_columns`. */
static StreamOutcome stream_serve(StreamBox *self, const StreamSettings *settings, double entry_s, double execution_s,
                                  const double *added) {
    double free_s = self->free_s, idle_s = entry_s - free_s;
    int64_t state = lifecycle_next(settings, self->state, idle_s <= settings->engaged_s ? 0.0 : idle_s);
    double disk_s = larger(larger(self->disk_free_s, self->begun_s), entry_s);
    double begin_s = larger(entry_s, free_s), finish_s = begin_s + execution_s, stall_s = 0.0;
    double read_until_s = disk_s + settings->read_s[state];
    if (settings->slowing != 0.0 && read_until_s > begin_s) stall_s = settings->slowing * (read_until_s - begin_s);
    stall_s = larger(stall_s, disk_s + added[2 + state] - finish_s);
    finish_s += stall_s;
    if (idle_s > 0.0 && self->peak_bytes) self->held_byte_s += idle_byte_s(self, settings, idle_s);
    int64_t held_bytes = settings->held_bytes[state], kept_bytes = settings->kept_bytes[state];
    self->held_byte_s += (double)held_bytes * (finish_s - begin_s);
    int64_t peak_bytes = held_bytes > kept_bytes ? held_bytes : kept_bytes;
    if (peak_bytes > self->peak_bytes) self->peak_bytes = peak_bytes;
    int64_t own_bytes = held_bytes + settings->streamed_bytes[state], shard_bytes = own_bytes;
    if (disk_s < free_s) { /* read while the request before is computed, whose shards are there as well */
        int64_t both_bytes = self->last_shard_bytes + settings->streamed_bytes[state];
        if (both_bytes > shard_bytes) shard_bytes = both_bytes;
    }
    if (shard_bytes > self->peak_shard_bytes) self->peak_shard_bytes = shard_bytes;
    self->last_shard_bytes = own_bytes;
    self->disk_free_s = read_until_s;
    self->begun_s = begin_s;
    self->free_s = finish_s;
    self->state = state;
    if (self->counts != NULL) self->counts[state] += 1;
    self->compute_s += execution_s;
    return (StreamOutcome){begin_s, finish_s, stall_s, state};
}

#endif
