/* The times of links at a moment. See network/link.py and `Routes.route`. */
#ifndef SIMNMT_WORLD_ROUTES_H
#define SIMNMT_WORLD_ROUTES_H

#include "world.h"

/* Return the value of a series at a moment: that of the last sample before, over laps without end. */
static double series_at(const Series *self, double time_s) {
    if (self->samples == 1) return self->value[0];
    double into_s = fmod(time_s, self->lap_s);
    if (into_s != 0.0 && into_s < 0.0) into_s += self->lap_s;
    int64_t later = bisected_right(self->time_s, self->samples, into_s);
    return self->value[later ? later - 1 : self->samples - 1];
}

static void add_hop(const Hop *hop, double at_s, int64_t node, int64_t src_len, int64_t tgt_len, int64_t token_bytes, int is_first,
                    double *up_s, double *down_s) {
    const Link *link = hop->links + node % hop->link_count;
    double moment_s = at_s + hop->begin_s[node % hop->begin_count], half_s = series_at(&link->rtt, moment_s) / 2;
    double there_s = half_s + (double)(8 * token_bytes * src_len) / series_at(&link->uplink_bps, moment_s);
    double back_s = half_s + (double)(8 * token_bytes * tgt_len) / series_at(&link->downlink_bps, moment_s);
    *up_s = is_first ? there_s : *up_s + there_s;
    *down_s = is_first ? back_s : *down_s + back_s;
}

/* Set the links of a request of a block to their times at a moment; return the seconds from its end node to its decider and
 * back. */
static void look_up_route(const World *world, const Block *block, int64_t in_block, double now_s, double *there_s, double *back_s) {
    const Routes *routes = world->settings.routes;
    int64_t request = block->first + in_block, node = node_of(block, in_block);
    double at_s = routes->moments_s == NULL ? now_s : routes->moments_s[request];
    int64_t src_len = routes->src_len[request], tgt_len = routes->tgt_len[request];
    for (int64_t target = 1; target < world->settings.targets; target++) {
        double *up_s = block->uplink_s[target] + in_block, *down_s = block->downlink_s[target] + in_block;
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

#endif
