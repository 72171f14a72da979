/* One decider's estimate of the time beyond the plane at a batched target. See `BatchView` in policies/views.py. */
#ifndef SIMNMT_WORLD_BATCH_VIEW_H
#define SIMNMT_WORLD_BATCH_VIEW_H

#include "memory.h"

#define BATCH_MEMORY 64
#define BATCH_PRIOR 8

/* What Python hands over. */
typedef struct {
    int64_t size, threshold, servers;
    double step_alone_s, alone_s, together_s;
    const double *slower_s, *end_s; /* by twice the sentences in a step, and by the sentences in the batch */
} BatchViewSettings;

typedef struct {
    double sent_s, modelled_s;
    int is_under_way;
} SentSentence;

typedef struct {
    const BatchViewSettings *settings;
    int64_t sent, reports, oldest, room, under_way_count;
    SentSentence *under_way; /* a ring: request number n is at n modulo `room` */
    double tgt_len, last_others, mean_others, heard_s, left_behind, time_away_s, waited_s, modelled_s, lengthened;
} BatchView;

static void batch_view_begin(BatchView *self, const BatchViewSettings *settings) {
    memset(self, 0, sizeof *self);
    self->settings = settings;
    self->tgt_len = self->lengthened = 1.0;
}

static double batch_view_present(const BatchView *self, double at_s) {
    double others = self->last_others, age_s = at_s - self->heard_s, away_s = self->time_away_s;
    if (age_s > 0.0 && 0.0 < away_s) {
        double mean = self->mean_others, long_s = BATCH_MEMORY * away_s;
        others = (others - mean) * away_s / (away_s + age_s) + mean * long_s / (long_s + age_s);
    }
    double present = (double)self->under_way_count / (double)self->settings->servers + others;
    return present > 0.0 ? present : 0.0;
}

static double batch_view_wait_s(const BatchView *self, double present) {
    const BatchViewSettings *settings = self->settings;
    double beyond = present - (double)settings->threshold;
    if (beyond <= 0.0) return 0.0;
    return beyond * self->tgt_len * settings->end_s[present < (double)settings->size ? (int64_t)present : settings->size];
}

static double batch_view_added_s(const BatchView *self, double at_s, double tgt_len_predicted) {
    const BatchViewSettings *settings = self->settings;
    double present = batch_view_present(self, at_s);
    if (present == 0.0) return 0.0;
    double twice = (double)settings->size < present + 1.0 ? (double)settings->size : present + 1.0;
    double left_behind = self->left_behind + 1.0;
    twice += left_behind < twice ? left_behind : twice;
    double slower_s = settings->slower_s[(int64_t)(twice + 0.5)];
    double each_s = present > (double)settings->threshold ? settings->together_s : settings->alone_s;
    slower_s += each_s * (twice / 2.0 - 1.0) / self->tgt_len;
    return batch_view_wait_s(self, present) * self->lengthened + tgt_len_predicted * slower_s;
}

static int64_t batch_view_sent(Memory *memory, BatchView *self, double now_s, double tgt_len_predicted) {
    int64_t number = self->sent++;
    double memorised = number < BATCH_MEMORY ? (double)(number + 1) : BATCH_MEMORY;
    self->tgt_len += ((1.0 > tgt_len_predicted ? 1.0 : tgt_len_predicted) - self->tgt_len) / memorised;
    while (self->oldest < number && !self->under_way[self->oldest % self->room].is_under_way) self->oldest += 1;
    if (number - self->oldest == self->room) {
        int64_t room = self->room ? 2 * self->room : 8;
        SentSentence *ring = resized(memory, NULL, room, sizeof *ring);
        for (int64_t other = self->oldest; other < number; other++) ring[other % room] = self->under_way[other % self->room];
        free(self->under_way);
        self->under_way = ring;
        self->room = room;
    }
    SentSentence sent = {now_s, batch_view_wait_s(self, batch_view_present(self, now_s)), 1};
    self->under_way[number % self->room] = sent;
    self->under_way_count += 1;
    return number;
}

static void batch_view_reported(BatchView *self, int64_t number, double wait_s, int64_t active, int64_t waiting, double at_s) {
    SentSentence *sent = self->under_way + number % self->room;
    sent->is_under_way = 0;
    self->under_way_count -= 1;
    self->reports += 1;
    double memorised = self->reports < BATCH_MEMORY ? (double)self->reports : BATCH_MEMORY;
    self->time_away_s += (at_s - sent->sent_s - self->time_away_s) / memorised;
    self->left_behind += ((double)active - self->left_behind) / memorised;
    self->last_others = (double)(active + waiting) - (double)self->under_way_count / (double)self->settings->servers;
    self->mean_others += (self->last_others - self->mean_others) / memorised;
    self->heard_s = at_s;
    double kept = 1.0 - 1.0 / BATCH_MEMORY;
    double waited_s = self->waited_s = self->waited_s * kept + wait_s;
    double modelled_s = self->modelled_s = self->modelled_s * kept + sent->modelled_s;
    if (waited_s > modelled_s) {
        double prior_s = BATCH_PRIOR * self->tgt_len * self->settings->step_alone_s;
        self->lengthened = (waited_s + prior_s) / (modelled_s + prior_s);
    } else {
        self->lengthened = 1.0;
    }
}

#endif
