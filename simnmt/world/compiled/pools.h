/* The boxes of each target: the choice of a box, what happens when a request enters, and what an oracle foresees of it. */
#ifndef SIMNMT_WORLD_POOLS_H
#define SIMNMT_WORLD_POOLS_H

#include "deciders.h"

/* Return the box of a pool for a trial, a copy made on first access; outside a trial, the box itself. */
static FifoBox *box_of(World *world, Pool *pool, int64_t box, int64_t trial) {
    if (!trial) return pool->boxes + box;
    if (pool->trial_of[box] != trial) {
        fifo_copy(&world->memory, pool->trial_boxes + box, pool->boxes + box);
        pool->trial_of[box] = trial;
    }
    return pool->trial_boxes + box;
}

static StreamBox *stream_of(Pool *pool, int64_t box, int64_t trial) {
    if (!trial) return pool->streams + box;
    if (pool->trial_of[box] != trial) {
        pool->trial_streams[box] = pool->streams[box];
        pool->trial_streams[box].counts = NULL;
        pool->trial_of[box] = trial;
    }
    return pool->trial_streams + box;
}

/* Return the work left at a box at a moment; balancers compare it. */
static double work_left(World *world, Pool *pool, int64_t box, double now_s, int64_t trial) {
    if (pool->settings.kind == BATCH_POOL) return (double)steps_left(pool->batches + box, now_s);
    if (pool->settings.kind == STREAM_POOL) {
        double free_s = stream_of(pool, box, trial)->free_s;
        return free_s > now_s ? free_s - now_s : 0.0;
    }
    return fifo_work_left(box_of(world, pool, box, trial), now_s);
}

/* Return the box that a request enters; `next` is the state of a balancer that takes boxes in turn. */
static int64_t chosen_box(World *world, Pool *pool, const Arrival *arrival, int64_t *next, int64_t trial) {
    const PoolSettings *settings = &pool->settings;
    double now_s = arrival->entry_s;
    if (settings->balancer == BY_NODE) return arrival->node % settings->boxes;
    if (settings->balancer == IN_TURN) {
        int64_t box = *next;
        *next = (box + 1) % settings->boxes;
        return box;
    }
    int is_drawn = settings->balancer == LEAST_LOADED_OF_DRAWN;
    int64_t candidates = is_drawn ? settings->drawn : settings->boxes, best = is_drawn ? settings->choices[0][arrival->request] : 0;
    if (candidates == 1) return best;
    double least = work_left(world, pool, best, now_s, trial);
    for (int64_t number = 1; number < candidates && least != 0.0; number++) {
        int64_t other = is_drawn ? settings->choices[number][arrival->request] : number;
        double left = work_left(world, pool, other, now_s, trial);
        if (left < least) {
            best = other;
            least = left;
        }
    }
    return best;
}

/* Let a request enter a first-in first-out box; return when it starts, and set its box. In a trial only copies change. */
static double enter_fifo(World *world, Pool *pool, const Arrival *arrival, int64_t *next, int64_t *box, int64_t trial) {
    if (pool->settings.kind == LEAST_WORK_POOL)
        return least_work_enter(&world->memory, trial ? &pool->trial_least_work : &pool->least_work, arrival->entry_s, arrival->execution_s, box);
    *box = chosen_box(world, pool, arrival, next, trial);
    return fifo_serve(&world->memory, box_of(world, pool, *box, trial), arrival->entry_s, arrival->execution_s);
}

/* Let a request enter a box that streams, and record its execution. */
static StreamOutcome enter_stream(World *world, Pool *pool, const Arrival *arrival, int64_t *box) {
    const WorldSettings *trail = &world->settings;
    const StreamSettings *settings = pool->settings.stream;
    *box = chosen_box(world, pool, arrival, &pool->next, 0);
    StreamOutcome outcome = stream_serve(pool->streams + *box, settings, arrival->entry_s, arrival->execution_s, arrival->added);
    int64_t request = arrival->request;
    double latency_s = outcome.finish_s - arrival->entry_s;
    trail->queue_s[request] = outcome.begin_s - arrival->entry_s;
    trail->server[request] = (int16_t)(pool->target ? *box : 0);
    trail->execution_s[request] = outcome.finish_s - outcome.begin_s;
    trail->first_token_s[request] = latency_s - arrival->added[0];
    trail->state[request] = (int8_t)outcome.state;
    trail->stall_s[request] = outcome.stall_s;
    trail->deadline_missed[request] = latency_s - arrival->added[1] > settings->within_s;
    return outcome;
}

/* Record the box and the wait of a request that was executed, and send its answer, which the decider hears at `heard_s` if it is
 * of its own device. */
static void answer(World *world, RequestEvent *event, double begin_s, double finish_s, int64_t box, double heard_s, int64_t report, int64_t left_waiting) {
    int64_t request = event->request;
    double received_s = finish_s, transfer_s = 0.0;
    if (begin_s > event->entry_s) world->settings.queue_s[request] = begin_s - event->entry_s;
    if (event->target) {
        if (box) world->settings.server[request] = (int16_t)box;
        heard_s = received_s = finish_s + event->downlink_s;
        transfer_s = (received_s - event->sent_s) - (finish_s - event->entry_s);
    }
    if (event->target || has_view(event->decider, 0))
        add_answer(&world->memory, event->decider,
                   (Answer){heard_s, transfer_s, request, event->sent_as, event->target, (int32_t)report, (int32_t)left_waiting, event->believed});
    answered(world, request, received_s);
    free_event(world, event);
}

/* Put a box that batches on the clock for the moment at which it acts next. */
static void arm(World *world, Pool *pool, int64_t box) {
    const BatchBox *batch = pool->batches + box;
    if (batch->next_s == INFINITY || batch->next_s == pool->armed_s[box]) return;
    if (!batch->until && batch->joining_is == NOBODY) note_moment(world, batch->next_s); /* a wait for company may end sooner */
    pool->armed_s[box] = batch->next_s;
    clock_push(&world->memory, &world->clock, batch->next_s, order_of(BATCH_ACTS, (pool->target << 32) + box), pool);
}

static void batch_acts(World *world, Pool *pool, int64_t box, double now_s) {
    BatchBox *batch = pool->batches + box;
    if (pool->armed_s[box] == now_s) pool->armed_s[box] = INFINITY;
    if (batch->next_s != now_s) return; /* it was brought forward */
    note_moment(world, now_s);
    batch_box_act(&world->memory, batch);
    for (int64_t number = 0; number < batch->done_count; number++) {
        const Finished *done = batch->done + number;
        RequestEvent *event = done->event;
        world->settings.execution_s[done->request] = done->finish_s - done->begin_s;
        world->settings.first_token_s[done->request] = done->first_s - event->entry_s;
        answer(world, event, done->begin_s, done->finish_s, box, done->finish_s, batch->left_active, batch->left_waiting);
    }
    arm(world, pool, box);
}

static Arrival arrival_of(const RequestEvent *event) {
    return (Arrival){event->entry_s, event->execution_s, event->factor, event->request, event->node, event->src_len, event->tgt_len, event->added};
}

/* The request of an event has reached its target. */
static void reaches(World *world, RequestEvent *event) {
    int64_t box = 0;
    Pool *pool = world->pools + event->target;
    Arrival arrival = arrival_of(event);
    if (pool->settings.kind == BATCH_POOL) {
        box = chosen_box(world, pool, &arrival, &pool->next, 0);
        Waiting sentence = {event->entry_s, 0.0, event->factor, event->request, event->src_len, event->tgt_len, 0, event};
        batch_box_arrive(&world->memory, pool->batches + box, sentence);
        arm(world, pool, box);
    } else if (pool->settings.kind == STREAM_POOL) {
        StreamOutcome outcome = enter_stream(world, pool, &arrival, &box);
        answer(world, event, outcome.begin_s, outcome.finish_s, box, outcome.begin_s, outcome.state, 0);
    } else {
        double start_s = enter_fifo(world, pool, &arrival, &pool->next, &box, 0);
        answer(world, event, start_s, start_s + event->execution_s, box, start_s, 0, 0);
    }
}

static int compare_arrivals(const void *one, const void *other) {
    const Arrival *first = one, *second = other;
    if (first->entry_s != second->entry_s) return first->entry_s < second->entry_s ? -1 : 1;
    return first->request < second->request ? -1 : first->request > second->request;
}

/* Set `ahead` to the requests on their way to a target that will reach it before an arrival, in their order; return their
 * number. */
static int64_t find_ahead(World *world, int64_t target, const Arrival *arrival) {
    int64_t count = 0;
    for (int64_t place = 0; place < world->clock.count; place++) {
        const Entry *entry = world->clock.heap + place;
        const RequestEvent *event = entry->event;
        if (kind_of(entry->order) != REACHES || event->target != target) continue;
        if (!is_before(entry->at_s, event->request, arrival->entry_s, arrival->request)) continue;
        GROW(&world->memory, world->ahead, count, world->ahead_capacity);
        world->ahead[count++] = arrival_of(event);
    }
    if (count) qsort(world->ahead, (size_t)count, sizeof(Arrival), compare_arrivals);
    return count;
}

/* Return the seconds of an arrival at a target beyond execution alone, after the requests on their way; at boxes that batch a
 * guess, by the steps that are left now. */
static double foreseen_wait_s(World *world, int64_t target, const Arrival *arrival, double now_s) {
    Pool *pool = world->pools + target;
    int64_t box = 0, trial = ++world->trial, next = pool->next;
    if (pool->settings.kind == BATCH_POOL) {
        Arrival now = *arrival;
        now.entry_s = now_s;
        return (double)steps_left(pool->batches + chosen_box(world, pool, &now, &next, 0), now_s) * pool->settings.full_step_s;
    }
    int64_t count = target ? find_ahead(world, target, arrival) : 0;
    if (pool->settings.kind == STREAM_POOL) {
        StreamOutcome outcome = {0};
        for (int64_t number = 0; number <= count; number++) {
            const Arrival *entering = number < count ? world->ahead + number : arrival;
            StreamBox *stream = stream_of(pool, chosen_box(world, pool, entering, &next, trial), trial);
            outcome = stream_serve(stream, pool->settings.stream, entering->entry_s, entering->execution_s, entering->added);
        }
        return outcome.finish_s - arrival->entry_s - arrival->execution_s;
    }
    if (pool->settings.kind == LEAST_WORK_POOL)
        least_work_copy(&world->memory, &pool->trial_least_work, &pool->least_work, pool->settings.boxes);
    for (int64_t number = 0; number < count; number++) enter_fifo(world, pool, world->ahead + number, &next, &box, trial);
    return enter_fifo(world, pool, arrival, &next, &box, trial) - arrival->entry_s;
}

/* Stop waiting for company; return whether a sentence was waiting. */
static int close_pool(World *world, Pool *pool) {
    int was_holding = 0;
    for (int64_t box = 0; box < pool->settings.boxes; box++)
        if (holds_sentences(pool->batches + box)) {
            was_holding = 1;
            batch_box_close(pool->batches + box, world->latest_s);
            arm(world, pool, box);
        }
    return was_holding;
}

#endif
