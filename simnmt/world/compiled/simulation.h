/* The run: back to back, open loop and closed loop. */
#ifndef SIMNMT_WORLD_SIMULATION_H
#define SIMNMT_WORLD_SIMULATION_H

#include "routes.h"
#include "traffic.h"

static World *world_new(Memory *memory, const WorldSettings *settings) {
    World *world = zeroed(memory, 1, sizeof(World));
    int64_t targets = settings->targets;
    world->memory = memory;
    world->settings = *settings;
    world->waits_of = world->last_document = -1;
    world->delay_s = zeroed(memory, targets, sizeof(double));
    world->waits_s = zeroed(memory, targets, sizeof(double));
    world->totals_s = zeroed(memory, targets, sizeof(double));
    world->deciders = zeroed(memory, settings->deciders, sizeof(Decider));
    world->pool_count = settings->group_count + targets - 1;
    world->pools = zeroed(memory, world->pool_count, sizeof(Pool));
    world->remote = world->pools + settings->group_count - 1;
    for (int64_t number = 0, group = 0; group < settings->group_count; group++) {
        const PoolSettings *pool = &settings->groups[group].pool;
        if (pool->kind != FIFO_POOL) pool_begin(world, world->pools + group, 0, pool);
        for (int64_t in_group = 0; in_group < pool->boxes; in_group++) decider_begin(world, number++, group, in_group);
    }
    for (int64_t target = 1; target < targets; target++) pool_begin(world, world->remote + target, target, settings->pools + target - 1);
    world->added = zeroed(memory, targets * world->most_added, sizeof(double));
    return world;
}

/* Let a client issue the next request, if there is one; `number`: the client for its first request, and later the number of clients
 * plus the request whose answer it has received. */
static void ask(World *world, int64_t number, double now_s) {
    const Clients *clients = world->settings.clients;
    if (world->issued == clients->requests) return;
    int64_t client = number < clients->count ? number : clients->client_of[number - clients->count];
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
        clock_push(world->memory, &world->clock, (Entry){now_s + there_s, order_of(ARRIVES, request), NULL});
}

/* Let every client think once, and then ask. */
static void begin_closed_loop(World *world) {
    const Clients *clients = world->settings.clients;
    for (int64_t place = 0; place < clients->first_count; place++) {
        int64_t client = clients->first[place];
        clock_push(world->memory, &world->clock, (Entry){clients->think_s[client], order_of(ASKS, client), NULL});
    }
}

/* Run all events before a moment and the order of an event at that moment; return 0 if a pause is due. */
static int run_until(World *world, double moment_s, int64_t order) {
    Clock *clock = &world->clock;
    while (clock->count && is_before(clock->items[0].at_s, clock->items[0].order, moment_s, order)) {
        Entry entry = clock_pop(clock);
        int kind = kind_of(entry.order);
        int64_t number = number_of(entry.order);
        if (kind != BATCH_ACTS) note_moment(world, entry.at_s);
        if (kind == REACHES)
            reaches(world, entry.event);
        else if (kind == BATCH_ACTS && ((Pool *)entry.event)->slots != NULL)
            slots_act(world, entry.event, number & 0xFFFFFFFF, entry.at_s);
        else if (kind == BATCH_ACTS)
            batch_acts(world, entry.event, number & 0xFFFFFFFF, entry.at_s);
        else if (kind == ARRIVES)
            handle(world, world->block, number, entry.at_s);
        else if (kind == ASKS)
            ask(world, number, entry.at_s);
        else if (kind == LOADED)
            model_loaded(world, entry.event, number & 0xFFFFFFFF, entry.at_s);
        else if (kind == COMPLETES)
            queue_completes(world, entry.event, number & 0xFFFFFFFF, entry.at_s);
        else if (kind == DEFERS)
            decide_again(world, number, entry.at_s);
        else
            refused(world, entry.event, entry.at_s);
        if (is_pause_due(world)) return 0;
    }
    return 1;
}

/* Run until no event is left and nobody waits for company, or a pause is due. */
static void run_to_end(World *world) {
    for (int was_holding = 1; was_holding;) {
        if (!run_until(world, INFINITY, INT64_MAX)) return;
        was_holding = 0;
        for (Pool *pool = world->pools; pool < world->pools + world->pool_count; pool++)
            if (pool->settings.kind == BATCH_POOL) was_holding |= close_pool(world, pool);
        if (was_holding && is_pause_due(world)) return;
    }
}

/* Take the next block, or go on with a paused one. */
static void begin_block(World *world, const Block *block) {
    if (!world->is_paused) world->in_block = 0;
    world->block = block;
    world->is_paused = 0;
}

/* Load the deciders of the requests that follow, if they are many: of 100 at a low rate, a request then costs a tenth less. Not a
 * function, since GCC leaves out a call of one that does nothing else. */
#define PREFETCH_DECIDERS(world, block, in_block)                                                \
    do {                                                                                         \
        if (world->settings.deciders < 32 || block->decider == NULL || in_block + 4 >= block->count) break; \
        const Decider *later = world->deciders + block->decider[in_block + 4];                   \
        __builtin_prefetch(later);                                                               \
        __builtin_prefetch((const char *)later + 64);                                            \
        const Decider *soon = world->deciders + block->decider[in_block + 2];                    \
        __builtin_prefetch(soon->delay_s);                                                       \
        __builtin_prefetch(soon->answers.items);                                                 \
    } while (0)

static void open_loop(World *world) {
    const Block *block = world->block;
    while (world->in_block < block->count) {
        double now_s = block->arrival_s[world->in_block];
        if (!run_until(world, now_s, order_of(ARRIVES, block->first + world->in_block))) return;
        note_moment(world, now_s);
        PREFETCH_DECIDERS(world, block, world->in_block);
        handle(world, block, world->in_block++, now_s);
        if (is_pause_due(world)) return;
    }
}

/* Execute a request, while no other is under way, on a target; return when it is answered. */
static inline double execute_alone(World *world, Decider *decider, const Block *block, int64_t in_block, int64_t target, double now_s,
                                   double access_s) {
    int64_t request = block->first + in_block;
    double transfer_s = transfer_of(block, target, in_block);
    Pool *pool = pool_of(world, decider, target);
    PlanView *plan = target ? decider->views[target].plan : NULL;
    int64_t believed = plan == NULL ? 0 : plan_view_sent(plan, request, estimated_entry_s(decider, target, now_s));
    if (pool != NULL && pool->settings.kind == STREAM_POOL) {
        int64_t box;
        Arrival arrival;
        set_arrival(world, decider, block, in_block, target, now_s, &arrival);
        StreamOutcome outcome = enter_stream(world, pool, &arrival, &box);
        now_s = outcome.finish_s + access_s + (target ? block->downlink_s[target][in_block] : 0.0);
        if (plan != NULL) plan_view_reported(plan, request, believed, outcome.state, now_s - access_s - transfer_s / 2);
    } else {
        now_s += block->execution_s[target][in_block] + transfer_s + access_s;
    }
    if (target) learn(decider, target, transfer_s, now_s, 0.0);
    return now_s;
}

/* Execute a request at its decider's own device, and then on another target if the policy sends it on. */
static RARE double execute_twice(World *world, Decider *decider, const Block *block, int64_t in_block, double now_s, double access_s) {
    now_s = execute_alone(world, decider, block, in_block, 0, now_s, 0.0);
    int64_t target = second_target(world, decider, block, in_block, now_s);
    if (!target) return now_s + access_s;
    defer(&world->settings, block, in_block, target);
    return execute_alone(world, decider, block, in_block, target, now_s, access_s);
}

/* Execute a request while no other is under way. */
static void serve_alone(World *world, const Block *block, int64_t in_block, double access_s) {
    const WorldSettings *settings = &world->settings;
    int64_t request = block->first + in_block;
    int32_t place;
    double now_s = world->now_s, least_s = 0.0;
    Decider *decider = decider_of(world, block, in_block);
    settings->arrival_s[request] = now_s;
    if (decider->cache != NULL && cache_look_up(decider->cache, settings->sentence[request], now_s, &place) == HIT) {
        record_hit(world, decider->cache, request, HIT, now_s);
        world->now_s += decider->cache->settings->hit_s + access_s;
        return;
    }
    if (settings->judged_limit) least_s = foresee_totals(world, decider, block, in_block, now_s);
    int64_t target = decide(world, decider, block, in_block, now_s);
    if (settings->judged_limit) settings->decision_regret_s[request] = world->totals_s[target] - least_s;
    if (!target && block->second_s != NULL)
        now_s = execute_twice(world, decider, block, in_block, now_s, access_s);
    else
        now_s = execute_alone(world, decider, block, in_block, target, now_s, access_s);
    if (decider->cache != NULL) cache_insert(world->memory, decider->cache, settings->sentence[request], now_s);
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
