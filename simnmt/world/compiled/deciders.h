/* A decider's knowledge of its targets. See deciders.py. */
#ifndef SIMNMT_WORLD_DECIDERS_H
#define SIMNMT_WORLD_DECIDERS_H

#include "world.h"

static inline int is_heard_before(const Answer *one, const Answer *other) {
    return one->received_s < other->received_s || (one->received_s == other->received_s && one->request < other->request);
}

static void add_answer(Memory *memory, Decider *self, Answer answer) {
    GROW(memory, self->answers, self->answer_count, self->answer_capacity);
    Answer *heap = self->answers;
    int64_t place = self->answer_count++;
    for (; place > 0 && is_heard_before(&answer, heap + (place - 1) / 2); place = (place - 1) / 2) heap[place] = heap[(place - 1) / 2];
    heap[place] = answer;
}

static Answer pop_answer(Decider *self) {
    Answer *heap = self->answers, first = heap[0], last = heap[--self->answer_count];
    int64_t place = 0, count = self->answer_count;
    for (int64_t child = 1; child < count; child = 2 * place + 1) {
        if (child + 1 < count && is_heard_before(heap + child + 1, heap + child)) child += 1;
        if (!is_heard_before(heap + child, &last)) break;
        heap[place] = heap[child];
        place = child;
    }
    if (count) heap[place] = last;
    return first;
}

static void learn(Decider *self, int64_t target, double transfer_s, double at_s, double wait_s) {
    estimate_learn(self->estimates + target, transfer_s, at_s);
    self->delay_s[target] = self->estimates[target].value_s;
    self->reported_wait_s[target] = wait_s;
}

/* Let the client of a request receive its answer a little after the decider, think, and ask again. */
static void answered(World *world, int64_t request, double received_s) {
    const Clients *clients = world->settings.clients;
    note_moment(world, received_s);
    if (clients == NULL) return;
    int64_t number = clients->count + request;
    double at_s = received_s + clients->back_s[request] + clients->think_s[number];
    clock_push(&world->memory, &world->clock, at_s, order_of(ASKS, number), (void *)(intptr_t)clients->client_of[request]);
}

static inline int has_view(const Decider *self, int64_t target) {
    return (self->views != NULL && self->views[target].parallel) || (self->batch_views != NULL && self->batch_views[target].settings != NULL);
}

/* Learn from the answers received since the last decision; `waited_s`: by request, the reported wait. */
static void hear(Decider *self, double now_s, const double *waited_s) {
    while (self->answer_count && self->answers[0].received_s <= now_s) {
        Answer answer = pop_answer(self);
        double wait_s = waited_s[answer.request];
        learn(self, answer.target, answer.transfer_s, answer.received_s, wait_s);
        if (self->plans != NULL && answer.target && self->plans[answer.target].settings != NULL)
            plan_view_reported(self->plans + answer.target, answer.request, answer.believed, answer.report, answer.received_s - answer.transfer_s / 2);
        if (!has_view(self, answer.target)) continue;
        if (self->views != NULL && self->views[answer.target].parallel)
            backlog_reported(self->views + answer.target, answer.sent_as, wait_s);
        else
            batch_view_reported(self->batch_views + answer.target, answer.sent_as, wait_s, answer.report, answer.left_waiting, answer.received_s);
    }
}

/* Return the estimated seconds that a target's state adds to the plane, for a request that reaches it at a moment; the state of
 * its own device is known. */
static double beyond_s(const World *world, const Decider *self, const Block *block, int64_t target, int64_t in_block, double entry_s) {
    const double *const *by_state = block->beyond[target];
    if (target) return plan_view_added_s(self->plans + target, entry_s, by_state, in_block);
    const StreamBox *own = world->pools[0].streams + self->number;
    return by_state[lifecycle_next(self->plans[0].settings, own->state, entry_s - own->free_s)][in_block];
}

static void add_views(const World *world, Decider *self, const Block *block, int64_t in_block, double *delay_s, double now_s) {
    for (int64_t target = 0; target < world->settings.targets; target++) {
        if (!has_view(self, target)) continue;
        if (self->views != NULL && self->views[target].parallel)
            delay_s[target] += backlog_added_s(self->views + target, now_s + self->estimates[target].value_s / 2);
        else
            delay_s[target] += batch_view_added_s(self->batch_views + target, now_s, block->expected[target][in_block]);
    }
    for (int64_t target = 0; self->plans != NULL && target < world->settings.targets; target++)
        if (self->plans[target].settings != NULL)
            delay_s[target] += beyond_s(world, self, block, target, in_block, now_s + self->estimates[target].value_s / 2);
}

/* Note a request that is sent; return its number in the view of the target, and set the state that it is estimated to meet. */
static int64_t announce(World *world, Decider *self, const Block *block, int64_t target, int64_t in_block, double now_s, int32_t *believed) {
    double entry_s = now_s + self->estimates[target].value_s / 2;
    int64_t sent_as = 0;
    int has_plan = self->plans != NULL && self->plans[target].settings != NULL;
    *believed = 0;
    if (has_view(self, target)) {
        double expected = block->expected[target][in_block];
        if (has_plan) expected += beyond_s(world, self, block, target, in_block, entry_s);
        if (self->views == NULL || !self->views[target].parallel)
            sent_as = batch_view_sent(&world->memory, self->batch_views + target, now_s, expected);
        else
            sent_as = backlog_sent(&world->memory, self->views + target, entry_s, expected);
    }
    if (has_plan && target) *believed = (int32_t)plan_view_sent(self->plans + target, block->first + in_block, entry_s);
    return sent_as;
}

#endif
