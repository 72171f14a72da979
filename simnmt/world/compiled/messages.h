/* Requests and answers that cross the legs of their path, through shared lines and by the clock. See message_traffic.py and
 * network/message_paths.py. */
#ifndef SIMNMT_WORLD_MESSAGES_H
#define SIMNMT_WORLD_MESSAGES_H

#include "deciders.h"

enum { THERE, AT_SERVER, BACK }; /* stages of a message */

static int64_t messages_most_legs(const WorldSettings *settings) { return settings->paths == NULL ? 0 : settings->targets + 1; }

static Leg leg_of(const Paths *paths, int64_t number, int64_t node, double at_s, double bits, int back) {
    const Hop *hop = paths->hops + number;
    int64_t which = node % hop->link_count;
    const Link *link = hop->links + which;
    double moment_s = at_s + hop->begin_s[node % hop->begin_count], half_s = series_at(&link->rtt, moment_s) / 2;
    if (paths->uplinks[number][which] >= 0) return (Leg){paths->uplinks[number][which] + back, bits, half_s};
    return (Leg){-1, 0.0, half_s + bits / series_at(back ? &link->downlink_bps : &link->uplink_bps, moment_s)};
}

/* Set the legs of a request to a target, or those of its answer back from there; return their number. */
static int64_t set_legs(const World *world, Leg *legs, int64_t request, int64_t node, int64_t target, int back) {
    const Paths *paths = world->settings.paths;
    double at_s = paths->moments_s == NULL ? world->settings.arrival_s[request] : paths->moments_s[request];
    double bits = 8.0 * (double)paths->token_bytes[target] * (double)(back ? paths->tgt_len : paths->src_len)[request];
    const double *beyond_s = paths->half_overhead_s[target];
    int64_t all = target + (beyond_s != NULL), count = 0;
    for (int64_t place = 0; place < all; place++) {
        int64_t number = back ? all - 1 - place : place;
        Leg leg = number < target ? leg_of(paths, number, node, at_s, bits, back) : (Leg){-1, 0.0, beyond_s[request]};
        if (count && leg.line < 0)
            legs[count - 1].delay_s += leg.delay_s;
        else
            legs[count++] = leg;
    }
    return count;
}

static void arm_line(World *world, SharedLine *line) {
    if (line->next_s == INFINITY || line->next_s == line->armed_s) return;
    line->armed_s = line->next_s;
    clock_push(&world->memory, &world->clock, line->next_s, order_of(LINE_ACTS, line->number), line);
}

static void delay_message(World *world, RequestEvent *message, double until_s) {
    message->due_s = until_s;
    clock_push(&world->memory, &world->clock, until_s, order_of(MESSAGE_MOVES, message->request), message);
}

static void enter_leg(World *world, RequestEvent *message, double now_s) {
    const Leg *leg = message->legs + message->leg;
    if (leg->line < 0) {
        delay_message(world, message, now_s + leg->delay_s);
        return;
    }
    SharedLine *line = world->lines + leg->line;
    line_enter(&world->memory, line, message, message->request, leg->bits, now_s);
    arm_line(world, line);
}

static void send_message(World *world, RequestEvent *message, int stage, double now_s) {
    message->stage = stage;
    message->leg = 0;
    message->leg_count = set_legs(world, message->legs, message->request, message->node, message->target, stage == BACK);
    enter_leg(world, message, now_s);
}

static void line_acts(World *world, SharedLine *line, double now_s) {
    if (line->armed_s == now_s) line->armed_s = INFINITY;
    if (line->next_s != now_s) return;
    line->base_s = now_s;
    line->base_work = line->heap[0].finish;
    /* All that are done leave before the line goes on: a message that enters at this moment comes after them. */
    int64_t done = 0;
    for (void *message = line_pop(line); message != NULL; message = line_pop(line)) {
        GROW(&world->memory, world->leaving, done, world->leaving_capacity);
        world->leaving[done++] = message;
    }
    line_foresee(line);
    for (int64_t number = 0; number < done; number++) {
        RequestEvent *message = world->leaving[number];
        delay_message(world, message, now_s + message->legs[message->leg].delay_s);
    }
    arm_line(world, line);
}

/* Note the times of a request whose answer the decider has, or will have. */
static void message_received(World *world, RequestEvent *message, double transfer_s, double received_s) {
    world->settings.queue_s[message->request] = message->begin_s - message->entry_s;
    world->settings.transfer_s[message->request] = transfer_s;
    answered(world, message->request, received_s);
    free_event(world, message);
}

/* Note an execution, and let its answer leave at the end; a decider learns at `ordered_s` of a request on its own device. */
static void answer_by_message(World *world, RequestEvent *message, double begin_s, double finish_s, int64_t box, double ordered_s, int64_t report, int64_t left_waiting) {
    message->begin_s = begin_s;
    message->finish_s = finish_s;
    message->box = (int32_t)box;
    message->report = (int32_t)report;
    message->left_waiting = (int32_t)left_waiting;
    if (message->target) {
        message->stage = AT_SERVER;
        clock_push(&world->memory, &world->clock, finish_s, order_of(MESSAGE_MOVES, message->request), message);
        return;
    }
    if (has_view(message->decider, 0))
        add_answer(&world->memory, message->decider,
                   (Answer){ordered_s, 0.0, message->request, message->sent_as, 0, message->report, message->left_waiting, message->believed});
    message_received(world, message, 0.0, finish_s);
}

/* Let the decider measure the transfer of a request whose answer has arrived. */
static void answer_arrives(World *world, RequestEvent *message, double now_s) {
    double transfer_s = (now_s - message->sent_s) - (message->finish_s - message->entry_s);
    add_answer(&world->memory, message->decider,
               (Answer){now_s, transfer_s, message->request, message->sent_as, message->target, message->report, message->left_waiting, message->believed});
    world->settings.server[message->request] = (int16_t)message->box;
    message_received(world, message, transfer_s, now_s);
}

/* Return the seconds of a message over its legs, with those on the lines now and none that come later. */
static double foreseen_way_s(World *world, int64_t request, int64_t node, int64_t target, int back, double now_s) {
    double total_s = 0.0;
    int64_t count = set_legs(world, world->trial_legs, request, node, target, back);
    for (int64_t number = 0; number < count; number++) {
        const Leg *leg = world->trial_legs + number;
        total_s += leg->delay_s + (leg->line < 0 ? 0.0 : line_foreseen_s(&world->memory, world->lines + leg->line, leg->bits, now_s));
    }
    return total_s;
}

static void begin_lines(World *world) {
    const Paths *paths = world->settings.paths;
    if (paths == NULL) return;
    world->lines = zeroed(&world->memory, paths->lines, sizeof(SharedLine));
    world->trial_legs = zeroed(&world->memory, messages_most_legs(&world->settings), sizeof(Leg));
    for (int64_t number = 0; number < paths->lines; number++) line_begin(world->lines + number, paths->capacities + number, number);
}

static void free_lines(World *world) {
    for (int64_t number = 0; world->lines != NULL && number < world->settings.paths->lines; number++) {
        free(world->lines[number].heap);
        free(world->lines[number].sorted);
    }
    free(world->lines);
    free(world->trial_legs);
    free(world->leaving);
}

#endif
