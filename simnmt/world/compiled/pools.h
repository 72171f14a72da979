/* The boxes of each target: the choice of a box, what happens when a request enters, and what an oracle foresees of it. */
#ifndef SIMNMT_WORLD_POOLS_H
#define SIMNMT_WORLD_POOLS_H

#include "deciders.h"

static void pool_begin(World *world, Pool *self, int64_t target, const PoolSettings *settings) {
    Memory *memory = world->memory;
    int64_t kind = settings->kind, boxes = settings->boxes;
    self->settings = *settings;
    self->target = target;
    self->is_least_work = kind == FIFO_POOL && settings->balancer == LEAST_WORK;
    self->trial_of = zeroed(memory, boxes, sizeof(int64_t));
    if (kind == BATCH_POOL) {
        self->batches = zeroed(memory, boxes, sizeof(BatchBox));
    } else if (kind == SLOT_POOL) {
        self->slots = zeroed(memory, boxes, sizeof(SlotBox));
    } else if (kind == QUEUE_POOL) {
        self->queues = zeroed(memory, boxes, sizeof(QueueBox));
    } else if (kind == STREAM_POOL) {
        if (settings->stream->columns > world->most_added) world->most_added = settings->stream->columns;
        self->streams = zeroed(memory, boxes, sizeof(StreamBox));
        self->trial_streams = zeroed(memory, boxes, sizeof(StreamBox));
    } else {
        self->boxes = zeroed(memory, boxes, sizeof(FifoBox));
        self->trial_boxes = zeroed(memory, boxes, sizeof(FifoBox));
        if (self->is_least_work) fifo_begin(memory, self->boxes, boxes, settings->workers);
    }
    if (kind == FIFO_POOL && settings->max_waiting) self->rooms = rooms_new(memory, boxes, settings->max_waiting);
    int has_loads = settings->models != NULL && !settings->models->keeps_all;
    if (has_loads) self->models = zeroed(memory, boxes, sizeof(ModelBox));
    for (int64_t box = 0; box < boxes; box++) {
        if (kind == BATCH_POOL) batch_box_begin(memory, self->batches + box, &settings->batching, settings->cost, settings->models);
        if (kind == SLOT_POOL) slot_box_begin(memory, self->slots + box, settings->slots);
        if (kind == STREAM_POOL) stream_begin(memory, self->streams + box, settings->stream->states);
        if (kind == QUEUE_POOL) queue_box_begin(memory, self->queues + box, &self->settings.classes, settings->workers);
        if (self->boxes != NULL && !self->is_least_work) fifo_begin(memory, self->boxes + box, 1, settings->workers);
        if (has_loads) model_box_begin(memory, self->models + box, settings->models);
    }
}

/* Return the box of a pool for a trial, a copy made on first access; outside a trial, the box itself. */
static inline FifoBox *box_of(World *world, Pool *pool, int64_t box, int64_t trial) {
    if (!trial) return pool->boxes + box;
    if (pool->trial_of[box] != trial) {
        int64_t boxes = pool->is_least_work ? pool->settings.boxes : 1;
        fifo_copy(world->memory, pool->trial_boxes + box, pool->boxes + box, boxes);
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
    if (pool->settings.kind == SLOT_POOL) return (double)tokens_left(pool->slots + box, now_s);
    if (pool->settings.kind == STREAM_POOL) return larger(0.0, stream_of(pool, box, trial)->free_s - now_s);
    if (pool->settings.kind == QUEUE_POOL) {
        QueueBox *queue = pool->queues + box;
        if (pool->settings.balancer == LEAST_WORK && has_idle_worker(queue)) return idle_since(queue) - now_s;
        return queue_box_work_left(world->memory, queue, now_s, pool->settings.classes.count);
    }
    const FifoBox *fifo = box_of(world, pool, box, trial);
    if (pool->settings.balancer == LEAST_WORK) return fifo->first_s - now_s; /* below 0: since when it is idle */
    return fifo_work_left(fifo, now_s);
}

/* Return the box that a request enters; `next` is the state of a balancer that takes boxes in turn. */
static inline int64_t chosen_box(World *world, Pool *pool, const Arrival *arrival, int64_t *next, int64_t trial) {
    const PoolSettings *settings = &pool->settings;
    double now_s = arrival->entry_s;
    if (settings->boxes == 1) return 0;
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
    for (int64_t number = 1; number < candidates && (least != 0.0 || settings->kind == MODEL_POOL || settings->kind == QUEUE_POOL); number++) {
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
static inline double enter_fifo(World *world, Pool *pool, const Arrival *arrival, int64_t *next, int64_t *box, int64_t trial) {
    *box = pool->is_least_work ? 0 : chosen_box(world, pool, arrival, next, trial);
    FifoBox *fifo = box_of(world, pool, *box, trial);
    if (pool->is_least_work) *box = fifo->workers.items[0].box;
    return fifo_serve(world->memory, fifo, arrival->entry_s, arrival->execution_s);
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

/* Forget the first token of the execution before a request was sent on, at a target that records none. Until it is accepted there,
 * the first translation may be its answer. */
static RARE void forget_first_token(const WorldSettings *settings, const RequestEvent *event) {
    int64_t kind = event->pool->settings.kind;
    if (settings->deferred_exe_s == NULL || settings->first_token_s == NULL) return;
    if (kind == BATCH_POOL || kind == SLOT_POOL || kind == STREAM_POOL) return;
    settings->first_token_s[event->arrival.request] = NAN;
}

/* Record the box and the wait of a request that was executed, and send its answer, which the decider hears at `heard_s` if it is
 * of its own device. */
static inline void answer(World *world, RequestEvent *event, double begin_s, double finish_s, int64_t box, double heard_s, int32_t report,
                   int32_t left_waiting) {
    int64_t request = event->arrival.request;
    double entry_s = event->arrival.entry_s, received_s = finish_s;
    world->settings.queue_s[request] = event->wait_s = begin_s - entry_s;
    event->transfer_s = 0.0;
    event->report = report;
    event->left_waiting = left_waiting;
    if (event->target) {
        if (box) world->settings.server[request] = (int16_t)box;
        heard_s = received_s = finish_s + event->downlink_s;
        event->transfer_s = (received_s - event->sent_s) - (finish_s - entry_s);
    }
    if (event->decider->notes_executions) {
        if (event->target) forget_first_token(&world->settings, event);
        receive(world, event->decider, request, event->target != 0, received_s);
    } else {
        answered(world, request, received_s);
    }
    if (event->target || hears_itself(event->decider))
        clock_push(world->memory, &event->decider->answers, (Entry){heard_s, request, event});
    else
        free_event(world, event);
}

/* Put a box that batches on the clock for the moment at which it acts next. */
static INLINED void arm(World *world, Pool *pool, int64_t box) {
    BatchBox *batch = pool->batches + box;
    if (batch->next_s == INFINITY || batch->next_s == batch->armed_s) return;
    if (!batch->until && !batch->is_joining) note_moment(world, batch->next_s); /* a wait for company may end sooner */
    batch->armed_s = batch->next_s;
    clock_push(world->memory, &world->clock, (Entry){batch->next_s, order_of(BATCH_ACTS, ((pool - world->pools) << 32) + box), pool});
}

/* Let the first load of a box begin, if one waits and its memory is free. */
static void begin_load(World *world, Pool *pool, int64_t box, double now_s) {
    ModelBox *models = pool->models + box;
    if (!load_begin(models, now_s)) return;
    clock_push(world->memory, &world->clock, (Entry){models->load_ends_s, order_of(LOADED, (pool->target << 32) + box), pool});
}

/* Put a box with slots on the clock for the moment at which it acts next. */
static void arm_slots(World *world, Pool *pool, int64_t box) {
    SlotBox *slots = pool->slots + box;
    if (slots->next_s == INFINITY || slots->next_s == slots->armed_s) return;
    slots->armed_s = slots->next_s;
    clock_push(world->memory, &world->clock, (Entry){slots->next_s, order_of(BATCH_ACTS, ((pool - world->pools) << 32) + box), pool});
}

/* Let a decider hear the answers of its device before those that a box gives now without a link. */
static void hear_earlier(World *world, const RequestEvent *event, double finish_s, double now_s) {
    if (finish_s + event->downlink_s > now_s) return;
    hear(world, event->decider, now_s);
    if (event->decider->cache != NULL) cache_hear(world, event->decider->cache, now_s);
}

static void slots_act(World *world, Pool *pool, int64_t box, double now_s) {
    SlotBox *slots = pool->slots + box;
    double request_s = slots->settings->request_s, finish_s = now_s + request_s;
    if (slots->armed_s == now_s) slots->armed_s = INFINITY;
    if (slots->next_s != now_s) return; /* it was brought forward */
    note_moment(world, now_s);
    slot_box_act(world->memory, slots);
    for (int64_t number = 0; number < slots->done.count; number++) hear_earlier(world, slots->done.items[number].event, finish_s, now_s);
    for (int64_t number = 0; number < slots->done.count; number++) {
        const Slotted *done = slots->done.items + number;
        RequestEvent *event = done->event;
        world->settings.execution_s[done->request] = finish_s - done->begin_s;
        world->settings.first_token_s[done->request] = done->first_s + request_s - event->arrival.entry_s;
        answer(world, event, done->begin_s, finish_s, box, finish_s, (int32_t)slots->left_active, (int32_t)slots->left_waiting);
    }
    arm_slots(world, pool, box);
}

static void batch_acts(World *world, Pool *pool, int64_t box, double now_s) {
    BatchBox *batch = pool->batches + box;
    if (batch->armed_s == now_s) batch->armed_s = INFINITY;
    if (batch->next_s != now_s) return; /* it was brought forward */
    note_moment(world, now_s);
    batch_box_act(world->memory, batch);
    for (int64_t number = 0; number < batch->done.count; number++) hear_earlier(world, batch->done.items[number].event, now_s, now_s);
    for (int64_t number = 0; number < batch->done.count; number++) {
        const Active *done = batch->done.items + number;
        RequestEvent *event = done->event;
        if (pool->models != NULL) event->copies[0]->requests -= 1;
        world->settings.execution_s[done->request] = now_s - done->begin_s;
        world->settings.first_token_s[done->request] = done->first_s - event->arrival.entry_s;
        answer(world, event, done->begin_s, now_s, box, now_s, (int32_t)batch->left_active, (int32_t)batch->left_waiting);
    }
    if (pool->models != NULL) begin_load(world, pool, box, now_s);
    arm(world, pool, box);
}

/* Let a request wait at a box that batches, and whose model is loaded. */
static void wait_in_batch(World *world, Pool *pool, int64_t box, RequestEvent *event, double now_s) {
    const Arrival *arrival = &event->arrival;
    Waiting sentence = {now_s, 0.0, arrival->factor, arrival->request, arrival->src_len, arrival->tgt_len, 0, arrival->models[0], event};
    batch_box_arrive(world->memory, pool->batches + box, sentence, arrival->rank);
    arm(world, pool, box);
}

/* Note when a request at a box that loads models ends. */
static void ends_known(RequestEvent *event, double finish_s) {
    for (int number = 0; number < 2 && event->copies[number] != NULL; number++) {
        ModelCopy *copy = event->copies[number];
        copy->ended_s = larger(copy->ended_s, finish_s);
        copy->requests -= 1;
    }
}

/* Let a worker of a box that keeps a queue execute a request from now on. */
static void begin_execution(World *world, Pool *pool, int64_t box, RequestEvent *event, double now_s) {
    const PoolSettings *settings = &pool->settings;
    QueueBox *queue = pool->queues + box;
    double execution_s = event->arrival.execution_s;
    if (settings->factor_count) {
        int64_t others = queue_box_occupancy(queue), last = settings->factor_count - 1;
        execution_s *= settings->factors[others < last ? others : last];
        world->settings.execution_s[event->arrival.request] = execution_s;
    }
    double finish_s = now_s + execution_s;
    queue_box_occupy(world->memory, queue, finish_s);
    clock_push(world->memory, &world->clock, (Entry){finish_s, order_of(COMPLETES, ((pool - world->pools) << 32) + box), pool});
    if (pool->models != NULL) ends_known(event, finish_s);
    answer(world, event, now_s, finish_s, box, now_s, 0, 0);
}

/* Let a request, whose models are loaded, enter a box that keeps a queue. */
static void enter_queue(World *world, Pool *pool, int64_t box, RequestEvent *event, double now_s) {
    QueueBox *queue = pool->queues + box;
    if (has_idle_worker(queue))
        begin_execution(world, pool, box, event, now_s);
    else
        queue_box_add(world->memory, queue, event->arrival.rank, (Queued){now_s, event->arrival.execution_s, event});
}

/* A worker of a box that keeps a queue has come free. */
static void queue_completes(World *world, Pool *pool, int64_t box, double now_s) {
    QueueBox *queue = pool->queues + box;
    queue_box_release(world->memory, queue);
    if (!queue->waiting) return;
    begin_execution(world, pool, box, queue_box_take(queue, now_s).event, now_s);
    if (pool->models != NULL) begin_load(world, pool, box, now_s);
}

/* Execute a request whose models are loaded from now on. */
static void execute_loaded(World *world, Pool *pool, int64_t box, RequestEvent *event, double now_s) {
    const Arrival *arrival = &event->arrival;
    world->settings.load_wait_s[arrival->request] = now_s - arrival->entry_s;
    if (pool->settings.kind == BATCH_POOL) {
        wait_in_batch(world, pool, box, event, now_s);
        return;
    }
    if (pool->settings.kind == QUEUE_POOL) {
        enter_queue(world, pool, box, event, now_s);
        return;
    }
    double start_s = fifo_serve(world->memory, pool->boxes + box, now_s, arrival->execution_s);
    double finish_s = start_s + arrival->execution_s;
    ends_known(event, finish_s);
    answer(world, event, start_s, finish_s, box, start_s, 0, 0);
}

static void enter_models(World *world, Pool *pool, RequestEvent *event) {
    const Arrival *arrival = &event->arrival;
    int64_t box = chosen_box(world, pool, arrival, &pool->next, 0);
    ModelBox *models = pool->models + box;
    event->copies[1] = NULL;
    world->settings.model_load[arrival->request] = 0;
    int count = arrival->models[1] < 0 ? 1 : 2;
    /* What is in memory enters first, so that the load of the other model of a pivot does not evict it. */
    int swapped = count == 2 && held_at(models, arrival->models[0]) < 0 && held_at(models, arrival->models[1]) >= 0;
    for (int place = 0; place < count; place++) {
        int number = place ^ swapped, is_hit;
        event->copies[number] = model_enter(world->memory, models, arrival->models[number], &is_hit);
        world->settings.model_load[arrival->request] |= (int8_t)(!is_hit << number);
    }
    begin_load(world, pool, box, arrival->entry_s);
    int64_t until = loads_until(models, arrival->models);
    if (until) {
        ModelCopy *last = *loads_at(&models->loads, until - 1);
        APPEND(world->memory, last->waiting, event);
    } else
        execute_loaded(world, pool, box, event, arrival->entry_s);
}

/* A model has been loaded: the requests that wait for it are ready in the order in which they entered. */
static void model_loaded(World *world, Pool *pool, int64_t box, double now_s) {
    ModelBox *models = pool->models + box;
    ModelCopy *copy = loads_take(&models->loads);
    copy->is_loaded = 1;
    models->is_loading = 0;
    for (int64_t number = 0; number < copy->waiting.count; number++) execute_loaded(world, pool, box, copy->waiting.items[number], now_s);
    copy->waiting.count = 0;
    begin_load(world, pool, box, now_s);
}

/* Return whether a box refuses a request that enters now. */
static inline int is_box_full(const Pool *pool, int64_t box, double now_s) {
    if (!pool->settings.max_waiting) return 0;
    if (pool->settings.kind == BATCH_POOL) return queued_sentences(pool->batches + box) >= pool->settings.max_waiting;
    if (pool->settings.kind == SLOT_POOL) return pool->slots[box].waiting.count >= pool->settings.max_waiting;
    if (pool->settings.kind == QUEUE_POOL) return pool->queues[box].waiting >= pool->settings.max_waiting;
    return is_room_full(pool->rooms + box, now_s);
}

/* Send a refusal to the decider of a request that has found its box full. */
static void refuse(World *world, RequestEvent *event) {
    double heard_s = event->arrival.entry_s + event->downlink_s;
    clock_push(world->memory, &world->clock, (Entry){heard_s, order_of(REFUSAL, event->arrival.request), event});
}

/* Let a request enter a box with slots. */
static void enter_slots(World *world, Pool *pool, RequestEvent *event) {
    const Arrival *arrival = &event->arrival;
    int64_t box = chosen_box(world, pool, arrival, &pool->next, 0);
    if (is_too_long(pool->settings.slots, arrival->src_len, arrival->tgt_len) || is_box_full(pool, box, arrival->entry_s)) {
        refuse(world, event);
        return;
    }
    Slotted request = {arrival->request, arrival->src_len, arrival->tgt_len, 0, 0, 0.0, 0.0, event};
    slot_box_arrive(world->memory, pool->slots + box, request, arrival->entry_s);
    arm_slots(world, pool, box);
}

/* Let a request enter a first-in first-out box that may be full. */
static void enter_limited(World *world, Pool *pool, RequestEvent *event) {
    const Arrival *arrival = &event->arrival;
    int64_t box = pool->is_least_work ? pool->boxes->workers.items[0].box : chosen_box(world, pool, arrival, &pool->next, 0);
    if (is_box_full(pool, box, arrival->entry_s)) {
        refuse(world, event);
        return;
    }
    FifoBox *fifo = pool->boxes + (pool->is_least_work ? 0 : box);
    double start_s = fifo_serve(world->memory, fifo, arrival->entry_s, arrival->execution_s);
    starts_add(world->memory, &pool->rooms[box].starts, start_s);
    answer(world, event, start_s, start_s + arrival->execution_s, box, start_s, 0, 0);
}

/* The request of an event has reached its target. */
static inline void reaches(World *world, RequestEvent *event) {
    int64_t box = 0;
    Pool *pool = event->pool;
    const Arrival *arrival = &event->arrival;
    if (pool->models != NULL) {
        enter_models(world, pool, event);
    } else if (pool->settings.kind == BATCH_POOL) {
        box = chosen_box(world, pool, arrival, &pool->next, 0);
        if (is_box_full(pool, box, arrival->entry_s))
            refuse(world, event);
        else
            wait_in_batch(world, pool, box, event, arrival->entry_s);
    } else if (pool->settings.kind == SLOT_POOL) {
        enter_slots(world, pool, event);
    } else if (pool->rooms != NULL) {
        enter_limited(world, pool, event);
    } else if (pool->settings.kind == STREAM_POOL) {
        StreamOutcome outcome = enter_stream(world, pool, arrival, &box);
        answer(world, event, outcome.begin_s, outcome.finish_s, box, outcome.begin_s, (int32_t)outcome.state, 0);
    } else if (pool->settings.kind == QUEUE_POOL) {
        box = chosen_box(world, pool, arrival, &pool->next, 0);
        if (is_box_full(pool, box, arrival->entry_s))
            refuse(world, event);
        else
            enter_queue(world, pool, box, event, arrival->entry_s);
    } else {
        double start_s = enter_fifo(world, pool, arrival, &pool->next, &box, 0);
        answer(world, event, start_s, start_s + arrival->execution_s, box, start_s, 0, 0);
    }
}

static int compare_arrivals(const void *one, const void *other) {
    const Arrival *first = one, *second = other;
    if (first->entry_s != second->entry_s) return first->entry_s < second->entry_s ? -1 : 1;
    return first->request < second->request ? -1 : first->request > second->request;
}

/* Set `ahead` to the requests on their way to a target that will reach it before an arrival, in their order. */
static void find_ahead(World *world, int64_t target, const Arrival *arrival) {
    world->ahead.count = 0;
    for (int64_t place = 0; place < world->clock.count; place++) {
        const Entry *entry = world->clock.items + place;
        const RequestEvent *event = entry->event;
        if (kind_of(entry->order) != REACHES || event->target != target) continue;
        if (!is_before(entry->at_s, event->arrival.request, arrival->entry_s, arrival->request)) continue;
        APPEND(world->memory, world->ahead, event->arrival);
    }
    if (world->ahead.count) qsort(world->ahead.items, (size_t)world->ahead.count, sizeof(Arrival), compare_arrivals);
}

/* Return the seconds of an arrival at a target beyond execution alone, after the requests on their way; at boxes that batch, have
 * slots, load models or keep a queue a guess, by the steps, the loads or the work before it that are left now. */
static double foreseen_wait_s(World *world, Pool *pool, const Arrival *arrival, double now_s) {
    int64_t box = 0, trial = ++world->trial, next = pool->next;
    int64_t kind = pool->settings.kind;
    if (kind == BATCH_POOL || kind == SLOT_POOL || kind == MODEL_POOL || kind == QUEUE_POOL) {
        Arrival now = *arrival;
        now.entry_s = now_s;
        box = chosen_box(world, pool, &now, &next, 0);
        double wait_s;
        if (pool->settings.kind == QUEUE_POOL)
            wait_s = queue_box_work_left(world->memory, pool->queues + box, now_s, arrival->rank);
        else
            wait_s = larger(0.0, work_left(world, pool, box, now_s, 0));
        if (kind == BATCH_POOL || kind == SLOT_POOL) wait_s *= pool->settings.full_step_s;
        return pool->models == NULL ? wait_s : larger(wait_s, load_left_s(pool->models + box, arrival->models, now_s));
    }
    world->ahead.count = 0;
    if (pool->target) find_ahead(world, pool->target, arrival);
    int64_t count = world->ahead.count;
    if (pool->settings.kind == STREAM_POOL) {
        StreamOutcome outcome = {0};
        for (int64_t number = 0; number <= count; number++) {
            const Arrival *entering = number < count ? world->ahead.items + number : arrival;
            StreamBox *stream = stream_of(pool, chosen_box(world, pool, entering, &next, trial), trial);
            outcome = stream_serve(stream, pool->settings.stream, entering->entry_s, entering->execution_s, entering->added);
        }
        return outcome.finish_s - arrival->entry_s - arrival->execution_s;
    }
    for (int64_t number = 0; number < count; number++) enter_fifo(world, pool, world->ahead.items + number, &next, &box, trial);
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
