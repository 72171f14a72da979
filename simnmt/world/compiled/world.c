/* The one translation unit of the compiled world: `simnmt_world_new`, a block of requests at a time, `simnmt_world_end`.
 *
 * Compiled without contraction (no fused multiplication and addition), so that every processor gives the same bits. */
#include "simulation.h"

#define SIMNMT_EXPORT __attribute__((visibility("default")))

/* Return a world before its first request; NULL without memory. */
SIMNMT_EXPORT World *simnmt_world_new(const WorldSettings *settings) {
    Memory *memory = memory_new();
    if (memory == NULL) return NULL;
    if (setjmp(memory->way_out)) {
        memory_free(memory);
        return NULL;
    }
    World *world = world_new(memory, settings);
    if (settings->discipline == CLOSED_LOOP) begin_closed_loop(world);
    return world;
}

/* Let the requests of a block come, which is the only one where links are looked up; return `DONE`, `NO_MEMORY`, `STOPPED`, or
 * `PAUSED`: call it again with the same block. */
SIMNMT_EXPORT int64_t simnmt_world_block(World *world, const Block *block) {
    int reason = setjmp(world->memory->way_out);
    if (reason) return reason;
    begin_block(world, block);
    if (world->settings.discipline == OPEN_LOOP)
        open_loop(world);
    else if (world->settings.discipline == CLOSED_LOOP)
        run_to_end(world);
    else
        back_to_back(world);
    return world->is_paused ? PAUSED : DONE;
}

/* Run until no event is left; return as `simnmt_world_block` does. */
SIMNMT_EXPORT int64_t simnmt_world_end(World *world) {
    int reason = setjmp(world->memory->way_out);
    if (reason) return reason;
    world->is_paused = 0;
    run_to_end(world);
    return world->is_paused ? PAUSED : DONE;
}

static void act_and_note(Memory *memory, BatchBox *box, const Decoding *decoding) {
    batch_box_act(memory, box);
    for (int64_t number = 0; number < box->done.count; number++) {
        const Finished *done = box->done.items + number;
        decoding->begin_s[done->request] = done->begin_s;
        decoding->finish_s[done->request] = done->finish_s;
        decoding->first_s[done->request] = done->first_s;
    }
}

static void decode(Memory *memory, const Decoding *decoding, Account *copy) {
    BatchBox *box = zeroed(memory, 1, sizeof *box);
    batch_box_begin(memory, box, &decoding->batching, decoding->cost, NULL);
    for (int64_t request = 0; request < decoding->count; request++) {
        double now_s = decoding->arrival_s[request];
        while (box->next_s < now_s) act_and_note(memory, box, decoding);
        Waiting sentence = {now_s, 0.0, 1.0, request, decoding->src_len[request], decoding->tgt_len[request], 0, 0, NULL};
        batch_box_arrive(memory, box, sentence);
    }
    if (decoding->count) batch_box_close(box, decoding->arrival_s[decoding->count - 1]);
    while (holds_sentences(box)) act_and_note(memory, box, decoding);
    Account account = box->account;
    size_t sizes = (size_t)decoding->batching.size + 1;
    memcpy(copy->steps, account.steps, sizes * sizeof(int64_t));
    memcpy(copy->step_s, account.step_s, sizes * sizeof(double));
    account.steps = copy->steps;
    account.step_s = copy->step_s;
    *copy = account;
}

/* Let one box decode sentences that arrive in order of time; it knows when no more will come. Copy its account, whose arrays
 * are given; return `DONE` or `NO_MEMORY`. */
SIMNMT_EXPORT int64_t simnmt_world_decode(const Decoding *decoding, Account *copy) {
    Memory *memory = memory_new();
    if (memory == NULL) return NO_MEMORY;
    int reason = setjmp(memory->way_out);
    if (!reason) decode(memory, decoding, copy);
    memory_free(memory);
    return reason;
}

/* Copy the account of a box that batches; its arrays are those of the world, until it is freed. `pool`: the groups of deciders, then
 * the targets from 1 on. */
SIMNMT_EXPORT void simnmt_world_account(const World *world, int64_t pool, int64_t box, Account *copy) {
    *copy = world->pools[pool].batches[box].account;
}

/* Copy a box that streams; its counts are those of the world, until it is freed. */
SIMNMT_EXPORT void simnmt_world_stream(const World *world, int64_t pool, int64_t box, StreamBox *copy) {
    *copy = world->pools[pool].streams[box];
}

SIMNMT_EXPORT void simnmt_world_free(World *world) { memory_free(world->memory); }
