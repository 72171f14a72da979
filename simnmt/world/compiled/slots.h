/* One box that decodes in slots. See `SlotBox` in devices/slots.py, which takes every iteration.
 *
 * Here the decoding requests are in a heap by the iteration after which each is done, and while no prompt is read the box jumps
 * from completion to completion. While a slot is free, an arrival makes it act at the end of the running iteration. The caller
 * announces arrivals by `slot_box_arrive` and calls `slot_box_act` at `next_s`. */
#ifndef SIMNMT_WORLD_SLOTS_H
#define SIMNMT_WORLD_SLOTS_H

#include "containers.h"
#include "numbers.h"
#include "settings.h"

/* A request at a box; `left`: tokens of its prompt that are not read; `finish`: the iteration after which it is done. */
typedef struct {
    int64_t request, prompt, output, left, finish;
    double begin_s, first_s;
    void *event;
} Slotted;

static inline int is_done_before(const Slotted *one, const Slotted *other) {
    return one->finish < other->finish || (one->finish == other->finish && one->request < other->request);
}

DEFINE_QUEUE(SlotQueue, Slotted, slotted)
DEFINE_HEAP(Decoding, Slotted, decoding, is_done_before)

typedef struct {
    const SlotSettings *settings;
    SlotQueue waiting, reading; /* for a slot, and in one until the prompt is read */
    Decoding decoding;
    ARRAY(Slotted) done;        /* at the last action */
    double next_s, base_s;      /* when it acts, and when the present iterations began */
    double armed_s;             /* the last moment for which it was put on the clock */
    int64_t taken, until;       /* iterations taken, and under way until it acts; 0: idle */
    int64_t context, prompt;    /* tokens of the decoding requests at `base_s`, and prompt tokens read in the iteration */
    int64_t unread_output, finish_sum; /* of outputs whose prompts are not read, and of the decoding requests */
    int64_t left_active, left_waiting;
    Account account;
} SlotBox;

static void slot_box_begin(Memory *memory, SlotBox *self, const SlotSettings *settings) {
    self->settings = settings;
    self->next_s = self->armed_s = INFINITY;
    self->account.steps = zeroed(memory, settings->slots + 1, sizeof(int64_t));
    self->account.step_s = zeroed(memory, settings->slots + 1, sizeof(double));
}

static inline int is_too_long(const SlotSettings *settings, int64_t prompt, int64_t output) {
    return settings->context && prompt + output > settings->context;
}

/* Return when some of the present iterations have ended. See `SlotsCost.iterations_s`. */
static double iterations_end_s(const SlotBox *self, int64_t iterations) {
    const SlotSettings *cost = self->settings;
    double count = (double)iterations, decoding = (double)self->decoding.count;
    double each_s = cost->step_s[self->decoding.count] + cost->s_per_context_token * (double)self->context + cost->s_per_prompt_token * (double)self->prompt;
    return self->base_s + (count * each_s + cost->s_per_context_token * (decoding * (0.5 * count * (count - 1.0))));
}

/* Return the iteration that runs at a moment: the first of the present ones that ends then or later, up to `until`. */
static int64_t iteration_at(const SlotBox *self, double moment_s) {
    int64_t low = 1, high = self->until;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (iterations_end_s(self, middle) < moment_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Return the tokens that the requests here still take, one by one, before the iteration that runs at a moment. */
static int64_t tokens_left(const SlotBox *self, double now_s) {
    int64_t taken = self->taken + (self->until ? iteration_at(self, now_s) - 1 : 0);
    return self->unread_output + self->finish_sum - self->decoding.count * taken;
}

static void slot_box_arrive(Memory *memory, SlotBox *self, Slotted request, double entry_s) {
    slotted_add(memory, &self->waiting, request);
    self->unread_output += request.output;
    if (!self->until) {
        self->next_s = entry_s;
    } else if (self->until > 1 && self->decoding.count < self->settings->slots) {
        self->until = iteration_at(self, entry_s);
        self->next_s = iterations_end_s(self, self->until);
    }
}

/* End the iterations under way; `done` holds the requests that are done. */
static void end_iterations(Memory *memory, SlotBox *self, double now_s) {
    int64_t active = self->decoding.count;
    self->account.steps[active] += self->until;
    self->account.step_s[active] += now_s - self->base_s;
    self->taken += self->until;
    self->context += self->until * active;
    while (self->decoding.count && self->decoding.items[0].finish == self->taken) APPEND(memory, self->done, decoding_pop(&self->decoding));
    for (int64_t number = 0; number < self->done.count; number++) {
        self->context -= self->done.items[number].prompt + self->done.items[number].output;
        self->finish_sum -= self->taken;
    }
    while (self->reading.count && !slotted_at(&self->reading, 0)->left) {
        Slotted request = slotted_take(&self->reading);
        request.first_s = now_s;
        request.finish = self->taken + request.output - 1;
        self->unread_output -= request.output;
        if (request.output == 1) {
            APPEND(memory, self->done, request);
            continue;
        }
        self->context += request.prompt + 1;
        self->finish_sum += request.finish;
        decoding_push(memory, &self->decoding, request);
    }
    self->left_active = self->decoding.count + self->reading.count;
    self->left_waiting = self->waiting.count;
}

/* Let waiting requests take the free slots. */
static void admit_to_slots(Memory *memory, SlotBox *self, double now_s) {
    int64_t free = self->settings->slots - self->decoding.count - self->reading.count;
    if (free > self->waiting.count) free = self->waiting.count;
    self->account.refills += free > 0;
    self->account.sentences += free;
    for (; free > 0; free--) {
        Slotted request = slotted_take(&self->waiting);
        request.begin_s = now_s;
        request.left = request.prompt - self->settings->cached_prefix;
        if (request.left < 1) request.left = 1;
        slotted_add(memory, &self->reading, request);
    }
}

/* Act at `next_s`, which becomes later. */
static void slot_box_act(Memory *memory, SlotBox *self) {
    double now_s = self->next_s;
    self->done.count = 0;
    if (self->until) end_iterations(memory, self, now_s);
    admit_to_slots(memory, self, now_s);
    self->base_s = now_s;
    self->prompt = self->until = 0;
    if (!self->decoding.count && !self->reading.count) {
        self->next_s = INFINITY;
        return;
    }
    int64_t room = self->settings->chunk - self->decoding.count;
    for (int64_t place = 0; place < self->reading.count && self->prompt < room; place++) {
        Slotted *request = slotted_at(&self->reading, place);
        int64_t tokens = request->left < room - self->prompt ? request->left : room - self->prompt;
        request->left -= tokens;
        self->prompt += tokens;
    }
    self->account.encodings += self->prompt > 0;
    self->account.src_tokens += self->prompt;
    self->account.padded_tokens += self->prompt;
    self->until = self->prompt ? 1 : self->decoding.items[0].finish - self->taken;
    self->next_s = iterations_end_s(self, self->until);
}

#endif
