/* A decider's knowledge of its targets. See deciders.py. */
#ifndef SIMNMT_WORLD_DECIDERS_H
#define SIMNMT_WORLD_DECIDERS_H

#include "world.h"

/* `number`: among all deciders, of which it is number `in_group` of its group. */
static void decider_begin(World *world, int64_t number, int64_t group, int64_t in_group) {
    Decider *self = world->deciders + number;
    const WorldSettings *settings = &world->settings;
    const DeciderGroup *of_group = self->group = settings->groups + group;
    int64_t targets = settings->targets;
    Memory *memory = world->memory;
    self->number = in_group;
    if (of_group->pool.kind == FIFO_POOL)
        fifo_begin(memory, &self->device, 1, of_group->pool.workers);
    if (of_group->pool.kind == FIFO_POOL && of_group->pool.max_waiting) self->room = rooms_new(memory, 1, of_group->pool.max_waiting);
    if (of_group->pool.kind != FIFO_POOL)
        self->pool = world->pools + group;
    self->estimates = zeroed(memory, targets, sizeof(TransferEstimate));
    self->views = zeroed(memory, targets, sizeof(Views));
    self->delay_s = zeroed(memory, targets, sizeof(double));
    self->reported_wait_s = zeroed(memory, targets, sizeof(double));
    for (int64_t target = 0; target < targets; target++) {
        Views *views = self->views + target;
        if (of_group->parallel[target]) views->backlog = backlog_new(memory, of_group->parallel[target]);
        if (of_group->batch_views[target] != NULL) views->batch = batch_view_new(memory, of_group->batch_views[target]);
        if (of_group->plan_views[target] != NULL) views->plan = plan_view_new(memory, of_group->plan_views[target]);
        self->has_views |= views->backlog != NULL || views->batch != NULL || views->plan != NULL;
        self->reported_wait_s[target] = NAN;
        if (!target) continue;
        estimate_begin(memory, self->estimates + target, settings->estimates + number * (targets - 1) + target - 1);
        self->delay_s[target] = self->estimates[target].value_s;
    }
    self->only_heard = !of_group->true_transfer && !of_group->true_backlog && !self->has_views;
    if (of_group->cache != NULL && settings->sentence != NULL) self->cache = cache_new(memory, of_group->cache);
    self->notes_executions = self->room != NULL || self->cache != NULL || settings->deferred_exe_s != NULL;
}

static inline void learn(Decider *self, int64_t target, double transfer_s, double at_s, double wait_s) {
    estimate_learn(self->estimates + target, transfer_s, at_s);
    self->delay_s[target] = self->estimates[target].value_s;
    self->reported_wait_s[target] = wait_s;
}

/* Let the client of a request receive its answer a little after the decider, think, and ask again. */
static INLINED void answered(World *world, int64_t request, double received_s) {
    const Clients *clients = world->settings.clients;
    note_moment(world, received_s);
    if (clients == NULL) return;
    int64_t number = clients->count + request;
    double at_s = received_s + clients->back_s[request] + clients->think_s[number];
    clock_push(world->memory, &world->clock, (Entry){at_s, order_of(ASKS, number), NULL});
}

/* Record a request that is answered without a decision; `at_s`: when its decider has the answer. */
static void record_hit(World *world, const SentenceCache *cache, int64_t request, int hit, double at_s) {
    WorldSettings *settings = &world->settings;
    const double *came_s = settings->decided_s == NULL ? settings->arrival_s : settings->decided_s;
    double hit_s = cache->settings->hit_s, waited_s = at_s - came_s[request];
    settings->hit[request] = (int8_t)hit;
    settings->target[request] = 0; /* an earlier try may have had another */
    if (settings->decision_regret_s != NULL) settings->decision_regret_s[request] = NAN;
    settings->queue_s[request] = waited_s;
    settings->execution_s[request] = hit_s;
    settings->estimate_s[request] = settings->measured_at_s[request] = NAN;
    if (settings->first_token_s != NULL) settings->first_token_s[request] = waited_s + hit_s;
    note_moment(world, at_s + hit_s);
}

/* Keep the translation of a request from when its answer is received, which is known now, and record those that wait for it. */
static KEPT_APART void cache_answer(World *world, SentenceCache *cache, int64_t request, double received_s) {
    clock_push(world->memory, &cache->answers, (Entry){received_s, request, NULL});
    if (!cache->settings->coalesces) return;
    CacheEntry *entry = cache->entries + cache_find(cache, world->settings.sentence[request]);
    entry->at_s = received_s;
    while (entry->waiting != NOTHING) record_hit(world, cache, cache_stop_waiting(cache, &entry->waiting), JOINED, received_s);
}

/* Let the answer to a request be received at a moment, or decide on the request again then if the policy does; `is_last`: it does
 * not. */
static RARE void receive(World *world, Decider *self, int64_t request, int is_last, double received_s) {
    if (!is_last && world->settings.deferred_exe_s != NULL) {
        clock_push(world->memory, &world->clock, (Entry){received_s, order_of(DEFERS, request), NULL});
        return;
    }
    answered(world, request, received_s);
    if (self->cache != NULL) cache_answer(world, self->cache, request, received_s);
}

/* Keep the translations whose answers were received until now. */
static inline void cache_hear(World *world, SentenceCache *cache, double now_s) {
    while (cache->answers.count && cache->answers.items[0].at_s <= now_s) {
        Entry answer = clock_pop(&cache->answers);
        cache_insert(world->memory, cache, world->settings.sentence[answer.order], answer.at_s);
    }
}

/* Return whether a request needs no translation of its own; note that it is translated if it does. */
static KEPT_APART int is_cached(World *world, SentenceCache *cache, int64_t request, double now_s) {
    int64_t sentence = world->settings.sentence[request];
    int32_t place;
    cache_hear(world, cache, now_s);
    int hit = cache_look_up(cache, sentence, now_s, &place);
    if (hit == NO_HIT)
        cache_begin(world->memory, cache, sentence);
    else if (hit == JOINED && cache->entries[place].at_s == INFINITY)
        cache_wait(world->memory, cache, place, request);
    else
        record_hit(world, cache, request, hit, hit == JOINED ? cache->entries[place].at_s : now_s);
    return hit != NO_HIT;
}

/* Learn from the answers received since the last decision. */
static inline void hear(World *world, Decider *self, double now_s) {
    while (self->answers.count && self->answers.items[0].at_s <= now_s) {
        Entry answer = clock_pop(&self->answers);
        RequestEvent *event = answer.event;
        double received_s = answer.at_s, wait_s = event->wait_s;
        const Views *views = self->views + event->target;
        learn(self, event->target, event->transfer_s, received_s, wait_s);
        if (views->plan != NULL && event->target)
            plan_view_reported(views->plan, answer.order, event->believed, event->report, received_s - event->transfer_s / 2);
        if (views->backlog != NULL) backlog_reported(views->backlog, event->sent_as, wait_s);
        if (views->batch != NULL)
            batch_view_reported(views->batch, event->sent_as, wait_s, event->report, event->left_waiting, received_s);
        free_event(world, event);
    }
}

/* Forget a request whose answer will not be heard, of a target that streams no model; `sent_as`: what `announce` returned. */
static void forget(Decider *self, int64_t target, int64_t sent_as) {
    const Views *views = self->views + target;
    if (views->backlog != NULL) backlog_lost(views->backlog, sent_as);
    if (views->batch != NULL) batch_view_lost(views->batch, sent_as);
}

/* Return whether a decider hears of the requests that its own device executes. */
static inline int hears_itself(const Decider *self) { return self->views[0].backlog != NULL || self->views[0].batch != NULL; }

/* Return the moment at which a request that is sent now is estimated to reach a target. */
static inline double estimated_entry_s(const Decider *self, int64_t target, double now_s) {
    return now_s + self->estimates[target].value_s / 2;
}

/* Return the estimated seconds that a target's state adds to the plane, for a request that reaches it at a moment; the state of
 * its own device is known. */
static double beyond_s(const Decider *self, const Block *block, int64_t target, int64_t in_block, double entry_s) {
    const double *const *by_state = block->beyond[target];
    const PlanView *plan = self->views[target].plan;
    if (target) return plan_view_added_s(plan, entry_s, by_state, in_block);
    const StreamBox *own = self->pool->streams + self->number;
    return by_state[lifecycle_next(plan->settings, own->state, entry_s - own->free_s)][in_block];
}

static void add_views(const World *world, const Decider *self, const Block *block, int64_t in_block, double *delay_s, double now_s) {
    for (int64_t target = 0; target < world->settings.targets; target++) {
        const Views *views = self->views + target;
        double entry_s = estimated_entry_s(self, target, now_s);
        if (views->backlog != NULL) delay_s[target] += backlog_added_s(views->backlog, entry_s);
        if (views->batch != NULL) delay_s[target] += batch_view_added_s(views->batch, now_s, block->expected[target][in_block]);
        if (views->plan != NULL) delay_s[target] += beyond_s(self, block, target, in_block, entry_s);
    }
}

/* Note a request that is sent; return its number in the view of the target, and set the state that it is estimated to meet. */
static int64_t announce(World *world, Decider *self, const Block *block, int64_t target, int64_t in_block, double now_s,
                        int32_t *believed) {
    const Views *views = self->views + target;
    double entry_s = estimated_entry_s(self, target, now_s), expected = 0.0;
    int64_t sent_as = 0;
    if (views->backlog != NULL || views->batch != NULL) expected = block->expected[target][in_block];
    if (views->plan != NULL) expected += beyond_s(self, block, target, in_block, entry_s);
    if (views->backlog != NULL) sent_as = backlog_sent(world->memory, views->backlog, entry_s, expected);
    if (views->batch != NULL) sent_as = batch_view_sent(world->memory, views->batch, now_s, expected);
    *believed = views->plan != NULL && target ? (int32_t)plan_view_sent(views->plan, block->first + in_block, entry_s) : 0;
    return sent_as;
}

#endif
