/* How each request is decided on and sent to a server, and what an oracle foresees of it. See traffic.py and server.py. */
#ifndef SIMNMT_WORLD_TRAFFIC_H
#define SIMNMT_WORLD_TRAFFIC_H

#include "batch_pool.h"
#include "streaming_pool.h"

static inline int64_t node_of(const Block *block, int64_t in_block) { return block->node == NULL ? 0 : block->node[in_block]; }

/* Return the box of a pool for a trial, a copy made on first access; outside a trial, the box itself. */
static FifoServer *box_of(World *world, Pool *pool, int64_t box, int64_t trial) {
    if (!trial) return pool->boxes + box;
    if (pool->trial_of[box] != trial) {
        fifo_copy(&world->memory, pool->trial_boxes + box, pool->boxes + box);
        pool->trial_of[box] = trial;
    }
    return pool->trial_boxes + box;
}

/* Return the work left at a box at a moment; the balancers compare it. */
static double work_left(World *world, Pool *pool, int64_t box, double now_s, int64_t trial) {
    if (pool->settings.kind == BATCH_POOL) return work_left_at(world, pool, box, now_s, trial);
    if (pool->settings.kind == STREAMING_POOL) {
        double free_s = stream_of(pool, box, trial)->free_s;
        return free_s > now_s ? free_s - now_s : 0.0;
    }
    return fifo_work_left(box_of(world, pool, box, trial), now_s);
}

static int64_t box_chosen_by_balancer(World *world, Pool *pool, const Arrival *arrival, int64_t *next, int64_t trial) {
    const PoolSettings *settings = &pool->settings;
    if (settings->balancer == BY_NODE) return arrival->node % settings->boxes;
    if (settings->balancer == IN_TURN) {
        int64_t box = *next;
        *next = (box + 1) % settings->boxes;
        return box;
    }
    double now_s = arrival->entry_s;
    if (settings->balancer == FEWEST_TOKENS) {
        int64_t fewest = 0;
        double least = work_left(world, pool, 0, now_s, trial);
        for (int64_t box = 1; box < settings->boxes; box++) {
            double left = work_left(world, pool, box, now_s, trial);
            if (left < least) {
                fewest = box;
                least = left;
            }
        }
        return fewest;
    }
    int64_t best = settings->choices[0][arrival->request];
    if (settings->drawn > 1) {
        double least = work_left(world, pool, best, now_s, trial);
        for (int64_t number = 1; least != 0.0 && number < settings->drawn; number++) {
            int64_t other = settings->choices[number][arrival->request];
            double left = work_left(world, pool, other, now_s, trial);
            if (left < least) {
                best = other;
                least = left;
            }
        }
    }
    return best;
}

static int64_t chosen_box(World *world, Pool *pool, const Arrival *arrival, int64_t *next, int64_t trial) {
    int64_t box = box_chosen_by_balancer(world, pool, arrival, next, trial);
    assert(box >= 0 && box < pool->settings.boxes);
    return box;
}

/* Let a request enter a pool; return when it starts, and set its box. In a trial only copies change. */
static double enter(World *world, Pool *pool, const Arrival *arrival, int64_t *next, int64_t *box, int64_t trial) {
    if (pool->settings.kind == LEAST_WORK_POOL)
        return least_work_enter(&world->memory, trial ? &pool->trial_least_work : &pool->least_work, arrival->entry_s, arrival->execution_s, box);
    *box = chosen_box(world, pool, arrival, next, trial);
    return fifo_serve(&world->memory, box_of(world, pool, *box, trial), arrival->entry_s, arrival->execution_s);
}

static Arrival arrival_of(const RequestEvent *event) {
    return (Arrival){event->entry_s, event->execution_s, event->factor, event->request, event->node, event->src_len, event->tgt_len, event->added};
}

/* The request of an event has reached its server. */
static void reaches(World *world, RequestEvent *event) {
    int64_t box = 0, request = event->request;
    Pool *pool = world->pools + event->target;
    Arrival arrival = arrival_of(event);
    if (pool->settings.kind == BATCH_POOL) {
        Waiting sentence = sentence_of(&arrival, event);
        box = chosen_box(world, pool, &arrival, &pool->next, 0);
        batch_server_arrive(&world->memory, pool->servers + box, sentence);
        if (pool->has_later[box]) batch_server_arrive(&world->memory, pool->laters + box, sentence_of(&arrival, NULL));
        arm(world, pool, box);
        return;
    }
    if (pool->settings.kind == STREAMING_POOL) {
        reaches_stream(world, pool, chosen_box(world, pool, &arrival, &pool->next, 0), event, &arrival);
        return;
    }
    double start_s = enter(world, pool, &arrival, &pool->next, &box, 0), finish_s = start_s + event->execution_s;
    if (world->settings.paths != NULL) {
        answer_by_message(world, event, start_s, finish_s, box, start_s, 0, 0);
        return;
    }
    if (start_s > event->entry_s) world->settings.queue_s[request] = start_s - event->entry_s;
    double heard_s = start_s, received_s = finish_s, transfer_s = 0.0;
    if (event->target) {
        if (box) world->settings.server[request] = (int16_t)box;
        heard_s = received_s = finish_s + event->downlink_s;
        transfer_s = (received_s - event->sent_s) - (finish_s - event->entry_s);
    }
    if (event->target || has_view(event->decider, 0))
        add_answer(&world->memory, event->decider, (Answer){heard_s, transfer_s, request, event->sent_as, event->target, 0, 0, 0});
    answered(world, request, received_s);
    free_event(world, event);
}

static int compare_arrivals(const void *one, const void *other) {
    const Arrival *first = one, *second = other;
    if (first->entry_s != second->entry_s) return first->entry_s < second->entry_s ? -1 : 1;
    return first->request < second->request ? -1 : first->request > second->request;
}

/* Return whether an event on the clock is a request that will reach a target next. */
static int is_reaching(const Entry *entry, int64_t target) {
    const RequestEvent *event = entry->event;
    if (kind_of(entry->order) == REACHES_SERVER) return event->target == target;
    return kind_of(entry->order) == MESSAGE_MOVES && event->target == target && event->stage == THERE && event->leg == event->leg_count - 1;
}

/* Set `ahead` to the requests on their way to a target that will reach it before an arrival, in their order; return their
 * number. */
static int64_t find_ahead(World *world, int64_t target, const Arrival *arrival) {
    int64_t count = 0;
    for (int64_t place = 0; place < world->clock.count; place++) {
        const Entry *entry = world->clock.heap + place;
        const RequestEvent *event = entry->event;
        if (!is_reaching(entry, target)) continue;
        if (!is_before(entry->at_s, event->request, arrival->entry_s, arrival->request)) continue;
        GROW(&world->memory, world->ahead, count, world->ahead_capacity);
        world->ahead[count] = arrival_of(event);
        world->ahead[count++].entry_s = entry->at_s;
    }
    if (count) qsort(world->ahead, (size_t)count, sizeof(Arrival), compare_arrivals);
    return count;
}

/* Return the seconds of an arrival at a target beyond execution alone, after the requests on their way. */
static double foreseen_wait_s(World *world, int64_t target, const Arrival *arrival) {
    Pool *pool = world->pools + target;
    int64_t count = target ? find_ahead(world, target, arrival) : 0, box = 0, trial = ++world->trial, next = pool->next;
    if (pool->settings.kind == BATCH_POOL) {
        pool->coming_count = 0;
        for (int64_t number = 0; number <= count; number++) {
            const Arrival *entering = number < count ? world->ahead + number : arrival;
            box = chosen_box(world, pool, entering, &next, trial);
            enter_trial(world, pool, box, entering, trial);
        }
        return trial_finish_s(world, pool, box, arrival, trial) - arrival->entry_s - arrival->execution_s;
    }
    if (pool->settings.kind == STREAMING_POOL) {
        StreamingOutcome outcome = {0};
        for (int64_t number = 0; number <= count; number++) {
            const Arrival *entering = number < count ? world->ahead + number : arrival;
            StreamingBox *stream = stream_of(pool, chosen_box(world, pool, entering, &next, trial), trial);
            outcome = streaming_serve(stream, pool->settings.streaming, entering->entry_s, entering->execution_s, entering->added);
        }
        return outcome.finish_s - arrival->entry_s - arrival->execution_s;
    }
    if (pool->settings.kind == LEAST_WORK_POOL) least_work_copy(&world->memory, &pool->trial_least_work, &pool->least_work, pool->settings.boxes);
    for (int64_t number = 0; number < count; number++) enter(world, pool, world->ahead + number, &next, &box, trial);
    return enter(world, pool, arrival, &next, &box, trial) - arrival->entry_s;
}

/* Return the columns of a request for a target that streams; NULL for another target. They hold until the next call. */
static const double *added_of(World *world, const Block *block, int64_t in_block, int64_t target) {
    if (block->added == NULL || block->added[target] == NULL) return NULL;
    double *added = world->added + target * world->most_added;
    for (int64_t column = 0; column < world->pools[target].settings.streaming->columns; column++) added[column] = block->added[target][column][in_block];
    return added;
}

/* Return a request of a block as it would arrive at a target. */
static Arrival arrival_at(World *world, const Block *block, int64_t in_block, int64_t target, double now_s) {
    double entry_s = now_s;
    if (target && world->settings.paths == NULL) entry_s += block->uplink_s[target][in_block];
    return (Arrival){
        entry_s,
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
        if (target && world->settings.paths != NULL) arrival.entry_s = now_s + foreseen_way_s(world, request, arrival.node, target, 0, now_s);
        world->waits_s[target] = foreseen_wait_s(world, target, &arrival);
    }
}

static double transfer_of(World *world, const Block *block, int64_t target, int64_t in_block, double now_s) {
    if (target && world->settings.paths != NULL) {
        int64_t request = block->first + in_block, node = node_of(block, in_block);
        double there_s = foreseen_way_s(world, request, node, target, 0, now_s);
        return there_s + foreseen_way_s(world, request, node, target, 1, now_s);
    }
    return target ? block->uplink_s[target][in_block] + block->downlink_s[target][in_block] : 0.0;
}

/* Set `totals_s` to the seconds from the decision to the answer, by target, and return the least of them. */
static double foresee_totals(World *world, const Decider *decider, const Block *block, int64_t in_block, double now_s) {
    foresee_waits(world, decider, block, in_block, now_s);
    double least_s = INFINITY;
    for (int64_t target = 0; target < world->settings.targets; target++) {
        double total_s = block->execution_s[target][in_block] + (transfer_of(world, block, target, in_block, now_s) + world->waits_s[target]);
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
    if (!settings->true_transfer && !settings->true_backlog && decider->views == NULL && decider->batch_views == NULL &&
        decider->plans == NULL)
        return decider->delay_s;
    if (settings->true_transfer)
        for (int64_t target = 0; target < targets; target++) delay_s[target] = transfer_of(world, block, target, in_block, now_s);
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

/* Return the target with the least execution plus delay; a tie goes to the target named first (CNMT-09). */
static int64_t decide(const Block *block, int64_t in_block, const double *delay_s, int64_t targets) {
    if (block->choice == ALWAYS) return block->chosen;
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
    assert(request >= 0 && target >= 0 && target < world->settings.targets);
    const TransferEstimate *estimate = decider->estimates + world->settings.targets - 1;
    world->settings.target[request] = (int8_t)target;
    world->settings.estimate_s[request] = estimate->value_s;
    world->settings.measured_at_s[request] = estimate->measured_at_s;
}

/* Return whether an oracle judges the decision on a request: multiples of the golden ratio fall evenly. */
static inline int is_judged(const World *world, int64_t request) {
    return (int64_t)(((uint64_t)request * 0x9E3779B1u) & 0xFFFFFFFFu) < world->settings.judged_limit;
}

/* A message has crossed its leg, or its answer leaves the server. */
static void message_moves(World *world, RequestEvent *message, double now_s) {
    if (message->stage == AT_SERVER) {
        send_message(world, message, BACK, now_s);
        return;
    }
    message->leg += 1;
    if (message->leg < message->leg_count) {
        enter_leg(world, message, now_s);
    } else if (message->stage == THERE) {
        message->entry_s = now_s;
        reaches(world, message);
    } else {
        answer_arrives(world, message, now_s);
    }
}

/* Decide on a request and send it on its way. */
static void handle(World *world, const Block *block, int64_t in_block, double now_s) {
    WorldSettings *settings = &world->settings;
    int64_t request = block->first + in_block;
    Decider *decider = world->deciders + node_of(block, in_block) % settings->deciders;
    double least_s = 0.0;
    int judged = is_judged(world, request);
    if (judged) least_s = foresee_totals(world, decider, block, in_block, now_s);
    if (decider->answer_count && decider->answers[0].received_s <= now_s) hear(decider, now_s, settings->queue_s);
    int64_t target = decide(block, in_block, delays(world, decider, block, in_block, now_s), settings->targets);
    note_decision(world, decider, request, target);
    if (judged) settings->lost_s[request] = world->totals_s[target] - least_s;
    if (target == 0 && !settings->is_local) {
        double start_s = fifo_serve(&world->memory, &decider->device, now_s, block->execution_s[0][in_block]);
        if (start_s > now_s) settings->queue_s[request] = start_s - now_s;
        if (has_view(decider, 0)) {
            int32_t believed;
            int64_t sent_as = announce(world, decider, block, 0, in_block, now_s, &believed);
            add_answer(&world->memory, decider, (Answer){start_s, 0.0, request, sent_as, 0, 0, 0, 0});
        }
        if (settings->paths != NULL) settings->transfer_s[request] = 0.0;
        answered(world, request, start_s + block->execution_s[0][in_block]);
        return;
    }
    Arrival arrival = arrival_at(world, block, in_block, target, now_s);
    RequestEvent *event = new_event(world);
    event->request = request;
    event->target = (int32_t)target;
    event->decider = decider;
    event->node = arrival.node;
    event->sent_s = now_s;
    event->entry_s = arrival.entry_s;
    event->execution_s = arrival.execution_s;
    event->factor = arrival.factor;
    event->src_len = arrival.src_len;
    event->tgt_len = arrival.tgt_len;
    event->downlink_s = target ? block->downlink_s[target][in_block] : 0.0;
    if (arrival.added != NULL) memcpy(event->added, arrival.added, (size_t)world->most_added * sizeof(double));
    event->sent_as = announce(world, decider, block, target, in_block, now_s, &event->believed);
    if (target == 0)
        reaches(world, event);
    else if (settings->paths != NULL)
        send_message(world, event, THERE, now_s);
    else
        clock_push(&world->memory, &world->clock, event->entry_s, order_of(REACHES_SERVER, request), event);
}

#endif
