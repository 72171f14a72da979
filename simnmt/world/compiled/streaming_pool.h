/* The boxes of a target that stream their model, and what an oracle foresees of them. See `StreamingPool` in
 * streaming_server.py. */
#ifndef SIMNMT_WORLD_STREAMING_POOL_H
#define SIMNMT_WORLD_STREAMING_POOL_H

#include "messages.h"

/* Return a box for a trial, a copy made on first access; outside a trial, the box itself. */
static StreamingBox *stream_of(Pool *pool, int64_t box, int64_t trial) {
    if (!trial) return pool->streams + box;
    if (pool->trial_of[box] != trial) {
        pool->trial_streams[box] = pool->streams[box];
        pool->trial_streams[box].counts = NULL;
        pool->trial_of[box] = trial;
    }
    return pool->trial_streams + box;
}

/* Let a request enter a box, and record its execution by the plans that hold when it enters. */
static StreamingOutcome execute_streamed(World *world, Pool *pool, int64_t box, const Arrival *arrival) {
    const WorldSettings *trail = &world->settings;
    const StreamingSettings *settings = pool->settings.streaming;
    StreamingOutcome outcome = streaming_serve(pool->streams + box, settings, arrival->entry_s, arrival->execution_s, arrival->added);
    int64_t request = arrival->request, phase = 0;
    while (phase + 1 < settings->phases && settings->plans[phase + 1].begin_s <= arrival->entry_s) phase += 1;
    const Plans *plans = settings->plans + phase;
    double latency_s = outcome.finish_s - arrival->entry_s;
    trail->queue_s[request] = outcome.begin_s - arrival->entry_s;
    trail->server[request] = (int16_t)(pool->target ? box : 0);
    trail->execution_s[request] = outcome.finish_s - outcome.begin_s;
    trail->first_token_s[request] = latency_s - arrival->added[plans->offset];
    trail->state[request] = (int8_t)outcome.state;
    trail->stall_s[request] = outcome.stall_s;
    trail->deadline_missed[request] = latency_s - arrival->added[plans->offset + 1] > plans->within_s;
    return outcome;
}

/* Send the answer of a request that reaches its box; the outcome is known on entry. */
static void reaches_stream(World *world, Pool *pool, int64_t box, RequestEvent *event, const Arrival *arrival) {
    StreamingOutcome outcome = execute_streamed(world, pool, box, arrival);
    int32_t target = (int32_t)pool->target;
    if (world->settings.paths != NULL) {
        answer_by_message(world, event, outcome.begin_s, outcome.finish_s, box, outcome.begin_s, outcome.state, 0);
        return;
    }
    double heard_s = outcome.begin_s, received_s = outcome.finish_s, transfer_s = 0.0;
    if (target) {
        heard_s = received_s = outcome.finish_s + event->downlink_s;
        transfer_s = (received_s - event->sent_s) - (outcome.finish_s - event->entry_s);
    }
    if (target || has_view(event->decider, 0))
        add_answer(&world->memory, event->decider,
                   (Answer){heard_s, transfer_s, event->request, event->sent_as, target, (int32_t)outcome.state, 0, event->believed});
    answered(world, event->request, received_s);
    free_event(world, event);
}

#endif
