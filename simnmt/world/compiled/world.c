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

/* Copy the account of a box that batches or has slots; its arrays are those of the world, until it is freed. `pool`: the groups of deciders, then
 * the targets from 1 on. */
SIMNMT_EXPORT void simnmt_world_account(const World *world, int64_t pool, int64_t box, Account *copy) {
    const Pool *copied = world->pools + pool;
    *copy = copied->slots == NULL ? copied->batches[box].account : copied->slots[box].account;
}

/* Copy a box that streams; its counts are those of the world, until it is freed. */
SIMNMT_EXPORT void simnmt_world_stream(const World *world, int64_t pool, int64_t box, StreamBox *copy) {
    *copy = world->pools[pool].streams[box];
}

SIMNMT_EXPORT void simnmt_world_free(World *world) { memory_free(world->memory); }
