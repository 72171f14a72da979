/* The run: back to back, open loop and closed loop. */
#ifndef SIMNMT_WORLD_SIMULATION_H
#define SIMNMT_WORLD_SIMULATION_H

#include "routes.h"
#include "traffic.h"

static void begin_decider(World *world, Decider *self, int64_t number) {
    const WorldSettings *settings = &world->settings;
    Memory *memory = &world->memory;
    int has_views = 0;
    self->number = number;
    fifo_begin(&self->device, settings->workers);
    self->estimates = zeroed(memory, settings->targets, sizeof(TransferEstimate));
    self->delay_s = zeroed(memory, settings->targets, sizeof(double));
    self->reported_wait_s = zeroed(memory, settings->targets, sizeof(double));
    for (int64_t target = 0; target < settings->targets; target++) self->reported_wait_s[target] = NAN;
    for (int64_t target = 1; target < settings->targets; target++) {
        const EstimateSettings *of_target = settings->estimates + number * (settings->targets - 1) + target - 1;
        estimate_begin(memory, self->estimates + target, of_target);
        self->delay_s[target] = self->estimates[target].value_s;
    }
    for (int64_t target = 0; target < settings->targets; target++) has_views |= settings->parallel[target] > 0;
    if (!has_views) return;
    self->views = zeroed(memory, settings->targets, sizeof(BacklogView));
    for (int64_t target = 0; target < settings->targets; target++)
        if (settings->parallel[target]) backlog_begin(self->views + target, settings->parallel[target]);
}

static void begin_batch_views(World *world, Decider *self) {
    const WorldSettings *settings = &world->settings;
    if (settings->batch_views == NULL) return;
    self->batch_views = zeroed(&world->memory, settings->targets, sizeof(BatchView));
    for (int64_t target = 0; target < settings->targets; target++)
        if (settings->batch_views[target] != NULL) batch_view_begin(self->batch_views + target, settings->batch_views[target]);
}

static void begin_plan_views(World *world, Decider *self) {
    const WorldSettings *settings = &world->settings;
    if (settings->plan_views == NULL) return;
    self->plans = zeroed(&world->memory, settings->targets, sizeof(PlanView));
    for (int64_t target = 0; target < settings->targets; target++)
        if (settings->plan_views[target] != NULL) plan_view_begin(&world->memory, self->plans + target, settings->plan_views[target]);
}

static void begin_batch_boxes(Memory *memory, Pool *self) {
    int64_t boxes = self->settings.boxes;
    self->batches = zeroed(memory, boxes, sizeof(BatchBox));
    self->armed_s = zeroed(memory, boxes, sizeof(double));
    for (int64_t box = 0; box < boxes; box++) {
        batch_box_begin(memory, self->batches + box, &self->settings.batching, self->settings.cost);
        self->armed_s[box] = INFINITY;
    }
}

static void begin_stream_boxes(Memory *memory, Pool *self) {
    self->streams = zeroed(memory, self->settings.boxes, sizeof(StreamBox));
    self->trial_streams = zeroed(memory, self->settings.boxes, sizeof(StreamBox));
    for (int64_t box = 0; box < self->settings.boxes; box++) {
        stream_begin(self->streams + box);
        self->streams[box].counts = zeroed(memory, self->settings.stream->states, sizeof(int64_t));
    }
}

static void begin_pool(World *world, Pool *self, const PoolSettings *settings) {
    Memory *memory = &world->memory;
    self->settings = *settings;
    self->trial_of = zeroed(memory, settings->boxes, sizeof(int64_t));
    if (settings->kind == BATCH_POOL) {
        begin_batch_boxes(memory, self);
        return;
    }
    if (settings->kind == STREAM_POOL) {
        begin_stream_boxes(memory, self);
        return;
    }
    if (settings->kind == LEAST_WORK_POOL) {
        least_work_begin(memory, &self->least_work, settings->boxes, settings->workers);
        return;
    }
    self->boxes = zeroed(memory, settings->boxes, sizeof(FifoBox));
    self->trial_boxes = zeroed(memory, settings->boxes, sizeof(FifoBox));
    for (int64_t box = 0; box < settings->boxes; box++) fifo_begin(self->boxes + box, settings->workers);
}

static void world_begin(World *world, const WorldSettings *settings) {
    Memory *memory = &world->memory;
    world->settings = *settings;
    world->waits_of = -1;
    world->delay_s = zeroed(memory, settings->targets, sizeof(double));
    world->waits_s = zeroed(memory, settings->targets, sizeof(double));
    world->totals_s = zeroed(memory, settings->targets, sizeof(double));
    world->deciders = zeroed(memory, settings->deciders, sizeof(Decider));
    for (int64_t number = 0; number < settings->deciders; number++) {
        begin_decider(world, world->deciders + number, number);
        begin_batch_views(world, world->deciders + number);
        begin_plan_views(world, world->deciders + number);
    }
    world->pools = zeroed(memory, settings->targets, sizeof(Pool));
    for (int64_t target = !settings->is_local; target < settings->targets; target++) {
        world->pools[target].target = target;
        begin_pool(world, world->pools + target, settings->pools + target);
        const StreamSettings *stream = settings->pools[target].stream;
        if (stream != NULL && stream->columns > world->most_added) world->most_added = stream->columns;
    }
    world->added = zeroed(memory, settings->targets * world->most_added, sizeof(double));
}

static void free_decider(Decider *self, int64_t targets) {
    for (int64_t target = 0; self->estimates != NULL && target < targets; target++) estimate_free(self->estimates + target);
    for (int64_t target = 0; self->views != NULL && target < targets; target++) backlog_free(self->views + target);
    free(self->device.free_at_s);
    free(self->answers);
    free(self->estimates);
    free(self->delay_s);
    free(self->reported_wait_s);
    for (int64_t target = 0; self->batch_views != NULL && target < targets; target++) free(self->batch_views[target].under_way);
    for (int64_t target = 0; self->plans != NULL && target < targets; target++) {
        free(self->plans[target].answer_counts);
        free(self->plans[target].errs);
    }
    free(self->views);
    free(self->batch_views);
    free(self->plans);
}

static void free_pool(Pool *self) {
    for (int64_t box = 0; self->boxes != NULL && box < self->settings.boxes; box++) free(self->boxes[box].free_at_s);
    for (int64_t box = 0; self->trial_boxes != NULL && box < self->settings.boxes; box++) free(self->trial_boxes[box].free_at_s);
    for (int64_t box = 0; self->batches != NULL && box < self->settings.boxes; box++) batch_box_free(self->batches + box);
    for (int64_t box = 0; self->streams != NULL && box < self->settings.boxes; box++) free(self->streams[box].counts);
    free(self->streams);
    free(self->trial_streams);
    free(self->batches);
    free(self->armed_s);
    least_work_free(&self->least_work);
    least_work_free(&self->trial_least_work);
    free(self->boxes);
    free(self->trial_boxes);
    free(self->trial_of);
}

static void world_free(World *world) {
    const WorldSettings *settings = &world->settings;
    for (int64_t number = 0; world->deciders != NULL && number < settings->deciders; number++) free_decider(world->deciders + number, settings->targets);
    for (int64_t target = 0; world->pools != NULL && target < settings->targets; target++) free_pool(world->pools + target);
    for (int64_t number = 0; number < world->slab_count; number++) {
        free(world->slabs[number]);
        free(world->added_slabs[number]);
    }
    free(world->added_slabs);
    free(world->added);
    free(world->deciders);
    free(world->pools);
    free(world->slabs);
    free(world->clock.heap);
    free(world->ahead);
    free(world->delay_s);
    free(world->waits_s);
    free(world->totals_s);
    free(world);
}

/* Let a client issue the next request, if there is one. */
static void ask(World *world, int64_t client, double now_s) {
    const Clients *clients = world->settings.clients;
    if (world->issued == clients->requests) return;
    int64_t request = world->issued++;
    double there_s, back_s;
    world->block->node[request] = (int32_t)(client % clients->nodes);
    look_up_route(world, world->block, request, now_s, &there_s, &back_s);
    world->settings.arrival_s[request] = now_s;
    clients->decided_s[request] = now_s + there_s;
    clients->client_of[request] = client;
    clients->back_s[request] = back_s;
    if (there_s == 0.0)
        handle(world, world->block, request, now_s);
    else
        clock_push(&world->memory, &world->clock, now_s + there_s, order_of(ARRIVES, request), (void *)(intptr_t)request);
}

/* Let every client think once, and then ask. */
static void begin_closed_loop(World *world) {
    const Clients *clients = world->settings.clients;
    for (int64_t place = 0; place < clients->first_count; place++) {
        int64_t client = clients->first[place];
        clock_push(&world->memory, &world->clock, clients->think_s[client], order_of(ASKS, client), (void *)(intptr_t)client);
    }
}

/* Run all events before a moment and the order of an event at that moment; return 0 if a pause is due. */
static int run_until(World *world, double moment_s, int64_t order) {
    Clock *clock = &world->clock;
    while (clock->count && is_before(clock->heap[0].at_s, clock->heap[0].order, moment_s, order)) {
        Entry entry = clock_pop(clock);
        int kind = kind_of(entry.order);
        if (kind != BATCH_ACTS) note_moment(world, entry.at_s);
        if (kind == REACHES)
            reaches(world, entry.event);
        else if (kind == ARRIVES)
            handle(world, world->block, (int64_t)(intptr_t)entry.event, entry.at_s);
        else if (kind == ASKS)
            ask(world, (int64_t)(intptr_t)entry.event, entry.at_s);
        else
            batch_acts(world, entry.event, number_of(entry.order) & 0xFFFFFFFF, entry.at_s);
        if (is_pause_due(world)) return 0;
    }
    return 1;
}

/* Run until no event is left and nobody waits for company, or a pause is due. */
static void run_to_end(World *world) {
    const WorldSettings *settings = &world->settings;
    for (int was_holding = 1; was_holding;) {
        if (!run_until(world, INFINITY, INT64_MAX)) return;
        was_holding = 0;
        for (int64_t target = !settings->is_local; target < settings->targets; target++)
            if (world->pools[target].settings.kind == BATCH_POOL) was_holding |= close_pool(world, world->pools + target);
        if (was_holding && is_pause_due(world)) return;
    }
}

/* Take the next block, or go on with a paused one. */
static void begin_block(World *world, const Block *block) {
    if (!world->is_paused) world->in_block = 0;
    world->block = block;
    world->is_paused = 0;
}

static void open_loop(World *world) {
    const Block *block = world->block;
    while (world->in_block < block->count) {
        double now_s = block->arrival_s[world->in_block];
        if (!run_until(world, now_s, order_of(ARRIVES, 0))) return;
        note_moment(world, now_s);
        handle(world, block, world->in_block++, now_s);
        if (is_pause_due(world)) return;
    }
}

/* Execute a request while no other is under way. */
static void serve_alone(World *world, const Block *block, int64_t in_block, double access_s) {
    const WorldSettings *settings = &world->settings;
    int64_t request = block->first + in_block;
    double now_s = world->now_s, least_s = 0.0;
    Decider *decider = world->deciders + node_of(block, in_block) % settings->deciders;
    if (settings->judged_limit) least_s = foresee_totals(world, decider, block, in_block, now_s);
    int64_t target = decide(world, decider, block, in_block, delays(world, decider, block, in_block, now_s), now_s);
    settings->arrival_s[request] = now_s;
    note_decision(world, decider, request, target);
    if (settings->judged_limit) settings->decision_regret_s[request] = world->totals_s[target] - least_s;
    double transfer_s = transfer_of(block, target, in_block);
    Pool *pool = world->pools + target;
    PlanView *plan = target && decider->plans != NULL && decider->plans[target].settings != NULL ? decider->plans + target : NULL;
    int64_t believed = plan == NULL ? 0 : plan_view_sent(plan, request, now_s + decider->estimates[target].value_s / 2);
    if (pool->settings.kind == STREAM_POOL) {
        int64_t box;
        Arrival arrival = arrival_at(world, block, in_block, target, now_s);
        StreamOutcome outcome = enter_stream(world, pool, &arrival, &box);
        now_s = outcome.finish_s + access_s + (target ? block->downlink_s[target][in_block] : 0.0);
        if (plan != NULL) plan_view_reported(plan, request, believed, outcome.state, now_s - access_s - transfer_s / 2);
    } else {
        now_s += block->execution_s[target][in_block] + transfer_s + access_s;
    }
    if (target) learn(decider, target, transfer_s, now_s, 0.0);
    world->now_s = now_s;
}

static void back_to_back(World *world) {
    const Block *block = world->block;
    while (world->in_block < block->count) {
        int64_t in_block = world->in_block++;
        double there_s = block->access_s == NULL ? 0.0 : block->access_s[in_block], back_s = 0.0;
        if (world->settings.routes != NULL) look_up_route(world, block, in_block, world->now_s, &there_s, &back_s);
        serve_alone(world, block, in_block, there_s + back_s);
        if (is_pause_due(world)) return;
    }
}

#endif
