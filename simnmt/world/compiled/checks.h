/* What the compiled world relies on, asserted in debug builds: no NaN, no time that is infinite or below 0, no index out of range. Python
 * refuses columns of requests and parts that do not fit before: see checks.py. Routes, views and reads are made and checked by their rooms. */
#ifndef SIMNMT_WORLD_CHECKS_H
#define SIMNMT_WORLD_CHECKS_H

#include "world.h"

#ifdef NDEBUG
#define CHECK_SETTINGS(settings) ((void)0)
#define CHECK_BLOCK(world, block) ((void)0)
#else
#define CHECK_SETTINGS(settings) check_settings(settings)
#define CHECK_BLOCK(world, block) check_block(world, block)

/* NaN compares as false, so that these refuse it. */
static void check_times(const double *column, int64_t count) {
    for (int64_t number = 0; number < count; number++) assert(column[number] >= 0.0 && column[number] < INFINITY);
}

static void check_numbers(const double *column, int64_t count) {
    for (int64_t number = 0; number < count; number++) assert(column[number] == column[number]);
}

static void check_lengths(const int64_t *column, int64_t count) {
    for (int64_t number = 0; number < count; number++) assert(column[number] >= 0);
}

static void check_series(const Series *series) {
    assert(series->samples >= 1 && series->lap_s > 0.0);
    for (int64_t sample = 0; sample < series->samples; sample++) assert(series->value[sample] >= 0.0); /* an infinite bandwidth is one */
    for (int64_t sample = 1; sample < series->samples; sample++) assert(series->time_s[sample] > series->time_s[sample - 1]);
}

static void check_hop(const Hop *hop) {
    assert(hop->link_count >= 1 && hop->begin_count >= 1);
    check_numbers(hop->begin_s, hop->begin_count);
    for (int64_t number = 0; number < hop->link_count; number++) {
        check_series(&hop->links[number].rtt);
        check_series(&hop->links[number].uplink_bps);
        check_series(&hop->links[number].downlink_bps);
    }
}

static void check_pool(const PoolSettings *pool) {
    assert(pool->kind >= FIFO_POOL && pool->kind <= STREAMING_POOL && pool->balancer >= BY_NODE && pool->balancer <= FEWEST_TOKENS);
    assert(pool->boxes >= 1 && pool->boxes <= 32768 && pool->workers >= 1);
    assert(pool->balancer != LEAST_LOADED_OF_DRAWN || pool->drawn >= 1);
    if (pool->kind == BATCH_POOL) {
        const Batching *batching = &pool->batching;
        assert(batching->size >= 1 && batching->threshold >= 0 && batching->threshold < batching->size && batching->longest_wait_s >= 0.0);
        assert(pool->cost->encoder_count >= batching->size && pool->cost->encoder_count >= batching->together);
        check_times(pool->cost->gap_s, batching->size);
    }
    if (pool->kind == STREAMING_POOL) {
        const StreamingSettings *streaming = pool->streaming;
        assert(streaming->states >= 2 && streaming->phases >= 1 && streaming->columns >= 1);
        for (int64_t phase = 0; phase < streaming->phases; phase++) {
            const Plans *plans = streaming->plans + phase;
            assert(plans->engagement_gap_s >= 0.0 && plans->reclaimed_after_s >= 0.0 && plans->fill_s >= 0.0 && plans->offset >= 0);
            assert(phase == 0 || plans->begin_s >= plans[-1].begin_s);
            check_times(plans->read_s, streaming->states);
        }
    }
}

static void check_settings(const WorldSettings *settings) {
    int64_t targets = settings->targets;
    assert(targets >= 1 && targets <= 128 && settings->deciders >= 1 && settings->workers >= 1);
    assert(settings->discipline >= BACK_TO_BACK && settings->discipline <= CLOSED_LOOP);
    assert((settings->discipline == CLOSED_LOOP) == (settings->clients != NULL));
    assert(settings->judged_limit >= 0 && settings->judged_limit <= (int64_t)1 << 32);
    for (int64_t target = !settings->is_local; target < targets; target++) check_pool(settings->pools + target);
    for (int64_t target = 0; target < targets; target++) assert(settings->parallel[target] >= 0);
    for (int64_t number = 0; number < settings->deciders * (targets - 1); number++) {
        const EstimateSettings *estimate = settings->estimates + number;
        assert(estimate->kind >= LATEST && estimate->kind <= QUANTILE && estimate->initial_s >= 0.0);
        assert(estimate->weight > 0.0 && estimate->weight <= 1.0);
        assert(estimate->kind != QUANTILE || (estimate->window >= 1 && estimate->quantile >= 0.0 && estimate->quantile <= 1.0));
    }
    if (settings->routes != NULL) {
        if (settings->routes->access != NULL) check_hop(settings->routes->access);
        for (int64_t target = 1; target < targets; target++) check_hop(settings->routes->hops + target - 1);
        check_lengths(settings->routes->token_bytes, targets);
    }
    if (settings->clients != NULL) {
        const Clients *clients = settings->clients;
        assert(settings->routes != NULL && clients->count >= 1 && clients->nodes >= 1);
        for (int64_t place = 0; place < clients->first_count; place++) assert(clients->first[place] >= 0 && clients->first[place] < clients->count);
        check_times(clients->think_s, clients->count + clients->requests);
    }
}

/* Check the columns of a block, and the boxes that are drawn for its requests. */
static void check_block(const World *world, const Block *block) {
    const WorldSettings *settings = &world->settings;
    int64_t count = block->count;
    assert(block->first >= 0 && count >= 0);
    assert(block->choice == ALWAYS ? block->chosen >= 0 && block->chosen < settings->targets : block->choice == LEAST_TOTAL && block->weighed_s != NULL);
    assert((settings->discipline == OPEN_LOOP) <= (block->arrival_s != NULL));
    for (int64_t number = 0; block->node != NULL && number < count; number++) assert(block->node[number] >= 0);
    if (block->arrival_s != NULL) check_times(block->arrival_s, count);
    for (int64_t number = 1; block->arrival_s != NULL && number < count; number++) assert(block->arrival_s[number] >= block->arrival_s[number - 1]);
    if (block->access_s != NULL) check_times(block->access_s, count);
    if (block->src_len != NULL) check_lengths(block->src_len, count);
    if (block->tgt_len != NULL) check_lengths(block->tgt_len, count);
    int foresees = settings->true_transfer || settings->true_backlog || settings->judged_limit;
    for (int64_t target = 0; target < settings->targets; target++) {
        if (block->choice == ALWAYS && target != block->chosen && !foresees) continue; /* not read */
        check_times(block->execution_s[target], count);
        if (target && settings->routes == NULL) {
            check_times(block->uplink_s[target], count);
            check_times(block->downlink_s[target], count);
        }
        if (block->weighed_s != NULL) check_numbers(block->weighed_s[target], count);
        if (block->expected != NULL) check_numbers(block->expected[target], count);
        if (block->factor != NULL && block->factor[target] != NULL) check_times(block->factor[target], count);
        if (!target && !settings->is_local) continue;
        const PoolSettings *pool = settings->pools + target;
        for (int64_t drawn = 0; pool->balancer == LEAST_LOADED_OF_DRAWN && drawn < pool->drawn; drawn++)
            for (int64_t request = block->first; request < block->first + count; request++)
                assert(pool->choices[drawn][request] >= 0 && pool->choices[drawn][request] < pool->boxes);
        for (int64_t column = 0; pool->kind == STREAMING_POOL && column < pool->streaming->columns; column++)
            check_numbers(block->added[target][column], count);
        for (int64_t state = 0; block->beyond != NULL && block->beyond[target] != NULL && state < pool->streaming->states; state++)
            check_numbers(block->beyond[target][state], count);
    }
}
#endif

#endif
