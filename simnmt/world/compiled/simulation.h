/* The run: back to back and open loop. See simulation.py. */
#ifndef SIMNMT_WORLD_SIMULATION_H
#define SIMNMT_WORLD_SIMULATION_H

#include "checks.h"
#include "traffic.h"

static void begin_decider(World *world, Decider *self, int64_t number) {
    const WorldSettings *settings = &world->settings;
    Memory *memory = &world->memory;
    int has_views = 0;
    self->number = number;
    fifo_begin(&self->device, settings->workers);
    self->estimates = zeroed(memory, settings->targets, sizeof(TransferEstimate));
    self->delay_s = zeroed(memory, settings->targets, sizeof(double));
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
    self->servers = zeroed(memory, boxes, sizeof(BatchServer));
    self->laters = zeroed(memory, boxes, sizeof(BatchServer));
    self->trials = zeroed(memory, boxes, sizeof(BatchServer));
    self->has_later = zeroed(memory, boxes, sizeof(int));
    self->uses_later = zeroed(memory, boxes, sizeof(int));
    self->armed_s = zeroed(memory, boxes, sizeof(double));
    for (int64_t box = 0; box < boxes; box++) {
        batch_server_begin(self->servers + box, &self->settings.batching, self->settings.cost);
        begin_account(memory, self->servers + box, self->settings.batching.size);
        self->armed_s[box] = INFINITY;
    }
}

static void begin_streaming_boxes(Memory *memory, Pool *self) {
    const StreamingSettings *streaming = self->settings.streaming;
    self->streams = zeroed(memory, self->settings.boxes, sizeof(StreamingBox));
    self->trial_streams = zeroed(memory, self->settings.boxes, sizeof(StreamingBox));
    for (int64_t box = 0; box < self->settings.boxes; box++) {
        streaming_begin(self->streams + box);
        self->streams[box].counts = zeroed(memory, streaming->phases * streaming->states, sizeof(int64_t));
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
    if (settings->kind == STREAMING_POOL) {
        begin_streaming_boxes(memory, self);
        return;
    }
    if (settings->kind == LEAST_WORK_POOL) {
        least_work_begin(memory, &self->least_work, settings->boxes, settings->workers);
        return;
    }
    self->boxes = zeroed(memory, settings->boxes, sizeof(FifoServer));
    self->trial_boxes = zeroed(memory, settings->boxes, sizeof(FifoServer));
    for (int64_t box = 0; box < settings->boxes; box++) fifo_begin(self->boxes + box, settings->workers);
}

static void world_begin(World *world, const WorldSettings *settings) {
    Memory *memory = &world->memory;
    CHECK_SETTINGS(settings);
    world->settings = *settings;
    world->waits_of = -1;
    world->most_legs = messages_most_legs(settings);
    begin_lines(world);
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
        const StreamingSettings *streaming = settings->pools[target].streaming;
        if (streaming != NULL && streaming->columns > world->most_added) world->most_added = streaming->columns;
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
    for (int64_t box = 0; self->servers != NULL && box < self->settings.boxes; box++) batch_server_free(self->servers + box);
    for (int64_t box = 0; self->laters != NULL && box < self->settings.boxes; box++) batch_server_free(self->laters + box);
    for (int64_t box = 0; self->trials != NULL && box < self->settings.boxes; box++) batch_server_free(self->trials + box);
    for (int64_t box = 0; self->streams != NULL && box < self->settings.boxes; box++) free(self->streams[box].counts);
    free(self->streams);
    free(self->trial_streams);
    free(self->servers);
    free(self->laters);
    free(self->trials);
    free(self->has_later);
    free(self->uses_later);
    free(self->armed_s);
    free(self->coming);
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
        free(world->leg_slabs[number]);
    }
    free_lines(world);
    free(world->leg_slabs);
    free(world->added_slabs);
    free(world->added);
    free_rows(world);
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

/* Return whether the requests of the next block are needed to go on. */
static int needs_block(const World *world) {
    return world->issued < world->settings.clients->requests && (world->block == NULL || world->in_block == world->block->count);
}

/* A request has reached its decider. */
static void reaches_decider(World *world, Row *row, double now_s) {
    handle(world, &row->block, 0, now_s);
    free_row(world, row);
}

/* Let a client issue the next request, if there is one. */
static void ask(World *world, int64_t client, double now_s) {
    const Clients *clients = world->settings.clients;
    if (world->issued == clients->requests) return;
    int64_t request = world->issued++, node = client % clients->nodes;
    double there_s, back_s;
    Row *row = new_row(world);
    fill_row(world, row, world->block, world->in_block++, node);
    look_up_route(world, row, now_s, &there_s, &back_s);
    world->settings.arrival_s[request] = now_s;
    clients->decided_s[request] = now_s + there_s;
    clients->node[request] = (int32_t)node;
    clients->client_of[request] = client;
    clients->back_s[request] = back_s;
    if (there_s == 0.0)
        reaches_decider(world, row, now_s);
    else
        clock_push(&world->memory, &world->clock, now_s + there_s, order_of(ARRIVAL, request), row);
}

/* Let every client think once, and then ask. */
static void begin_closed_loop(World *world) {
    const Clients *clients = world->settings.clients;
    for (int64_t place = 0; place < clients->first_count; place++) {
        int64_t client = clients->first[place];
        clock_push(&world->memory, &world->clock, clients->think_s[client], order_of(ASKS, client), (void *)(intptr_t)client);
    }
}

/* Run all events before a moment and the order of an event at that moment; return 0 if the next block is needed first, or a
 * pause is due. */
static int run_until(World *world, double moment_s, int64_t order) {
    Clock *clock = &world->clock;
    while (clock->count && is_before(clock->heap[0].at_s, clock->heap[0].order, moment_s, order)) {
        int kind = kind_of(clock->heap[0].order);
        if (kind == ASKS && needs_block(world)) return 0;
        Entry entry = clock_pop(clock);
        if (kind == REACHES_SERVER)
            reaches(world, entry.event);
        else if (kind == ARRIVAL)
            reaches_decider(world, entry.event, entry.at_s);
        else if (kind == ASKS)
            ask(world, (int64_t)(intptr_t)entry.event, entry.at_s);
        else if (kind == LINE_ACTS)
            line_acts(world, entry.event, entry.at_s);
        else if (kind == MESSAGE_MOVES)
            message_moves(world, entry.event, entry.at_s);
        else
            server_acts(world, entry.event, number_of(entry.order) & 0xFFFFFFFF, entry.at_s);
        if (is_pause_due(world)) return 0;
    }
    return 1;
}

/* Run until no event is left and nobody waits for company, the next block is needed, or a pause is due. */
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
    if (!world->is_paused) {
        CHECK_BLOCK(world, block);
        world->in_block = 0;
    }
    world->block = block;
    world->is_paused = 0;
}

static void open_loop(World *world) {
    const Block *block = world->block;
    while (world->in_block < block->count) {
        double now_s = block->arrival_s[world->in_block];
        if (!run_until(world, now_s, order_of(ARRIVAL, 0))) return;
        world->clock.now_s = now_s;
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
    int64_t target = decide(block, in_block, delays(world, decider, block, in_block, now_s), settings->targets);
    settings->arrival_s[request] = now_s;
    note_decision(world, decider, request, target);
    if (settings->judged_limit) settings->lost_s[request] = world->totals_s[target] - least_s;
    double transfer_s = transfer_of(world, block, target, in_block, now_s);
    Pool *pool = world->pools + target;
    PlanView *plan = target && decider->plans != NULL && decider->plans[target].settings != NULL ? decider->plans + target : NULL;
    int64_t believed = plan == NULL ? 0 : plan_view_sent(plan, request, now_s + decider->estimates[target].value_s / 2);
    if (pool->settings.kind == STREAMING_POOL) {
        Arrival arrival = arrival_at(world, block, in_block, target, now_s);
        StreamingOutcome outcome = execute_streamed(world, pool, chosen_box(world, pool, &arrival, &pool->next, 0), &arrival);
        now_s = outcome.finish_s + access_s + (target ? block->downlink_s[target][in_block] : 0.0);
        if (plan != NULL) plan_view_reported(plan, request, believed, outcome.state, now_s - access_s - transfer_s / 2);
    } else {
        now_s += block->execution_s[target][in_block] + transfer_s + access_s;
    }
    if (target) learn(decider, target, transfer_s, now_s);
    world->now_s = now_s;
}

static void back_to_back(World *world) {
    const Block *block = world->block;
    while (world->in_block < block->count) {
        int64_t in_block = world->in_block++;
        if (world->settings.routes == NULL) {
            serve_alone(world, block, in_block, block->access_s == NULL ? 0.0 : block->access_s[in_block]);
        } else {
            double there_s, back_s;
            Row *row = new_row(world);
            fill_row(world, row, block, in_block, node_of(block, in_block));
            look_up_route(world, row, world->now_s, &there_s, &back_s);
            serve_alone(world, &row->block, 0, there_s + back_s);
            free_row(world, row);
        }
        if (is_pause_due(world)) return;
    }
}

#endif
