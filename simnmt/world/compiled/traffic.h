/* How each request is decided on and sent to its target. See `Simulation` in reference.py. */
#ifndef SIMNMT_WORLD_TRAFFIC_H
#define SIMNMT_WORLD_TRAFFIC_H

#include "pools.h"

/* Return the columns of a request for a target that streams. They hold until the next call. */
static const double *added_of(World *world, const Block *block, int64_t in_block, const Pool *pool) {
    double *added = world->added + pool->target * world->most_added;
    for (int64_t column = 0; column < pool->settings.stream->columns; column++)
        added[column] = block->added[pool->target][column][in_block];
    return added;
}

/* Return the rank of a request's class at boxes that serve some classes; 0 at those that serve all alike. */
static inline int64_t rank_of(const Block *block, int64_t in_block, const Classes *classes) {
    return block->priority == NULL || classes->count == 1 ? 0 : block->priority[in_block];
}

/* Set `arrival` to a request of a block as it would arrive at a target of its decider. */
static inline void set_arrival(World *world, const Decider *decider, const Block *block, int64_t in_block, int64_t target, double now_s,
                               Arrival *arrival) {
    const Pool *pool = pool_of(world, decider, target);
    int64_t kind = pool->settings.kind;
    arrival->entry_s = target ? now_s + block->uplink_s[target][in_block] : now_s;
    arrival->execution_s = block->execution_s[target][in_block];
    arrival->request = block->first + in_block;
    arrival->node = target ? node_of(block, in_block) : decider->number;
    if (kind == BATCH_POOL) {
        arrival->factor = block->factor[target] == NULL ? 1.0 : block->factor[target][in_block];
        arrival->src_len = block->src_len[in_block];
        arrival->tgt_len = block->tgt_len[in_block];
        arrival->models[0] = 0;
        arrival->rank = rank_of(block, in_block, &pool->settings.batching.classes);
    } else if (kind == SLOT_POOL) {
        arrival->src_len = block->prompt[target][in_block];
        arrival->tgt_len = block->output[target][in_block];
    } else if (kind == STREAM_POOL) {
        arrival->added = added_of(world, block, in_block, pool);
    } else if (kind == QUEUE_POOL) {
        arrival->rank = rank_of(block, in_block, &pool->settings.classes);
    }
    const ModelSettings *models = pool->settings.models;
    if (models == NULL) return;
    int64_t workload = block->model == NULL ? 0 : block->model[in_block];
    arrival->models[0] = models->of_workload[workload];
    arrival->models[1] = models->second_of_workload == NULL ? -1 : models->second_of_workload[workload];
}

/* Set `waits_s` to the seconds of a request beyond execution alone, by target. */
static void foresee_waits(World *world, const Decider *decider, const Block *block, int64_t in_block, double now_s) {
    int64_t request = block->first + in_block;
    if (world->waits_of == request) return;
    world->waits_of = request;
    if (decider->pool == NULL) world->waits_s[0] = fifo_work_left(&decider->device, now_s);
    for (int64_t target = decider->pool == NULL; target < world->settings.targets; target++) {
        Pool *pool = pool_of(world, decider, target);
        Arrival arrival;
        set_arrival(world, decider, block, in_block, target, now_s, &arrival);
        world->waits_s[target] = foreseen_wait_s(world, pool, &arrival, now_s);
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

/* Return the delay of each target beside execution, as a policy may know it that knows more than what its decider has heard. */
static const double *known_delays(World *world, Decider *decider, const Block *block, int64_t in_block, double now_s) {
    const DeciderGroup *group = decider->group;
    int64_t targets = world->settings.targets;
    double *delay_s = world->delay_s;
    if (group->true_transfer)
        for (int64_t target = 0; target < targets; target++) delay_s[target] = transfer_of(block, target, in_block);
    else
        memcpy(delay_s, decider->delay_s, (size_t)targets * sizeof(double));
    if (group->true_backlog) {
        foresee_waits(world, decider, block, in_block, now_s);
        for (int64_t target = 0; target < targets; target++) delay_s[target] += world->waits_s[target];
        return delay_s;
    }
    add_views(world, decider, block, in_block, delay_s, now_s);
    return delay_s;
}

/* Return the wait at a decider's own device; NaN if that batches or streams. */
static double own_backlog_s(const World *world, const Decider *decider, double now_s) {
    const Pool *pool = decider->pool;
    if (pool == NULL) return fifo_work_left(&decider->device, now_s);
    if (pool->queues == NULL) return NAN;
    return queue_box_work_left(world->memory, pool->queues + decider->number, now_s, pool->settings.classes.count);
}

/* Ask a policy in Python for the target of a request, and show it what it decides on: the delays; if it is shown a view,
 * also the estimates, their ages and the last reported waits by target, the moment, and the wait at the decider's own
 * device. */
static int64_t called(const World *world, const Decider *decider, int64_t in_block, const double *delay_s, double now_s) {
    int64_t targets = world->settings.targets;
    double *shown = world->settings.shown;
    memcpy(shown, delay_s, (size_t)targets * sizeof(double));
    shown[4 * targets + 2] = (double)decider->group->shows_view;
    if (decider->group->shows_view) {
        memcpy(shown + targets, decider->delay_s, (size_t)targets * sizeof(double));
        for (int64_t target = 0; target < targets; target++) shown[2 * targets + target] = now_s - decider->estimates[target].measured_at_s;
        memcpy(shown + 3 * targets, decider->reported_wait_s, (size_t)targets * sizeof(double));
        shown[4 * targets] = now_s;
        shown[4 * targets + 1] = own_backlog_s(world, decider, now_s);
    }
    int64_t target = ((int64_t (*)(int64_t))world->settings.decide)(in_block);
    if (target < 0) longjmp(world->memory->way_out, STOPPED);
    return target;
}

/* Return the target with the least execution plus delay; a tie goes to the target named first (CNMT-09). */
static inline int64_t least_total(const double *const *weighed_s, int64_t in_block, const double *delay_s, int64_t targets) {
    double least_s = weighed_s[0][in_block] + delay_s[0];
    int64_t best = 0;
    for (int64_t target = 1; target < targets; target++) {
        double total_s = weighed_s[target][in_block] + delay_s[target];
        best = total_s < least_s ? target : best;
        least_s = smaller(least_s, total_s);
    }
    return best;
}

/* Decide on a request and record what the decision was based on; return its target. */
static inline int64_t decide(World *world, Decider *decider, const Block *block, int64_t in_block, double now_s) {
    const WorldSettings *settings = &world->settings;
    int64_t request = block->first + in_block, target = block->chosen;
    int64_t document = block->document == NULL ? -1 : block->document[in_block];
    if (document >= 0 && document == world->last_document && now_s == world->last_choice_s) {
        target = world->last_choice;
    } else if (block->choice != ALWAYS) {
        const double *delay_s = decider->only_heard ? decider->delay_s : known_delays(world, decider, block, in_block, now_s);
        if (block->choice == CALLED)
            target = called(world, decider, in_block, delay_s, now_s);
        else
            target = least_total(block->weighed_s, in_block, delay_s, settings->targets);
    }
    if (document >= 0) {
        world->last_document = document;
        world->last_choice = target;
        world->last_choice_s = now_s;
    }
    const TransferEstimate *estimate = decider->estimates + settings->targets - 1;
    settings->estimate_s[request] = estimate->value_s;
    settings->measured_at_s[request] = estimate->measured_at_s;
    settings->target[request] = (int8_t)target;
    return target;
}

/* Return whether an oracle judges the decision on a request: multiples of the golden ratio fall evenly. */
static inline int is_judged(const World *world, int64_t request) {
    return (int64_t)(((uint64_t)request * 0x9E3779B1u) & 0xFFFFFFFFu) < world->settings.judged_limit;
}

/* Let the decider's own device, first in, first out, execute a request. */
static inline void execute_here(World *world, Decider *decider, const Block *block, int64_t in_block, double now_s) {
    int64_t request = block->first + in_block;
    double start_s = fifo_serve(world->memory, &decider->device, now_s, block->execution_s[0][in_block]);
    world->settings.queue_s[request] = start_s - now_s;
    if (hears_itself(decider)) {
        RequestEvent *seen = new_event(world);
        *seen = (RequestEvent){.added = seen->added, .wait_s = start_s - now_s};
        seen->sent_as = announce(world, decider, block, 0, in_block, now_s, &seen->believed);
        clock_push(world->memory, &decider->answers, (Entry){start_s, request, seen});
    }
    double finish_s = start_s + block->execution_s[0][in_block];
    if (!decider->notes_executions) {
        answered(world, request, finish_s);
        return;
    }
    if (decider->room != NULL) starts_add(world->memory, &decider->room->starts, start_s);
    receive(world, decider, request, 0, finish_s);
}

/* Let a client that is refused come back later, or have no further try. */
static void try_again(World *world, const Block *block, int64_t in_block, double now_s) {
    WorldSettings *settings = &world->settings;
    int64_t request = block->first + in_block, tries = settings->tries[request];
    if (tries <= settings->retries) {
        double again_s = now_s + block->retry_after_s[tries - 1][in_block], first_s = settings->arrival_s[request];
        if (again_s < (block->patience_s == NULL ? INFINITY : first_s + block->patience_s[in_block])) {
            settings->tries[request] += 1;
            settings->outcome[request] = WAS_ANSWERED;
            settings->retry_s[request] = again_s - first_s;
            settings->decided_s[request] = again_s;
            world->waits_of = -1;
            clock_push(world->memory, &world->clock, (Entry){again_s, order_of(ARRIVES, request), NULL});
            return;
        }
    }
    settings->target[request] = -1;
    settings->outcome[request] = WAS_REFUSED;
    settings->queue_s[request] = NAN;
    if (settings->decision_regret_s != NULL) settings->decision_regret_s[request] = NAN;
}

static void translate_waiting(World *world, Decider *decider, const Block *block, int64_t in_block, double now_s);

/* Refuse a client, whose request others may wait for. */
static void refuse_client(World *world, Decider *decider, const Block *block, int64_t in_block, double now_s) {
    try_again(world, block, in_block, now_s);
    if (decider->cache != NULL && decider->cache->settings->coalesces) translate_waiting(world, decider, block, in_block, now_s);
}

/* Return whether the decider's own device refuses a request now. */
static inline int is_refused_here(const Decider *decider, const Block *block, int64_t in_block, double now_s) {
    const Pool *pool = decider->pool;
    if (pool != NULL && pool->slots != NULL && is_too_long(pool->settings.slots, block->prompt[0][in_block], block->output[0][in_block])) return 1;
    if (pool != NULL) return is_box_full(pool, decider->number, now_s);
    return decider->room != NULL && is_room_full(decider->room, now_s);
}

/* Send a request to the target that was chosen. */
static inline void send_to(World *world, Decider *decider, const Block *block, int64_t in_block, int64_t target, double now_s) {
    if (target == 0 && is_refused_here(decider, block, in_block, now_s)) {
        refuse_client(world, decider, block, in_block, now_s);
        return;
    }
    if (target == 0 && decider->pool == NULL) {
        execute_here(world, decider, block, in_block, now_s);
        return;
    }
    RequestEvent *event = new_event(world);
    Arrival *arrival = &event->arrival;
    set_arrival(world, decider, block, in_block, target, now_s, arrival);
    event->pool = pool_of(world, decider, target);
    if (event->pool->settings.kind == STREAM_POOL)
        arrival->added = memcpy(event->added, arrival->added, (size_t)world->most_added * sizeof(double));
    event->target = (int32_t)target;
    event->decider = decider;
    event->sent_s = now_s;
    event->downlink_s = target ? block->downlink_s[target][in_block] : 0.0;
    if (decider->has_views) event->sent_as = announce(world, decider, block, target, in_block, now_s, &event->believed);
    if (target == 0)
        reaches(world, event);
    else
        clock_push(world->memory, &world->clock, (Entry){arrival->entry_s, order_of(REACHES, block->first + in_block), event});
}

/* Decide on a request and send it on its way. */
static inline void translate(World *world, Decider *decider, const Block *block, int64_t in_block, double now_s) {
    int64_t request = block->first + in_block;
    double least_s = 0.0;
    int judged = is_judged(world, request);
    if (judged) least_s = foresee_totals(world, decider, block, in_block, now_s);
    hear(world, decider, now_s);
    int64_t target = decide(world, decider, block, in_block, now_s);
    if (judged) world->settings.decision_regret_s[request] = world->totals_s[target] - least_s;
    send_to(world, decider, block, in_block, target, now_s);
}

/* Answer a request from the cache of its decider, or let it be translated. */
static void handle(World *world, const Block *block, int64_t in_block, double now_s) {
    Decider *decider = decider_of(world, block, in_block);
    if (decider->cache != NULL && is_cached(world, decider->cache, block->first + in_block, now_s)) return;
    translate(world, decider, block, in_block, now_s);
}

/* Let the first of those that wait for a request that was refused be translated in its place, and the others wait for that one. */
static void translate_waiting(World *world, Decider *decider, const Block *block, int64_t in_block, double now_s) {
    const WorldSettings *settings = &world->settings;
    SentenceCache *cache = decider->cache;
    int32_t place = cache_fail(cache, settings->sentence[block->first + in_block]);
    while (place != NOTHING) {
        int64_t request = cache_stop_waiting(cache, &place);
        if (is_cached(world, cache, request, now_s)) continue;
        settings->decided_s[request] = now_s;
        settings->retry_s[request] = now_s - settings->arrival_s[request];
        world->waits_of = -1;
        translate(world, decider, block, request - block->first, now_s);
    }
}

/* Return the target to which a request goes on that its decider has executed; 0: it is answered. */
static RARE int64_t second_target(World *world, Decider *decider, const Block *block, int64_t in_block, double now_s) {
    const double *delay_s = decider->delay_s;
    if (!decider->only_heard) {
        world->waits_of = -1;
        delay_s = known_delays(world, decider, block, in_block, now_s);
        world->delay_s[0] = 0.0; /* it has been executed here */
    }
    return least_total(block->second_s, in_block, delay_s, world->settings.targets);
}

/* Record what a request took at its decider's own device, and that it goes on to a target. */
static RARE void defer(const WorldSettings *settings, const Block *block, int64_t in_block, int64_t target) {
    int64_t request = block->first + in_block;
    double execution_s = settings->execution_s == NULL ? NAN : settings->execution_s[request];
    settings->deferred_queue_s[request] = settings->queue_s[request];
    settings->deferred_exe_s[request] = isnan(execution_s) ? block->execution_s[0][in_block] : execution_s;
    settings->queue_s[request] = 0.0;
    if (settings->execution_s != NULL) settings->execution_s[request] = NAN;
    settings->target[request] = (int8_t)target;
}

/* Decide again on a request that its decider has executed: answer it, or send it on. */
static RARE void decide_again(World *world, int64_t request, double now_s) {
    const WorldSettings *settings = &world->settings;
    const Block *block = world->block;
    int64_t in_block = request - block->first, target = 0;
    Decider *decider = decider_of(world, block, in_block);
    hear(world, decider, now_s);
    if (settings->outcome == NULL || settings->outcome[request] != FELL_BACK) target = second_target(world, decider, block, in_block, now_s);
    if (target) {
        defer(settings, block, in_block, target);
        send_to(world, decider, block, in_block, target, now_s);
        return;
    }
    receive(world, decider, request, 1, now_s);
}

/* Answer a request, which a target has refused, with the execution before it was sent on. */
static RARE void answer_with_first(World *world, Decider *decider, int64_t request, double lost_s, double now_s) {
    WorldSettings *settings = &world->settings;
    settings->queue_s[request] = settings->deferred_queue_s[request];
    if (settings->execution_s != NULL) settings->execution_s[request] = settings->deferred_exe_s[request];
    settings->deferred_queue_s[request] = 0.0;
    settings->deferred_exe_s[request] = NAN;
    settings->target[request] = 0;
    settings->outcome[request] = FELL_BACK;
    settings->retry_s[request] += lost_s;
    receive(world, decider, request, 1, now_s);
}

/* A decider has received the refusal of a target: it executes the request itself, or passes the refusal on. */
static void refused(World *world, RequestEvent *event, double now_s) {
    WorldSettings *settings = &world->settings;
    Decider *decider = event->decider;
    int64_t request = event->arrival.request, in_block = request - world->block->first;
    double sent_s = event->sent_s;
    hear(world, decider, now_s);
    forget(decider, event->target, event->sent_as);
    free_event(world, event);
    if (settings->deferred_exe_s != NULL && !isnan(settings->deferred_exe_s[request])) {
        answer_with_first(world, decider, request, now_s - sent_s, now_s);
        return;
    }
    if (settings->passes_on) {
        refuse_client(world, decider, world->block, in_block, now_s);
        return;
    }
    settings->target[request] = 0;
    settings->outcome[request] = FELL_BACK;
    settings->retry_s[request] = now_s - settings->arrival_s[request];
    send_to(world, decider, world->block, in_block, 0, now_s);
}

#endif
