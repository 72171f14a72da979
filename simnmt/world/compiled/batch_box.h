/* One box that decodes sentences in batches. See `BatchBox` in devices/batch.py, which takes every step.
 *
 * Here the cost is not per step: the active sentences are in a heap by the step after which each is done, and the box jumps from
 * completion to completion. While no more than the threshold are active, an arrival makes it act at the end of the running
 * step. The caller announces arrivals by `batch_box_arrive` and calls `batch_box_act` at `next_s`. */
#ifndef SIMNMT_WORLD_BATCH_BOX_H
#define SIMNMT_WORLD_BATCH_BOX_H

#include "batch_cost.h"
#include "batcher.h"
#include <math.h>

#define TIMELINE 2000

enum { NOBODY, BUSY }; /* what joins: nobody; or sentences are encoded, join, or are run down */

/* An active sentence, in a heap by (step after which it is done, request). */
typedef struct {
    int64_t finish_step, request, src_len;
    double entry_s, begin_s, first_s, factor;
    void *event;
    int is_new; /* whether it has not taken its first step */
} Active;

typedef struct {
    int64_t src_len, finish_step;
} Source;

typedef struct {
    int64_t step, last;
} Joined;

typedef struct {
    double entry_s, begin_s, first_s, finish_s;
    int64_t request;
    void *event;
} Finished;

typedef struct {
    const BatchCost *cost;
    Batcher batcher;
    double next_s, base_s, factor, factor_sum, more_s;
    int64_t left_active, left_waiting;
    int64_t waiting, waiting_tokens, finish_sum; /* sentences and steps of those that are neither active nor joining */
    Active *active;
    int64_t active_count, active_capacity;
    Source *sources;
    int64_t source_count, source_capacity;
    Joined *joined;
    int64_t joined_first, joined_count, joined_capacity;
    Waiting *joining;
    int64_t joining_count, joining_capacity, joining_is;
    int64_t step, position, batch, to_completion, until, new_count;
    int64_t *src_lens;
    int64_t src_len_capacity;
    Finished *done;
    int64_t done_count, done_capacity;
    int keeps_sources;
    Account account;
} BatchBox;

static void batch_box_begin(Memory *memory, BatchBox *self, const Batching *batching, const BatchCost *cost) {
    memset(self, 0, sizeof *self);
    self->cost = cost;
    self->batcher.batching = *batching;
    self->next_s = INFINITY;
    self->factor = 1.0;
    self->keeps_sources = cost->weighs_sources || batching->padded_tokens;
    self->account.steps = zeroed(memory, batching->size + 1, sizeof(int64_t));
    self->account.step_s = zeroed(memory, batching->size + 1, sizeof(double));
}

static void batch_box_free(BatchBox *self) {
    batcher_free(&self->batcher);
    free(self->active);
    free(self->sources);
    free(self->joined);
    free(self->joining);
    free(self->src_lens);
    free(self->done);
    free(self->account.steps);
    free(self->account.step_s);
    free(self->account.timeline);
}

static inline int ends_before(const Active *one, const Active *other) {
    return one->finish_step < other->finish_step || (one->finish_step == other->finish_step && one->request < other->request);
}

static void active_push(Memory *memory, BatchBox *self, Active sentence) {
    GROW(memory, self->active, self->active_count, self->active_capacity);
    Active *heap = self->active;
    int64_t place = self->active_count++;
    for (; place > 0 && ends_before(&sentence, heap + (place - 1) / 2); place = (place - 1) / 2) heap[place] = heap[(place - 1) / 2];
    heap[place] = sentence;
}

static Active active_pop(BatchBox *self) {
    Active *heap = self->active, first = heap[0], last = heap[--self->active_count];
    int64_t place = 0, count = self->active_count;
    for (int64_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && ends_before(heap + child + 1, heap + child)) child += 1;
        if (!ends_before(heap + child, &last)) break;
        heap[place] = heap[child];
        place = child;
    }
    if (count) heap[place] = last;
    return first;
}

/* The longest source first; of equal ones that which is done first. */
static inline int is_longer(Source one, Source other) {
    return one.src_len > other.src_len || (one.src_len == other.src_len && one.finish_step < other.finish_step);
}

static void source_push(Memory *memory, BatchBox *self, Source source) {
    GROW(memory, self->sources, self->source_count, self->source_capacity);
    Source *heap = self->sources;
    int64_t place = self->source_count++;
    for (; place > 0 && is_longer(source, heap[(place - 1) / 2]); place = (place - 1) / 2) heap[place] = heap[(place - 1) / 2];
    heap[place] = source;
}

static void source_pop(BatchBox *self) {
    Source *heap = self->sources, last = heap[--self->source_count];
    int64_t place = 0, count = self->source_count;
    for (int64_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && is_longer(heap[child + 1], heap[child])) child += 1;
        if (!is_longer(heap[child], last)) break;
        heap[place] = heap[child];
        place = child;
    }
    if (count) heap[place] = last;
}

/* Return the tokens of the longest active source after a step; 0 if no sentence is active. */
static int64_t longest_source(BatchBox *self, int64_t step) {
    while (self->source_count && self->sources[0].finish_step <= step) source_pop(self);
    return self->source_count ? self->sources[0].src_len : 0;
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
    return self->waiting_tokens + self->finish_sum - self->active_count * taken_steps;
}

static void batch_box_arrive(Memory *memory, BatchBox *self, Waiting sentence) {
    self->waiting += 1;
    self->waiting_tokens += sentence.tgt_len;
    queue_add(memory, &self->batcher.waiting, sentence);
    if (self->until) {
        if (self->until > 1 && self->active_count <= self->batcher.batching.threshold) look_at(self, sentence.entry_s);
    } else if (self->joining_is == NOBODY) {
        self->next_s = sentence.entry_s;
    }
}

static inline int holds_sentences(const BatchBox *self) {
    return batcher_waiting(&self->batcher) + self->joining_count + self->active_count > 0;
}

static void batch_box_close(BatchBox *self, double now_s) {
    self->batcher.let_go = self->batcher.waiting.count;
    if (self->until) {
        if (self->active_count <= self->batcher.batching.threshold) look_at(self, now_s);
    } else if (self->joining_is == NOBODY && holds_sentences(self)) {
        self->next_s = now_s;
    }
}

static void add_done(Memory *memory, BatchBox *self, Finished finished) {
    GROW(memory, self->done, self->done_count, self->done_capacity);
    self->done[self->done_count++] = finished;
}

static void note_steps(Memory *memory, Account *account, int64_t before, int64_t active, int64_t steps, double seconds) {
    account->steps[active] += steps;
    account->step_s[active] += seconds;
    if (active == account->last_active || account->changes == TIMELINE) return;
    account->last_active = active;
    int64_t numbers = 2 * account->changes;
    if (numbers == account->change_capacity) {
        account->change_capacity = numbers ? 2 * numbers : 16;
        account->timeline = resized(memory, account->timeline, account->change_capacity, sizeof(int64_t));
    }
    account->timeline[numbers] = before;
    account->timeline[numbers + 1] = active;
    account->changes += 1;
}

static void settle(Memory *memory, BatchBox *self, double now_s) {
    int64_t steps = self->until;
    note_steps(memory, &self->account, self->step, self->active_count, steps, now_s - self->base_s);
    self->step += steps;
    self->until = 0;
}

static void set_first(BatchBox *self, double first_s) {
    for (int64_t place = 0; place < self->active_count; place++)
        if (self->active[place].is_new) {
            self->active[place].first_s = first_s;
            self->active[place].is_new = 0;
        }
    self->new_count = 0;
}

static int64_t position_of(BatchBox *self, int64_t step) {
    while (self->joined[self->joined_first].last <= step) self->joined_first += 1;
    return step - self->joined[self->joined_first].step;
}

/* Schedule the steps until the next completion; a changed batch begins now. */
static void go_on(BatchBox *self, double now_s) {
    if (self->until) {
        self->until = self->active[0].finish_step - self->step;
        self->next_s = end_s(self, self->until);
        return;
    }
    self->position = position_of(self, self->step);
    self->until = self->to_completion = self->active[0].finish_step - self->step;
    self->batch = self->active_count;
    if (self->cost->weighs_sources) self->more_s = source_s(self->cost, self->batch, longest_source(self, self->step));
    self->factor = self->factor_sum / (double)self->active_count;
    self->base_s = now_s;
    self->next_s = end_s(self, self->until);
    if (self->new_count) set_first(self, end_s(self, 1));
}

static void encode(Memory *memory, BatchBox *self, int64_t count, double now_s) {
    Queue *ready = &self->batcher.ready;
    int64_t tokens = 0;
    double factor_sum = 0.0;
    if (self->src_len_capacity < count) {
        self->src_lens = resized(memory, self->src_lens, count, sizeof(int64_t));
        self->src_len_capacity = count;
    }
    for (int64_t number = 0; number < count; number++) {
        Waiting *sentence = ready->items + ready->first + ready->count - count + number;
        sentence->begin_s = now_s;
        factor_sum += sentence->factor;
        tokens += self->src_lens[number] = sentence->src_len;
    }
    double taken_s = encode_s(self->cost, self->src_lens, count) * (factor_sum / (double)count);
    self->account.encodings += 1;
    self->account.encode_s += taken_s;
    self->account.src_tokens += tokens;
    self->account.padded_tokens += self->src_lens[count - 1] * count;
    self->joining_is = BUSY;
    self->joining_count = 0;
    self->next_s = now_s + taken_s;
}

static void begin_joining(Memory *memory, BatchBox *self, int64_t count, double now_s) {
    double taken_s = refill_s(self->cost, count);
    self->account.refills += 1;
    self->account.refill_s += taken_s;
    self->account.sentences += count;
    self->waiting -= count;
    if (self->joining_capacity < count) {
        self->joining = resized(memory, self->joining, count, sizeof(Waiting));
        self->joining_capacity = count;
    }
    for (int64_t number = 0; number < count; number++) self->joining[number] = queue_take(&self->batcher.ready);
    self->joining_count = count;
    self->joining_is = BUSY;
    self->next_s = now_s + taken_s;
}

/* Let the joining sentences join; those without output are done. */
static void join(Memory *memory, BatchBox *self, double now_s) {
    int64_t count = self->joining_count, step = self->step, last = 0;
    int first = !self->done_count;
    self->joining_is = NOBODY;
    self->joining_count = 0;
    if (!count) return;
    for (int64_t number = 0; number < count; number++) {
        const Waiting *sentence = self->joining + number;
        if (!sentence->tgt_len) {
            add_done(memory, self, (Finished){sentence->entry_s, sentence->begin_s, NAN, now_s, sentence->request, sentence->event});
            continue;
        }
        int64_t finish_step = step + sentence->tgt_len;
        active_push(memory, self, (Active){finish_step, sentence->request, sentence->src_len, sentence->entry_s, sentence->begin_s, NAN, sentence->factor, sentence->event, 1});
        if (self->keeps_sources) source_push(memory, self, (Source){sentence->src_len, finish_step});
        if (finish_step > last) last = finish_step;
        self->waiting_tokens -= sentence->tgt_len;
        self->finish_sum += finish_step;
        self->factor_sum += sentence->factor;
        self->new_count += 1;
    }
    if (last) {
        if (2 * self->joined_first >= self->joined_count) { /* mostly gone: move the rest to the front */
            self->joined_count -= self->joined_first;
            if (self->joined_count) memmove(self->joined, self->joined + self->joined_first, (size_t)self->joined_count * sizeof(Joined));
            self->joined_first = 0;
        }
        GROW(memory, self->joined, self->joined_count, self->joined_capacity);
        self->joined[self->joined_count++] = (Joined){step, last};
    }
    if (self->done_count && first) {
        self->left_active = self->active_count;
        self->left_waiting = self->waiting;
    }
}

/* Act at `next_s`, which becomes later; `done` holds the sentences that are done then. */
static void batch_box_act(Memory *memory, BatchBox *self) {
    double now_s = self->next_s;
    int64_t threshold = self->batcher.batching.threshold, count = 0;
    self->done_count = 0;
    if (self->until) {
        int64_t finish_step = self->step + self->until;
        if (self->active[0].finish_step == finish_step) {
            settle(memory, self, now_s);
            while (self->active_count && self->active[0].finish_step == finish_step) {
                Active sentence = active_pop(self);
                self->factor_sum -= sentence.factor;
                add_done(memory, self, (Finished){sentence.entry_s, sentence.begin_s, sentence.first_s, now_s, sentence.request, sentence.event});
            }
            self->finish_sum -= finish_step * self->done_count;
            self->left_active = self->active_count;
            self->left_waiting = self->waiting;
        }
    } else if (self->joining_is == BUSY) {
        join(memory, self, now_s);
    }
    for (;;) {
        if (!self->waiting || self->active_count > threshold) {
            if (self->active_count)
                go_on(self, now_s);
            else
                self->next_s = INFINITY;
            return;
        }
        int64_t longest = self->keeps_sources ? longest_source(self, self->step) : 0;
        int move = next_move(memory, &self->batcher, self->active_count, now_s, longest, &count);
        if (move == STEP) {
            double due_s = batcher_due_s(&self->batcher);
            if (!self->active_count) {
                self->next_s = due_s;
                return;
            }
            go_on(self, now_s);
            if (now_s < due_s && due_s < self->next_s) look_at(self, due_s);
            return;
        }
        if (self->until) settle(memory, self, now_s);
        if (move == ENCODE)
            encode(memory, self, count, now_s);
        else
            begin_joining(memory, self, count, now_s);
        if (self->next_s > now_s) return;
        join(memory, self, now_s);
    }
}

#endif
