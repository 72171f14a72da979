/* What a decider expects of its targets beyond the plane: `BacklogView` and `PlanView` of policies/views.py and
 * `BatchView` of policies/batch_view.py. They exist in C as well because calling Python back would take ten times as long. */
#ifndef SIMNMT_WORLD_VIEWS_H
#define SIMNMT_WORLD_VIEWS_H

#include "fifo.h"
#include "stream.h"

/* The mirror of a first-in first-out pool. */

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

DEFINE_QUEUE(SentRequests, SentRequest, requests)

typedef struct {
    double others_share, last_start_s, shift_s, now_s, behind_s, work_s;
    FifoBox mirror;
    int64_t parallel, sent, times_empty;
    SentRequests under_way; /* from the oldest under way to the last that was sent */
    SentRequest last;
    int64_t last_number;
    double last_wait_s, waiting_share, empty_wait_s, gap_s, heard_s, grown_s, busy_s;
    int64_t reports, found_empty;
} BacklogView;

static BacklogView *backlog_new(Memory *memory, int64_t parallel) {
    BacklogView *self = zeroed(memory, 1, sizeof *self);
    self->parallel = parallel;
    fifo_begin(memory, &self->mirror, 1, parallel);
    self->last_number = -1;
    return self;
}

static double backlog_trust(const BacklogView *self, double at_s) {
    double silence_s = at_s - self->heard_s, memory_s = FADE * self->gap_s;
    return silence_s > 0.0 && memory_s > 0.0 ? memory_s / (memory_s + silence_s) : 1.0;
}

static double backlog_lag_s(const BacklogView *self, double at_s) {
    if (self->others_share == 0.0) return self->behind_s;
    return self->behind_s + self->others_share * backlog_trust(self, at_s) * (at_s - self->now_s);
}

static double backlog_mirrored_s(const BacklogView *self, double mirror_s) {
    return larger(0.0, larger(self->mirror.first_s, self->last_start_s) + self->shift_s - mirror_s);
}

static double backlog_added_s(const BacklogView *self, double entry_s) {
    double wait_s = backlog_mirrored_s(self, entry_s - backlog_lag_s(self, entry_s)), empty_wait_s = self->empty_wait_s;
    if (wait_s < empty_wait_s) empty_wait_s *= backlog_trust(self, entry_s);
    return larger(empty_wait_s, wait_s);
}

static int64_t backlog_sent(Memory *memory, BacklogView *self, double entry_s, double execution_s) {
    if (entry_s > self->now_s) {
        self->behind_s = backlog_lag_s(self, entry_s);
        self->now_s = entry_s;
    }
    double mirror_s = entry_s - self->behind_s, wait_s = backlog_mirrored_s(self, mirror_s);
    if (wait_s == 0.0) self->times_empty += 1;
    double start_s = larger(larger(self->mirror.first_s, self->last_start_s), mirror_s - self->shift_s);
    fifo_occupy(memory, &self->mirror, start_s + execution_s);
    self->last_start_s = start_s;
    while (self->under_way.count && !requests_at(&self->under_way, 0)->is_under_way) requests_take(&self->under_way);
    SentRequest sent = {entry_s, wait_s, start_s - mirror_s, self->work_s, self->behind_s, self->times_empty, 1};
    requests_add(memory, &self->under_way, sent);
    self->work_s += execution_s / (double)self->parallel;
    return self->sent++;
}

static void backlog_learn_share(BacklogView *self, const SentRequest *last, const SentRequest *sent, double wait_s) {
    double gap_s = sent->entry_s - last->entry_s;
    update_mean(&self->gap_s, gap_s, self->reports + 1, WAIT_MEMORY);
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
    SentRequest *place = requests_at(&self->under_way, self->under_way.count - (self->sent - number)), sent = *place;
    place->is_under_way = 0;
    self->reports += 1;
    update_mean(&self->waiting_share, wait_s > EXACT_S, self->reports + 1, SHARE_MEMORY);
    if (sent.believed_s == 0.0) {
        self->found_empty += 1;
        update_mean(&self->empty_wait_s, wait_s, self->found_empty + 7, WAIT_MEMORY);
    }
    if (number < self->last_number) return;
    if (self->last_number >= 0) backlog_learn_share(self, &self->last, &sent, wait_s);
    self->last = sent;
    self->last_number = number;
    self->last_wait_s = wait_s;
    self->heard_s = self->now_s;
    self->shift_s = wait_s - sent.mirrored_s;
}

static void backlog_lost(BacklogView *self, int64_t number) {
    requests_at(&self->under_way, self->under_way.count - (self->sent - number))->is_under_way = 0;
}

/* The time beyond the plane at a target that batches. */

#define BATCH_MEMORY 64
#define BATCH_PRIOR 8

typedef struct {
    double sent_s, modelled_s;
    int is_under_way;
} SentSentence;

DEFINE_QUEUE(SentSentences, SentSentence, sentences)

typedef struct {
    const BatchViewSettings *settings;
    int64_t sent, reports, under_way_count;
    SentSentences under_way; /* from the oldest under way to the last that was sent */
    double tgt_len, last_others, mean_others, heard_s, left_behind, time_away_s, waited_s, modelled_s, lengthened;
} BatchView;

static BatchView *batch_view_new(Memory *memory, const BatchViewSettings *settings) {
    BatchView *self = zeroed(memory, 1, sizeof *self);
    self->settings = settings;
    self->tgt_len = self->lengthened = 1.0;
    return self;
}

static double batch_view_present(const BatchView *self, double at_s) {
    double others = self->last_others, age_s = at_s - self->heard_s, away_s = self->time_away_s;
    if (age_s > 0.0 && 0.0 < away_s) {
        double mean = self->mean_others, long_s = BATCH_MEMORY * away_s;
        others = (others - mean) * away_s / (away_s + age_s) + mean * long_s / (long_s + age_s);
    }
    double present = (double)self->under_way_count / (double)self->settings->servers + others;
    return larger(0.0, present);
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
    double twice = smaller(present + 1.0, (double)settings->size);
    twice += smaller(twice, self->left_behind + 1.0);
    double slower_s = settings->slower_s[(int64_t)(twice + 0.5)];
    double each_s = present > (double)settings->threshold ? settings->together_s : settings->alone_s;
    slower_s += each_s * (twice / 2.0 - 1.0) / self->tgt_len;
    return batch_view_wait_s(self, present) * self->lengthened + tgt_len_predicted * slower_s;
}

static int64_t batch_view_sent(Memory *memory, BatchView *self, double now_s, double tgt_len_predicted) {
    int64_t number = self->sent++;
    update_mean(&self->tgt_len, larger(tgt_len_predicted, 1.0), number + 1, BATCH_MEMORY);
    while (self->under_way.count && !sentences_at(&self->under_way, 0)->is_under_way) sentences_take(&self->under_way);
    SentSentence sent = {now_s, batch_view_wait_s(self, batch_view_present(self, now_s)), 1};
    sentences_add(memory, &self->under_way, sent);
    self->under_way_count += 1;
    return number;
}

static void batch_view_reported(BatchView *self, int64_t number, double wait_s, int64_t active, int64_t waiting, double at_s) {
    SentSentence *sent = sentences_at(&self->under_way, self->under_way.count - (self->sent - number));
    sent->is_under_way = 0;
    self->under_way_count -= 1;
    self->reports += 1;
    update_mean(&self->time_away_s, at_s - sent->sent_s, self->reports, BATCH_MEMORY);
    update_mean(&self->left_behind, (double)active, self->reports, BATCH_MEMORY);
    self->last_others = (double)(active + waiting) - (double)self->under_way_count / (double)self->settings->servers;
    update_mean(&self->mean_others, self->last_others, self->reports, BATCH_MEMORY);
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

static void batch_view_lost(BatchView *self, int64_t number) {
    sentences_at(&self->under_way, self->under_way.count - (self->sent - number))->is_under_way = 0;
    self->under_way_count -= 1;
}

/* One decider's estimate of the state that a request will meet at a remote target. */
typedef struct {
    const StreamSettings *settings;
    int64_t latest, state, under_way;
    double done_s;
    double *answer_counts; /* by estimated and reported state */
    int *errs;             /* by state, whether an estimate was ever wrong */
} PlanView;

#define PLAN_MEMORY 64

static PlanView *plan_view_new(Memory *memory, const StreamSettings *settings) {
    PlanView *self = zeroed(memory, 1, sizeof *self);
    int64_t states = settings->states;
    self->settings = settings;
    self->latest = -1;
    self->done_s = -INFINITY;
    self->answer_counts = zeroed(memory, states * states, sizeof(double));
    self->errs = zeroed(memory, states, sizeof(int));
    for (int64_t state = 0; state < states; state++) self->answer_counts[state * states + state] = 1.0;
    return self;
}

static int64_t believed_state(const PlanView *self, double entry_s) {
    return lifecycle_next(self->settings, self->state, self->under_way ? -1.0 : entry_s - self->done_s);
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
