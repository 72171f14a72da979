/* The times of links at a moment, and requests that meet them during the run. See network/link.py and `Routes.route`. */
#ifndef SIMNMT_WORLD_ROUTES_H
#define SIMNMT_WORLD_ROUTES_H

#include "world.h"

/* Return the value of a series at a moment: that of the last sample before, over laps without end. */
static double series_at(const Series *self, double time_s) {
    if (self->samples == 1) return self->value[0];
    double into_s = fmod(time_s, self->lap_s);
    if (into_s != 0.0 && into_s < 0.0) into_s += self->lap_s;
    int64_t low = 0, high = self->samples;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (into_s < self->time_s[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return self->value[low ? low - 1 : self->samples - 1];
}

static void add_hop(const Hop *hop, double at_s, int64_t node, int64_t src_len, int64_t tgt_len, int64_t token_bytes, int is_first, double *up_s, double *down_s) {
    const Link *link = hop->links + node % hop->link_count;
    double moment_s = at_s + hop->begin_s[node % hop->begin_count], half_s = series_at(&link->rtt, moment_s) / 2;
    double there_s = half_s + (double)(8 * token_bytes * src_len) / series_at(&link->uplink_bps, moment_s);
    double back_s = half_s + (double)(8 * token_bytes * tgt_len) / series_at(&link->downlink_bps, moment_s);
    *up_s = is_first ? there_s : *up_s + there_s;
    *down_s = is_first ? back_s : *down_s + back_s;
}

/* Set the links of a row to their times at a moment; return the seconds from the end node to its decider and back. */
static void look_up_route(const World *world, Row *row, double now_s, double *there_s, double *back_s) {
    const Routes *routes = world->settings.routes;
    int64_t request = row->block.first, node = row->node;
    double at_s = routes->moments_s == NULL ? now_s : routes->moments_s[request];
    int64_t src_len = routes->src_len[request], tgt_len = routes->tgt_len[request];
    for (int64_t target = 1; target < world->settings.targets; target++) {
        double *up_s = row->uplink_s + target, *down_s = row->downlink_s + target;
        for (int64_t hop = 0; hop < target; hop++)
            add_hop(routes->hops + hop, at_s, node, src_len, tgt_len, routes->token_bytes[target], !hop, up_s, down_s);
        if (routes->half_overhead_s[target] != NULL) {
            *up_s += routes->half_overhead_s[target][request];
            *down_s += routes->half_overhead_s[target][request];
        }
    }
    *there_s = *back_s = 0.0;
    if (routes->access != NULL) add_hop(routes->access, at_s, node, src_len, tgt_len, routes->token_bytes[0], 1, there_s, back_s);
    if (routes->half_overhead_s[0] != NULL) {
        *there_s += routes->half_overhead_s[0][request];
        *back_s += routes->half_overhead_s[0][request];
    }
}

static const double **pointers(Memory *memory, double *numbers, int64_t count) {
    const double **made = resized(memory, NULL, count, sizeof *made);
    for (int64_t number = 0; number < count; number++) made[number] = numbers + number;
    return made;
}

static int64_t state_count(const World *world, int64_t target) {
    const StreamingSettings *streaming = world->settings.pools[target].streaming;
    return streaming == NULL ? 0 : streaming->states;
}

/* Return a row of its own, whose block points to its numbers. It lives as long as the world. */
static Row *new_row(World *world) {
    Memory *memory = &world->memory;
    if (world->unused_rows != NULL) {
        Row *row = world->unused_rows;
        world->unused_rows = row->next;
        return row;
    }
    int64_t targets = world->settings.targets, states = 0;
    for (int64_t target = 0; target < targets; target++)
        if (state_count(world, target) > states) states = state_count(world, target);
    GROW(memory, world->rows, world->row_count, world->row_capacity);
    Row *row = zeroed(memory, 1, sizeof(Row));
    world->rows[world->row_count++] = row; /* counted only now, since `zeroed` may not return */
    row->numbers = zeroed(memory, targets * (6 + world->most_added + states) + 1, sizeof(double));
    double *const columns[] = {row->numbers,  row->numbers + targets, row->numbers + 2 * targets, row->numbers + 3 * targets, row->numbers + 4 * targets,
                               row->numbers + 5 * targets};
    row->execution_s = columns[0];
    row->uplink_s = columns[1];
    row->downlink_s = columns[2];
    row->weighed_s = columns[3];
    row->expected = columns[4];
    row->factor = columns[5];
    row->added = row->numbers + 6 * targets;
    row->beyond = row->added + targets * world->most_added;
    row->states = states;
    for (int64_t number = 0; number < 6; number++) row->of_targets[number] = pointers(memory, columns[number], targets);
    row->added_of = zeroed(memory, targets, sizeof *row->added_of);
    row->beyond_of = zeroed(memory, targets, sizeof *row->beyond_of);
    for (int64_t target = 0; target < targets; target++) {
        if (!state_count(world, target)) continue;
        row->added_of[target] = pointers(memory, row->added + target * world->most_added, world->most_added);
        row->beyond_of[target] = pointers(memory, row->beyond + target * states, states);
    }
    return row;
}

static void free_row(World *world, Row *row) {
    row->next = world->unused_rows;
    world->unused_rows = row;
}

static void free_rows(World *world) {
    for (int64_t number = 0; number < world->row_count; number++) {
        Row *row = world->rows[number];
        for (int64_t column = 0; column < 6; column++) free(row->of_targets[column]);
        for (int64_t target = 0; row->added_of != NULL && target < world->settings.targets; target++) free(row->added_of[target]);
        for (int64_t target = 0; row->beyond_of != NULL && target < world->settings.targets; target++) free(row->beyond_of[target]);
        free(row->added_of);
        free(row->beyond_of);
        free(row->numbers);
        free(row);
    }
    free(world->rows);
}

/* Fill a row with a request of a block, but for its links. */
static void fill_row(const World *world, Row *row, const Block *block, int64_t in_block, int64_t node) {
    int64_t targets = world->settings.targets;
    Block *own = &row->block;
    *own = (Block){.first = block->first + in_block, .count = 1, .choice = block->choice, .chosen = block->chosen};
    row->node = (int32_t)node;
    own->node = &row->node;
    own->execution_s = row->of_targets[0];
    own->uplink_s = row->of_targets[1];
    own->downlink_s = row->of_targets[2];
    for (int64_t target = 0; target < targets; target++) {
        row->execution_s[target] = block->execution_s[target][in_block];
        if (block->weighed_s != NULL) row->weighed_s[target] = block->weighed_s[target][in_block];
        if (block->expected != NULL) row->expected[target] = block->expected[target][in_block];
        if (block->factor != NULL) row->factor[target] = block->factor[target] == NULL ? 1.0 : block->factor[target][in_block];
        if (!state_count(world, target)) continue;
        for (int64_t column = 0; column < world->settings.pools[target].streaming->columns; column++)
            row->added[target * world->most_added + column] = block->added[target][column][in_block];
        for (int64_t state = 0; block->beyond != NULL && block->beyond[target] != NULL && state < state_count(world, target); state++)
            row->beyond[target * row->states + state] = block->beyond[target][state][in_block];
    }
    if (block->weighed_s != NULL) own->weighed_s = row->of_targets[3];
    if (block->expected != NULL) own->expected = row->of_targets[4];
    if (block->factor != NULL) own->factor = row->of_targets[5];
    if (block->added != NULL) own->added = (const double *const *const *)row->added_of;
    if (block->beyond != NULL) own->beyond = (const double *const *const *)row->beyond_of;
    if (block->src_len != NULL) {
        row->src_len = block->src_len[in_block];
        row->tgt_len = block->tgt_len[in_block];
        own->src_len = &row->src_len;
        own->tgt_len = &row->tgt_len;
    }
}

#endif
