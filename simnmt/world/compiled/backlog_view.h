/* One decider's mirror of a first-in first-out pool. See `BacklogView` in policies/views.py, whose names and order these are. */
#ifndef SIMNMT_WORLD_BACKLOG_VIEW_H
#define SIMNMT_WORLD_BACKLOG_VIEW_H

#include <math.h>

#include "fifo_server.h"

#define SHARE_MEMORY 256
#define WAIT_MEMORY 64
#define FADE 64
#define MOST_SHARE 0.98
#define EXACT_S 1e-9

typedef struct {
    double entry_s, believed_s, mirrored_s, work_s, behind_s;
    int64_t times_empty;
    int is_under_way;
} SentRequest;

typedef struct {
    double others_share, last_start_s, shift_s, now_s, behind_s, work_s;
    FifoServer mirror;
    int64_t parallel, sent, times_empty;
    SentRequest *under_way; /* a ring: request number n is at n modulo `room` */
    int64_t oldest, room;
    SentRequest last;
    int64_t last_number;
    double last_wait_s, waiting_share, empty_wait_s, gap_s, heard_s, grown_s, busy_s;
    int64_t reports, found_empty;
} BacklogView;

static void backlog_begin(BacklogView *self, int64_t parallel) {
    memset(self, 0, sizeof *self);
    self->parallel = parallel;
    fifo_begin(&self->mirror, parallel);
    self->last_number = -1;
}

static void backlog_free(BacklogView *self) {
    free(self->mirror.free_at_s);
    free(self->under_way);
}

static inline double smaller(double one, double other) { return other < one ? other : one; }

static inline double larger(double one, double other) { return other > one ? other : one; }

static double backlog_trust(const BacklogView *self, double at_s) {
    double silence_s = at_s - self->heard_s, memory_s = FADE * self->gap_s;
    return silence_s > 0.0 && memory_s > 0.0 ? memory_s / (memory_s + silence_s) : 1.0;
}

static double backlog_lag_s(const BacklogView *self, double at_s) {
    if (self->others_share == 0.0) return self->behind_s;
    return self->behind_s + self->others_share * backlog_trust(self, at_s) * (at_s - self->now_s);
}

static double backlog_mirrored_s(const BacklogView *self, double mirror_s) {
    double wait_s = larger(self->mirror.first_s, self->last_start_s) + self->shift_s - mirror_s;
    return wait_s > 0.0 ? wait_s : 0.0;
}

static double backlog_added_s(const BacklogView *self, double entry_s) {
    double wait_s = backlog_mirrored_s(self, entry_s - backlog_lag_s(self, entry_s)), empty_wait_s = self->empty_wait_s;
    if (wait_s < empty_wait_s) empty_wait_s *= backlog_trust(self, entry_s);
    return wait_s > empty_wait_s ? wait_s : empty_wait_s;
}

/* Make room for request number `sent`; those before the oldest under way are gone. */
static SentRequest *backlog_place(Memory *memory, BacklogView *self) {
    while (self->oldest < self->sent && !self->under_way[self->oldest % self->room].is_under_way) self->oldest += 1;
    if (self->sent - self->oldest == self->room) {
        int64_t room = self->room ? 2 * self->room : 8;
        SentRequest *ring = resized(memory, NULL, room, sizeof *ring);
        for (int64_t number = self->oldest; number < self->sent; number++) ring[number % room] = self->under_way[number % self->room];
        free(self->under_way);
        self->under_way = ring;
        self->room = room;
    }
    return self->under_way + self->sent % self->room;
}

static int64_t backlog_sent(Memory *memory, BacklogView *self, double entry_s, double execution_s) {
    if (entry_s > self->now_s) {
        self->behind_s = backlog_lag_s(self, entry_s);
        self->now_s = entry_s;
    }
    double mirror_s = entry_s - self->behind_s, wait_s = backlog_mirrored_s(self, mirror_s);
    if (wait_s == 0.0) self->times_empty += 1;
    double start_s = larger(larger(self->mirror.first_s, self->last_start_s), mirror_s - self->shift_s);
    fifo_replace_first(&self->mirror, start_s + execution_s);
    if (self->mirror.unused && self->mirror.first_s > 0.0) {
        fifo_push(memory, &self->mirror, 0.0);
        self->mirror.unused -= 1;
    }
    self->last_start_s = start_s;
    *backlog_place(memory, self) = (SentRequest){entry_s, wait_s, start_s - mirror_s, self->work_s, self->behind_s, self->times_empty, 1};
    self->work_s += execution_s / (double)self->parallel;
    return self->sent++;
}

static void backlog_learn_share(BacklogView *self, const SentRequest *last, const SentRequest *sent, double wait_s) {
    double gap_s = sent->entry_s - last->entry_s;
    self->gap_s += (gap_s - self->gap_s) / (double)(self->reports + 1 < WAIT_MEMORY ? self->reports + 1 : WAIT_MEMORY);
    if (self->last_wait_s > gap_s && gap_s > 0.0 && fabs(wait_s - sent->believed_s) > EXACT_S) {
        double expected_s;
        if (sent->times_empty == last->times_empty)
            expected_s = sent->mirrored_s - last->mirrored_s - (sent->behind_s - last->behind_s);
        else
            expected_s = sent->work_s - last->work_s - gap_s;
        double kept = 1.0 - 1.0 / SHARE_MEMORY;
        self->grown_s = kept * self->grown_s + wait_s - self->last_wait_s - expected_s;
        self->busy_s = kept * self->busy_s + gap_s;
    }
    if (self->grown_s > 0.0) {
        double most = pow(self->waiting_share, 1.0 / (double)self->parallel);
        self->others_share = smaller(smaller(self->grown_s / self->busy_s, most), MOST_SHARE);
    } else {
        self->others_share = 0.0;
    }
}

static void backlog_reported(BacklogView *self, int64_t number, double wait_s) {
    SentRequest sent = self->under_way[number % self->room];
    self->under_way[number % self->room].is_under_way = 0;
    self->reports += 1;
    double waited = wait_s > EXACT_S ? 1.0 : 0.0;
    self->waiting_share += (waited - self->waiting_share) / (double)(self->reports + 1 < SHARE_MEMORY ? self->reports + 1 : SHARE_MEMORY);
    if (sent.believed_s == 0.0) {
        self->found_empty += 1;
        self->empty_wait_s += (wait_s - self->empty_wait_s) / (double)(self->found_empty + 7 < WAIT_MEMORY ? self->found_empty + 7 : WAIT_MEMORY);
    }
    if (number < self->last_number) return;
    if (self->last_number >= 0) backlog_learn_share(self, &self->last, &sent, wait_s);
    self->last = sent;
    self->last_number = number;
    self->last_wait_s = wait_s;
    self->heard_s = self->now_s;
    self->shift_s = wait_s - sent.mirrored_s;
}

#endif
