/* One box that decodes sentences in batches. See `BatchBox` in devices/batch.py, which takes every step.
 *
 * Here the cost is not per step: the active sentences are in a heap by the step after which each is done, and the box jumps from
 * completion to completion. While no more than the threshold are active, an arrival makes it act at the end of the running
 * step. The caller announces arrivals by `batch_box_arrive` and calls `batch_box_act` at `next_s`. */
#ifndef SIMNMT_WORLD_BATCH_BOX_H
#define SIMNMT_WORLD_BATCH_BOX_H

#include "batch_cost.h"
#include "batcher.h"

/* An active sentence. */
typedef struct {
    int64_t finish_step, request;
    double begin_s, first_s, factor;
    void *event;
    int is_new; /* whether it has not taken its first step */
} Active;

static inline int ends_before(const Active *one, const Active *other) {
    return one->finish_step < other->finish_step || (one->finish_step == other->finish_step && one->request < other->request);
}

DEFINE_HEAP(Actives, Active, actives, ends_before)

/* The source of an active sentence. */
typedef struct {
    int64_t src_len, finish_step;
} Source;

/* The longest source first; of equal ones that which is done first. */
static inline int is_longer(const Source *one, const Source *other) {
    return one->src_len > other->src_len || (one->src_len == other->src_len && one->finish_step < other->finish_step);
}

DEFINE_HEAP(Sources, Source, sources, is_longer)

/* The step at which sentences joined, and that after which the last of them is done. */
typedef struct {
    int64_t step, last;
} Joined;

DEFINE_QUEUE(Joins, Joined, joins)

typedef struct {
    const BatchCost *cost;   /* of the model of the last move */
    const BatchCost *const *costs; /* by model; NULL for one */
    Batcher *batchers;       /* by model */
    int64_t models, model;   /* their number, and that of the last move */
    int64_t *by_age;         /* room for the order of the batchers */
    double next_s, base_s, factor, factor_sum, more_s;
    double armed_s; /* the last moment for which it was put on the clock */
    int64_t left_active, left_waiting;
    int64_t waiting, waiting_tokens, finish_sum; /* sentences and steps of those that are neither active nor joining */
    Actives active;
    Sources sources;
    Joins joins;
    ARRAY(Waiting) joining;
    ARRAY(Active) done; /* at the last action */
    ARRAY(Active) ended; /* of the batch, until its end, if all are answered then */
    ARRAY(int64_t) src_lens; /* of the sentences that are encoded */
    int64_t step, position, batch, to_completion, until, new_count;
    int is_joining, keeps_sources; /* `is_joining`: sentences are encoded, or join */
    Account account;
} BatchBox;

static void batch_box_begin(Memory *memory, BatchBox *self, const Batching *batching, const BatchCost *cost, const ModelSettings *models) {
    self->cost = cost;
    self->models = models == NULL ? 1 : models->models;
    self->costs = models == NULL ? NULL : models->costs;
    self->batchers = zeroed(memory, self->models, sizeof(Batcher));
    self->by_age = zeroed(memory, self->models, sizeof(int64_t));
    self->next_s = self->armed_s = INFINITY;
    self->factor = 1.0;
    self->keeps_sources = cost->weighs_sources || batching->padded_tokens;
    for (int64_t model = 0; model < self->models; model++) {
        batcher_begin(memory, self->batchers + model, batching);
        if (self->costs != NULL) self->keeps_sources |= self->costs[model]->weighs_sources != 0;
    }
    self->account.steps = zeroed(memory, batching->size + 1, sizeof(int64_t));
    self->account.step_s = zeroed(memory, batching->size + 1, sizeof(double));
}

/* Return the tokens of the longest active source after a step; 0 if no sentence is active. */
static int64_t longest_source(BatchBox *self, int64_t step) {
    while (self->sources.count && self->sources.items[0].finish_step <= step) sources_pop(&self->sources);
    return self->sources.count ? self->sources.items[0].src_len : 0;
}

/* Return when `steps` steps since the last change have ended. */
static double end_s(const BatchBox *self, int64_t steps) {
    double taken_s = steps_s(self->cost, self->batch, self->position, self->position + steps - 1) + (double)steps * self->more_s;
    return self->base_s + self->factor * (steps == self->to_completion ? taken_s + self->cost->leave_s : taken_s);
}

/* Return the step since the last change that runs at a moment: the first that ends then or later, up to `until`. */
static int64_t running_at(const BatchBox *self, double moment_s) {
    int64_t most = self->until;
    if (most == 1 || moment_s >= self->next_s) return most;
    if (moment_s <= self->base_s) return 1;
    int64_t steps = (int64_t)ceil((moment_s - self->base_s) / (self->next_s - self->base_s) * (double)most);
    if (steps < 1) steps = 1;
    if (end_s(self, steps) >= moment_s && (steps == 1 || end_s(self, steps - 1) < moment_s)) return steps;
    int64_t low = 1, high = most;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (end_s(self, middle) < moment_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Act at the end of the step that runs at a moment, unless sooner. */
static void look_at(BatchBox *self, double moment_s) {
    int64_t steps = running_at(self, moment_s);
    if (steps < self->until) {
        self->until = steps;
        self->next_s = end_s(self, steps);
    }
}

static int64_t steps_left(const BatchBox *self, double now_s) {
    int64_t taken_steps = self->step;
    if (self->until) {
        int64_t running = running_at(self, now_s);
        taken_steps += end_s(self, running) <= now_s ? running : running - 1;
    }
    return self->waiting_tokens + self->finish_sum - self->active.count * taken_steps;
}

static void batch_box_arrive(Memory *memory, BatchBox *self, Waiting sentence, int64_t rank) {
    self->waiting += 1;
    self->waiting_tokens += sentence.tgt_len;
    batcher_arrive(memory, self->batchers + sentence.model, &sentence, rank);
    if (self->until) {
        if (self->until > 1 && self->active.count <= self->batchers->batching.threshold) look_at(self, sentence.entry_s);
    } else if (!self->is_joining) {
        self->next_s = sentence.entry_s;
    }
}

static inline int holds_sentences(const BatchBox *self) {
    return self->waiting + self->joining.count + self->active.count > 0;
}

static void batch_box_close(BatchBox *self, double now_s) {
    for (Batcher *batcher = self->batchers; batcher < self->batchers + self->models; batcher++) batcher->let_go = batcher->queued;
    if (self->until) {
        if (self->active.count <= self->batchers->batching.threshold) look_at(self, now_s);
    } else if (!self->is_joining && holds_sentences(self)) {
        self->next_s = now_s;
    }
}

/* Return the sentences that are not encoded yet. */
static int64_t queued_sentences(const BatchBox *self) {
    int64_t queued = 0;
    for (int64_t model = 0; model < self->models; model++) queued += self->batchers[model].queued + self->batchers[model].sorted.count;
    return queued;
}

static void settle(BatchBox *self, double now_s) {
    self->account.steps[self->active.count] += self->until;
    self->account.step_s[self->active.count] += now_s - self->base_s;
    self->step += self->until;
    self->until = 0;
}

static void set_first(BatchBox *self, double first_s) {
    for (Active *sentence = self->active.items; sentence < self->active.items + self->active.count; sentence++)
        if (sentence->is_new) {
            sentence->first_s = first_s;
            sentence->is_new = 0;
        }
    self->new_count = 0;
}

static int64_t position_of(BatchBox *self, int64_t step) {
    while (joins_at(&self->joins, 0)->last <= step) joins_take(&self->joins);
    return step - joins_at(&self->joins, 0)->step;
}

/* Schedule the steps until the next completion; a changed batch begins now. */
static void go_on(BatchBox *self, double now_s) {
    if (self->until) {
        self->until = self->active.items[0].finish_step - self->step;
        self->next_s = end_s(self, self->until);
        return;
    }
    self->position = position_of(self, self->step);
    self->until = self->to_completion = self->active.items[0].finish_step - self->step;
    self->batch = self->active.count;
    self->more_s = self->cost->weighs_sources ? source_s(self->cost, self->batch, longest_source(self, self->step)) : 0.0;
    self->factor = self->factor_sum / (double)self->active.count;
    self->base_s = now_s;
    self->next_s = end_s(self, self->until);
    if (self->new_count) set_first(self, end_s(self, 1));
}

static void encode(Memory *memory, BatchBox *self, int64_t count, double now_s) {
    Queue *ready = &self->batchers[self->model].ready;
    int64_t tokens = 0;
    double factor_sum = 0.0;
    self->src_lens.count = 0;
    for (int64_t place = ready->count - count; place < ready->count; place++) {
        Waiting *sentence = queue_at(ready, place);
        sentence->begin_s = now_s;
        factor_sum += sentence->factor;
        tokens += sentence->src_len;
        APPEND(memory, self->src_lens, sentence->src_len);
    }
    double taken_s = encode_s(self->cost, self->src_lens.items, count) * (factor_sum / (double)count);
    self->account.encodings += 1;
    self->account.encode_s += taken_s;
    self->account.src_tokens += tokens;
    self->account.padded_tokens += self->src_lens.items[count - 1] * count;
    self->is_joining = 1;
    self->joining.count = 0;
    self->next_s = now_s + taken_s;
}

static void begin_joining(Memory *memory, BatchBox *self, int64_t count, double now_s) {
    double taken_s = refill_s(self->cost, count);
    self->account.refills += 1;
    self->account.refill_s += taken_s;
    self->account.sentences += count;
    self->waiting -= count;
    for (int64_t number = 0; number < count; number++) APPEND(memory, self->joining, queue_take(&self->batchers[self->model].ready));
    self->is_joining = 1;
    self->next_s = now_s + taken_s;
}

/* Note that a sentence is done: it is answered now, or when its batch ends. */
static void finish(Memory *memory, BatchBox *self, Active sentence) {
    if (self->batchers->batching.ends_together) {
        APPEND(memory, self->ended, sentence);
    } else {
        APPEND(memory, self->done, sentence);
    }
}

/* Answer the sentences that are done, if they waited for the end of their batch. */
static void end_batch(Memory *memory, BatchBox *self) {
    if (self->active.count) return;
    for (int64_t number = 0; number < self->ended.count; number++) APPEND(memory, self->done, self->ended.items[number]);
    self->ended.count = 0;
}

/* Let the joining sentences join; those without output are done. */
static void join(Memory *memory, BatchBox *self) {
    int64_t count = self->joining.count, step = self->step, last = 0;
    int first = !self->done.count;
    self->is_joining = 0;
    self->joining.count = 0;
    if (!count) return;
    for (int64_t number = 0; number < count; number++) {
        const Waiting *sentence = self->joining.items + number;
        int64_t finish_step = step + sentence->tgt_len;
        Active joined = {finish_step, sentence->request, sentence->begin_s, NAN, sentence->factor, sentence->event, 1};
        if (!sentence->tgt_len) {
            finish(memory, self, joined);
            continue;
        }
        actives_push(memory, &self->active, joined);
        if (self->keeps_sources) sources_push(memory, &self->sources, (Source){sentence->src_len, finish_step});
        if (finish_step > last) last = finish_step;
        self->waiting_tokens -= sentence->tgt_len;
        self->finish_sum += finish_step;
        self->factor_sum += sentence->factor;
        self->new_count += 1;
    }
    if (last) joins_add(memory, &self->joins, (Joined){step, last});
    end_batch(memory, self);
    if (self->done.count && first) {
        self->left_active = self->active.count;
        self->left_waiting = self->waiting;
    }
}

/* Return the move before the next step, of sentences of one model. See `ModelBatcher` in batching/batcher.py. */
static int box_move(Memory *memory, BatchBox *self, double now_s, int64_t longest, int64_t *count) {
    Batcher *batchers = self->batchers;
    if (self->models == 1) return next_move(memory, batchers, self->active.count, now_s, longest, count);
    for (int64_t model = 0; model < self->models; model++) {
        int64_t place = model;
        for (; place > 0 && goes_before(batchers + model, batchers + self->by_age[place - 1], now_s); place--) self->by_age[place] = self->by_age[place - 1];
        self->by_age[place] = model;
    }
    if (self->active.count) {
        if (self->by_age[0] != self->model) return STEP;
        return next_move(memory, batchers + self->model, self->active.count, now_s, longest, count);
    }
    for (int64_t place = 0; place < self->models; place++) {
        int64_t model = self->by_age[place];
        int move = next_move(memory, batchers + model, 0, now_s, longest, count);
        if (move == STEP) continue;
        self->model = model;
        self->cost = self->costs[model];
        return move;
    }
    return STEP;
}

/* Return when the oldest sentence of some model has waited for long enough. */
static double box_due_s(const BatchBox *self) {
    double due_s = INFINITY;
    for (int64_t model = 0; model < self->models; model++) due_s = smaller(due_s, batcher_due_s(self->batchers + model));
    return due_s;
}

/* Act at `next_s`, which becomes later; `done` holds the sentences that are done then. */
static void batch_box_act(Memory *memory, BatchBox *self) {
    double now_s = self->next_s;
    int64_t threshold = self->batchers->batching.threshold, count = 0;
    self->done.count = 0;
    if (self->until) {
        int64_t finish_step = self->step + self->until;
        if (self->active.items[0].finish_step == finish_step) {
            settle(self, now_s);
            while (self->active.count && self->active.items[0].finish_step == finish_step) {
                Active sentence = actives_pop(&self->active);
                self->factor_sum -= sentence.factor;
                self->finish_sum -= finish_step;
                finish(memory, self, sentence);
            }
            end_batch(memory, self);
            self->left_active = self->active.count;
            self->left_waiting = self->waiting;
        }
    } else if (self->is_joining) {
        join(memory, self);
    }
    for (;;) {
        if (!self->waiting || self->active.count > threshold) {
            if (self->active.count)
                go_on(self, now_s);
            else
                self->next_s = INFINITY;
            return;
        }
        int64_t longest = self->keeps_sources ? longest_source(self, self->step) : 0;
        int move = box_move(memory, self, now_s, longest, &count);
        if (move == STEP) {
            double due_s = box_due_s(self);
            if (!self->active.count) {
                self->next_s = due_s;
                return;
            }
            go_on(self, now_s);
            if (now_s < due_s && due_s < self->next_s) look_at(self, due_s);
            return;
        }
        if (self->until) settle(self, now_s);
        if (move == ENCODE)
            encode(memory, self, count, now_s);
        else
            begin_joining(memory, self, count, now_s);
        if (self->next_s > now_s) return;
        join(memory, self);
    }
}

#endif
