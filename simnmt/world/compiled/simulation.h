/* The run: back to back and open loop. See simulation.py. */
#ifndef SIMNMT_WORLD_SIMULATION_H
#define SIMNMT_WORLD_SIMULATION_H

#include "traffic.h"

static void begin_decider(World *world, Decider *self, int64_t number) {
    const WorldSettings *settings = &world->settings;
    Memory *memory = &world->memory;
    int has_views = 0;
    self->number = number;
    fifo_begin(&self->device, settings->workers);
    self->estimates = zeroed(memory, settings->targets, sizeof(TransferEstimate));
    self->delay_s = zeroed(memory, settings->targets, sizeof(double));
    self->estimates[0].next_s = INFINITY;
    for (int64_t target = 1; target < settings->targets; target++) {
        const EstimateSettings *of_target = settings->estimates + number * (settings->targets - 1) + target - 1;
        estimate_begin(memory, self->estimates + target, of_target, settings->rtt_s, number, target);
        self->delay_s[target] = self->estimates[target].value_s;
    }
    for (int64_t target = 0; target < settings->targets; target++) has_views |= settings->parallel[target] > 0;
    if (!has_views) return;
    self->views = zeroed(memory, settings->targets, sizeof(BacklogView));
    for (int64_t target = 0; target < settings->targets; target++)
        if (settings->parallel[target]) backlog_begin(self->views + target, settings->parallel[target]);
}

static void begin_pool(World *world, Pool *self, const PoolSettings *settings) {
    Memory *memory = &world->memory;
    self->settings = *settings;
    if (settings->kind == LEAST_WORK_POOL) {
        least_work_begin(memory, &self->least_work, settings->boxes, settings->workers);
        return;
    }
    self->boxes = zeroed(memory, settings->boxes, sizeof(FifoServer));
    self->trial_boxes = zeroed(memory, settings->boxes, sizeof(FifoServer));
    self->trial_of = zeroed(memory, settings->boxes, sizeof(int64_t));
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
    for (int64_t number = 0; number < settings->deciders; number++) begin_decider(world, world->deciders + number, number);
    world->pools = zeroed(memory, settings->targets, sizeof(Pool));
    for (int64_t target = 1; target < settings->targets; target++) begin_pool(world, world->pools + target, settings->pools + target - 1);
}

static void free_decider(Decider *self, int64_t targets) {
    for (int64_t target = 0; self->estimates != NULL && target < targets; target++) estimate_free(self->estimates + target);
    for (int64_t target = 0; self->views != NULL && target < targets; target++) backlog_free(self->views + target);
    free(self->device.free_at_s);
    free(self->answers);
    free(self->estimates);
    free(self->delay_s);
    free(self->views);
}

static void free_pool(Pool *self) {
    for (int64_t box = 0; self->boxes != NULL && box < self->settings.boxes; box++) free(self->boxes[box].free_at_s);
    for (int64_t box = 0; self->trial_boxes != NULL && box < self->settings.boxes; box++) free(self->trial_boxes[box].free_at_s);
    least_work_free(&self->least_work);
    least_work_free(&self->trial_least_work);
    free(self->boxes);
    free(self->trial_boxes);
    free(self->trial_of);
}

static void world_free(World *world) {
    const WorldSettings *settings = &world->settings;
    for (int64_t number = 0; world->deciders != NULL && number < settings->deciders; number++) free_decider(world->deciders + number, settings->targets);
    for (int64_t target = 1; world->pools != NULL && target < settings->targets; target++) free_pool(world->pools + target);
    for (int64_t number = 0; number < world->slab_count; number++) free(world->slabs[number]);
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

/* Run all events before a moment and the order of an event at that moment. */
static void run_until(World *world, double moment_s, int64_t order) {
    Clock *clock = &world->clock;
    while (clock->count && is_before(clock->heap[0].at_s, clock->heap[0].order, moment_s, order)) reaches(world, clock_pop(clock).event);
}

static void open_loop(World *world, const Block *block) {
    for (int64_t in_block = 0; in_block < block->count; in_block++) {
        double now_s = block->arrival_s[in_block];
        run_until(world, now_s, order_of(ARRIVAL, 0));
        handle(world, block, in_block, now_s);
    }
}

static void back_to_back(World *world, const Block *block) {
    const WorldSettings *settings = &world->settings;
    for (int64_t in_block = 0; in_block < block->count; in_block++) {
        int64_t request = block->first + in_block;
        double now_s = world->now_s;
        Decider *decider = world->deciders + node_of(block, in_block) % settings->deciders;
        int64_t target = decide(block, in_block, delays(world, decider, block, in_block, now_s), settings->targets);
        settings->arrival_s[request] = now_s;
        note_decision(world, decider, request, target);
        double transfer_s = transfer_of(block, target, in_block);
        now_s += block->execution_s[target][in_block] + transfer_s + (block->access_s == NULL ? 0.0 : block->access_s[in_block]);
        if (target) learn(decider, target, transfer_s, now_s);
        world->now_s = now_s;
    }
}

#endif
