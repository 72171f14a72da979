/* The batched servers of a target: on the clock, and as an oracle foresees them. See batch_pool.py. */
#ifndef SIMNMT_WORLD_BATCH_POOL_H
#define SIMNMT_WORLD_BATCH_POOL_H

#include "messages.h"

static Waiting sentence_of(const Arrival *arrival, void *event) {
    return (Waiting){arrival->entry_s, 0.0, arrival->factor, arrival->request, arrival->src_len, arrival->tgt_len, 0, event};
}

/* Put a server on the clock for the moment at which it acts next. */
static void arm(World *world, Pool *pool, int64_t box) {
    double at_s = pool->servers[box].next_s;
    if (at_s == INFINITY || at_s == pool->armed_s[box]) return;
    pool->armed_s[box] = at_s;
    clock_push(&world->memory, &world->clock, at_s, order_of(SERVER_ACTS, (pool->target << 32) + box), pool);
}

/* Send the answers of the sentences that are done. */
static void answer_done(World *world, Pool *pool, int64_t box) {
    const WorldSettings *settings = &world->settings;
    BatchServer *server = pool->servers + box;
    int32_t target = (int32_t)pool->target;
    for (int64_t number = 0; number < server->done_count; number++) {
        const Finished *done = server->done + number;
        RequestEvent *event = done->event;
        Decider *decider = event->decider;
        int64_t request = done->request;
        double finish_s = done->finish_s, heard_s = finish_s, received_s = finish_s, transfer_s = 0.0;
        settings->execution_s[request] = finish_s - done->begin_s;
        settings->first_token_s[request] = done->first_s - event->entry_s;
        if (settings->paths != NULL) {
            answer_by_message(world, event, done->begin_s, finish_s, box, finish_s, server->left_active, server->left_waiting);
            continue;
        }
        settings->queue_s[request] = done->begin_s - event->entry_s;
        if (target) {
            settings->server[request] = (int16_t)box;
            heard_s = received_s = finish_s + event->downlink_s;
            transfer_s = (received_s - event->sent_s) - (finish_s - event->entry_s);
        }
        if (target || has_view(decider, 0))
            add_answer(&world->memory, decider,
                       (Answer){heard_s, transfer_s, request, event->sent_as, target, (int32_t)server->left_active, (int32_t)server->left_waiting, event->believed});
        answered(world, request, received_s);
        free_event(world, event);
    }
}

static void server_acts(World *world, Pool *pool, int64_t box, double now_s) {
    BatchServer *server = pool->servers + box;
    if (pool->armed_s[box] == now_s) pool->armed_s[box] = INFINITY;
    if (server->next_s != now_s) return;
    batch_server_act(&world->memory, server);
    answer_done(world, pool, box);
    arm(world, pool, box);
}

/* Return a copy of a server at the moment when few enough sentences wait; NULL if few wait now. */
static BatchServer *later_of(World *world, Pool *pool, int64_t box) {
    Memory *memory = &world->memory;
    if (pool->servers[box].batcher.waiting.count <= pool->settings.enough) {
        pool->has_later[box] = 0;
        return NULL;
    }
    BatchServer *later = pool->laters + box;
    if (!pool->has_later[box]) {
        batch_server_copy(memory, later, pool->servers + box);
        later->foretells = 1;
        pool->has_later[box] = 1;
    }
    while (later->batcher.waiting.count > pool->settings.enough) batch_server_act(memory, later);
    return later;
}

/* Return the trial copy of a server, advanced to a moment but not past its events; the server itself if it has a later copy. */
static BatchServer *trial_of(World *world, Pool *pool, int64_t box, double now_s, int64_t trial) {
    Memory *memory = &world->memory;
    BatchServer *copied = pool->trials + box;
    if (pool->trial_of[box] != trial) {
        pool->trial_of[box] = trial;
        pool->uses_later[box] = later_of(world, pool, box) != NULL;
        if (!pool->uses_later[box]) batch_server_copy(memory, copied, pool->servers + box);
    }
    if (pool->uses_later[box]) return pool->servers + box;
    while (copied->next_s < now_s) batch_server_act(memory, copied);
    return copied;
}

/* Return the steps that are left at a server at a moment; in a trial with the sentences that entered there. */
static double work_left_at(World *world, Pool *pool, int64_t box, double now_s, int64_t trial) {
    if (!trial) return (double)steps_left(pool->servers + box, now_s);
    const BatchServer *server = trial_of(world, pool, box, now_s, trial);
    int64_t left = steps_left(server, server->next_s < now_s ? server->next_s : now_s);
    for (int64_t number = 0; pool->uses_later[box] && number < pool->coming_count; number++)
        if (pool->coming[number].box == box) left += pool->coming[number].sentence.tgt_len;
    return (double)left;
}

/* Let a request enter a server in a trial. */
static void enter_trial(World *world, Pool *pool, int64_t box, const Arrival *arrival, int64_t trial) {
    BatchServer *server = trial_of(world, pool, box, arrival->entry_s, trial);
    Waiting sentence = sentence_of(arrival, NULL);
    if (!pool->uses_later[box]) {
        batch_server_arrive(&world->memory, server, sentence);
        return;
    }
    GROW(&world->memory, pool->coming, pool->coming_count, pool->coming_capacity);
    pool->coming[pool->coming_count++] = (Coming){box, sentence};
}

/* Return when the last request to enter would finish. */
static double trial_finish_s(World *world, Pool *pool, int64_t box, const Arrival *last, int64_t trial) {
    Memory *memory = &world->memory;
    BatchServer *server = pool->trials + box;
    trial_of(world, pool, box, last->entry_s, trial);
    if (pool->uses_later[box]) {
        batch_server_copy(memory, server, pool->laters + box);
        for (int64_t number = 0; number < pool->coming_count; number++)
            if (pool->coming[number].box == box) batch_server_arrive(memory, server, pool->coming[number].sentence);
    }
    server->foretells = 1;
    double now_s = last->entry_s;
    for (;;) {
        if (server->next_s == INFINITY) batch_server_close(server, now_s);
        now_s = server->next_s;
        batch_server_act(memory, server);
        for (int64_t number = 0; number < server->done_count; number++)
            if (server->done[number].request == last->request) return server->done[number].finish_s;
    }
}

/* Stop waiting for company; return whether a sentence was waiting. */
static int close_pool(World *world, Pool *pool) {
    int was_holding = 0;
    for (int64_t box = 0; box < pool->settings.boxes; box++)
        if (holds_sentences(pool->servers + box)) {
            was_holding = 1;
            batch_server_close(pool->servers + box, world->clock.now_s);
            arm(world, pool, box);
        }
    return was_holding;
}

/* Sentences that one server decodes without a clock, as Python hands them over; columns by sentence. */
typedef struct {
    const BatchCost *cost;
    Batching batching;
    int64_t count, allocations;
    const int64_t *src_len, *tgt_len;
    const double *arrival_s;
    double *begin_s, *finish_s, *first_s;
} Decoding;

static void act_and_note(Memory *memory, BatchServer *server, const Decoding *decoding) {
    batch_server_act(memory, server);
    for (int64_t number = 0; number < server->done_count; number++) {
        const Finished *done = server->done + number;
        decoding->begin_s[done->request] = done->begin_s;
        decoding->finish_s[done->request] = done->finish_s;
        decoding->first_s[done->request] = done->first_s;
    }
}

/* Let one server decode sentences that arrive in order of time; it knows when no more will come. */
static void decode_all(Memory *memory, BatchServer *server, const Decoding *decoding) {
    server->foretells = 1;
    for (int64_t request = 0; request < decoding->count; request++) {
        double now_s = decoding->arrival_s[request];
        while (server->next_s < now_s) act_and_note(memory, server, decoding);
        batch_server_arrive(memory, server, (Waiting){now_s, 0.0, 1.0, request, decoding->src_len[request], decoding->tgt_len[request], 0, NULL});
    }
    if (decoding->count) batch_server_close(server, decoding->arrival_s[decoding->count - 1]);
    while (holds_sentences(server)) act_and_note(memory, server, decoding);
}

#endif
