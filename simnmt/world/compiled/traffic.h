/* How each request is decided on and sent to its target. See `World` in reference.py. */
#ifndef SIMNMT_WORLD_TRAFFIC_H
#define SIMNMT_WORLD_TRAFFIC_H

#include "pools.h"

/* Return the columns of a request for a target that streams; NULL for another target. They hold until the next call. */
static const double *added_of(World *world, const Block *block, int64_t in_block, int64_t target) {
    if (block->added == NULL || block->added[target] == NULL) return NULL;
    double *added = world->added + target * world->most_added;
    for (int64_t column = 0; column < world->pools[target].settings.stream->columns; column++) added[column] = block->added[target][column][in_block];
    return added;
}

/* Return a request of a block as it would arrive at a target. */
static Arrival arrival_at(World *world, const Block *block, int64_t in_block, int64_t target, double now_s) {
    return (Arrival){
        target ? now_s + block->uplink_s[target][in_block] : now_s,
        block->execution_s[target][in_block],
        block->factor == NULL || block->factor[target] == NULL ? 1.0 : block->factor[target][in_block],
        block->first + in_block,
        node_of(block, in_block),
        block->src_len == NULL ? 0 : block->src_len[in_block],
        block->tgt_len == NULL ? 0 : block->tgt_len[in_block],
        added_of(world, block, in_block, target),
    };
}

/* Set `waits_s` to the seconds of a request beyond execution alone, by target. */
static void foresee_waits(World *world, const Decider *decider, const Block *block, int64_t in_block, double now_s) {
    int64_t request = block->first + in_block;
    if (world->waits_of == request) return;
    world->waits_of = request;
    if (!world->settings.is_local) world->waits_s[0] = fifo_work_left(&decider->device, now_s);
    for (int64_t target = !world->settings.is_local; target < world->settings.targets; target++) {
        Arrival arrival = arrival_at(world, block, in_block, target, now_s);
        world->waits_s[target] = foreseen_wait_s(world, target, &arrival, now_s);
    }
}

static double transfer_of(const Block *block, int64_t target, int64_t in_block) {
    return target ? block->uplink_s[target][in_block] + block->downlink_s[target][in_block] : 0.0;
}

/* Set `totals_s` to the seconds from the decision to the answer, by target, and return the least of them. */
static double foresee_totals(World *world, const Decider *decider, const Block *block, int64_t in_block, double now_s) {
    foresee_waits(world, decider, block, in_block, now_s);
    double least_s = INFINITY;
    for (int64_t target = 0; target < world->settings.targets; target++) {
        double total_s = block->execution_s[target][in_block] + (transfer_of(block, target, in_block) + world->waits_s[target]);
        world->totals_s[target] = total_s;
        if (total_s < least_s) least_s = total_s;
    }
    return least_s;
}

/* Return the delay of each target beside execution, as far as the policy may know it. */
static const double *delays(World *world, Decider *decider, const Block *block, int64_t in_block, double now_s) {
    const WorldSettings *settings = &world->settings;
    int64_t targets = settings->targets;
    double *delay_s = world->delay_s;
    if (!settings->true_transfer && !settings->true_backlog && !world->has_views) return decider->delay_s;
    if (settings->true_transfer)
        for (int64_t target = 0; target < targets; target++) delay_s[target] = transfer_of(block, target, in_block);
    else
        memcpy(delay_s, decider->delay_s, (size_t)targets * sizeof(double));
    if (settings->true_backlog) {
        foresee_waits(world, decider, block, in_block, now_s);
        for (int64_t target = 0; target < targets; target++) delay_s[target] += world->waits_s[target];
        return delay_s;
    }
    add_views(world, decider, block, in_block, delay_s, now_s);
    return delay_s;
}

/* Set what a policy in Python decides on: the delays; if it is shown a view, also the estimates, their ages and the last reported
 * waits by target, the moment, and the wait at the decider's own device. */
static void show(World *world, const Decider *decider, const double *delay_s, double now_s) {
    int64_t targets = world->settings.targets;
    double *shown = world->settings.shown;
    memcpy(shown, delay_s, (size_t)targets * sizeof(double));
    if (!world->settings.shows_view) return;
    memcpy(shown + targets, decider->delay_s, (size_t)targets * sizeof(double));
    for (int64_t target = 0; target < targets; target++) shown[2 * targets + target] = now_s - decider->estimates[target].measured_at_s;
    memcpy(shown + 3 * targets, decider->reported_wait_s, (size_t)targets * sizeof(double));
    shown[4 * targets] = now_s;
    shown[4 * targets + 1] = world->settings.is_local ? NAN : fifo_work_left(&decider->device, now_s);
}

/* Return the target of a request: as Python decides, or the one with the least execution plus delay; a tie goes to the target
 * named first (CNMT-09). */
static int64_t decide(World *world, const Decider *decider, const Block *block, int64_t in_block, const double *delay_s, double now_s) {
    int64_t targets = world->settings.targets;
    if (block->choice == ALWAYS) return block->chosen;
    if (block->choice == CALLED) {
        int64_t (*call)(int64_t) = (int64_t (*)(int64_t))world->settings.decide;
        show(world, decider, delay_s, now_s);
        int64_t target = call(in_block);
        if (target < 0) longjmp(world->memory->way_out, STOPPED);
        return target;
    }
    double least_s = block->weighed_s[0][in_block] + delay_s[0];
    int64_t best = 0;
    for (int64_t target = 1; target < targets; target++) {
        double total_s = block->weighed_s[target][in_block] + delay_s[target];
        if (total_s < least_s) {
            least_s = total_s;
            best = target;
        }
    }
    return best;
}

static void note_decision(World *world, const Decider *decider, int64_t request, int64_t target) {
    const TransferEstimate *estimate = decider->estimates + world->settings.targets - 1;
    world->settings.target[request] = (int8_t)target;
    world->settings.estimate_s[request] = estimate->value_s;
    world->settings.measured_at_s[request] = estimate->measured_at_s;
}

/* Return whether an oracle judges the decision on a request: multiples of the golden ratio fall evenly. */
static inline int is_judged(const World *world, int64_t request) {
    return (int64_t)(((uint64_t)request * 0x9E3779B1u) & 0xFFFFFFFFu) < world->settings.judged_limit;
}

/* Decide on a request and send it on its way. */
static void handle(World *world, const Block *block, int64_t in_block, double now_s) {
    WorldSettings *settings = &world->settings;
    int64_t request = block->first + in_block;
    Decider *decider = world->deciders + node_of(block, in_block) % settings->deciders;
    double least_s = 0.0;
    int judged = is_judged(world, request);
    if (judged) least_s = foresee_totals(world, decider, block, in_block, now_s);
    hear(decider, now_s, settings->queue_s);
    int64_t target = decide(world, decider, block, in_block, delays(world, decider, block, in_block, now_s), now_s);
    note_decision(world, decider, request, target);
    if (judged) settings->decision_regret_s[request] = world->totals_s[target] - least_s;
    if (target == 0 && !settings->is_local) {
        double start_s = fifo_serve(world->memory, &decider->device, now_s, block->execution_s[0][in_block]);
        if (start_s > now_s) settings->queue_s[request] = start_s - now_s;
        if (hears_itself(decider)) {
            int32_t believed;
            int64_t sent_as = announce(world, decider, block, 0, in_block, now_s, &believed);
            answers_push(world->memory, &decider->answers, (Answer){start_s, 0.0, request, sent_as, 0, 0, 0, 0});
        }
        answered(world, request, start_s + block->execution_s[0][in_block]);
        return;
    }
    RequestEvent *event = new_event(world);
    Arrival *arrival = &event->arrival;
    *arrival = arrival_at(world, block, in_block, target, now_s);
    if (arrival->added != NULL) arrival->added = memcpy(event->added, arrival->added, (size_t)world->most_added * sizeof(double));
    event->target = (int32_t)target;
    event->decider = decider;
    event->sent_s = now_s;
    event->downlink_s = target ? block->downlink_s[target][in_block] : 0.0;
    event->sent_as = announce(world, decider, block, target, in_block, now_s, &event->believed);
    if (target == 0)
        reaches(world, event);
    else
        clock_push(world->memory, &world->clock, (Entry){arrival->entry_s, order_of(REACHES, request), event});
}

#endif
