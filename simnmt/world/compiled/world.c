/* The one translation unit of the compiled world: `simnmt_world_new`, a block of requests at a time, `simnmt_world_end`.
 *
 * A translation of the world in SimPy, function by function, with the same names and the same arithmetic in the same order, so
 * that both give the same bits: compiled without contraction (no fused multiplication and addition). */
#include "simulation.h"

#ifndef SIMNMT_SOURCES
#define SIMNMT_SOURCES "unknown"
#endif

/* An account as Python reads it. */
typedef struct {
    const int64_t *steps, *timeline;
    const double *step_s;
    double encode_s, refill_s;
    int64_t encodings, refills, src_tokens, padded_tokens, sentences, changes;
} AccountCopy;

#define SIMNMT_EXPORT __attribute__((visibility("default")))

/* Which sources this library was made from. */
SIMNMT_EXPORT const char *simnmt_sources(void) { return SIMNMT_SOURCES; }

/* Return the sizes of the structures that Python fills, to be compared with its own. */
SIMNMT_EXPORT int64_t simnmt_world_size(int64_t structure) {
    const int64_t sizes[] = {sizeof(WorldSettings), sizeof(PoolSettings), sizeof(EstimateSettings), sizeof(Block),
                             sizeof(BatchCost),     sizeof(LengthCost),   sizeof(BatchViewSettings), sizeof(AccountCopy),
                             sizeof(StreamingSettings), sizeof(Plans),        sizeof(StreamingBox),      sizeof(Series),
                             sizeof(Link),          sizeof(Hop),          sizeof(Routes),            sizeof(Clients)};
    return structure < 16 ? sizes[structure] : 0;
}

/* Return a world before its first request; NULL without memory. */
SIMNMT_EXPORT World *simnmt_world_new(const WorldSettings *settings) {
    World *volatile world = calloc(1, sizeof(World));
    if (world == NULL) return NULL;
    world->memory.left = settings->allocations;
    if (setjmp(world->memory.out_of_memory)) {
        world_free(world);
        return NULL;
    }
    world_begin(world, settings);
    if (settings->discipline == CLOSED_LOOP) begin_closed_loop(world);
    return world;
}

/* Let the requests of a block come; return 0, or 1 without memory. */
SIMNMT_EXPORT int64_t simnmt_world_block(World *world, const Block *block) {
    if (setjmp(world->memory.out_of_memory)) return 1;
    if (world->settings.discipline == OPEN_LOOP)
        open_loop(world, block);
    else if (world->settings.discipline == CLOSED_LOOP)
        closed_loop(world, block);
    else
        back_to_back(world, block);
    return 0;
}

/* Run until no event is left; return 0, or 1 without memory. */
SIMNMT_EXPORT int64_t simnmt_world_end(World *world) {
    if (setjmp(world->memory.out_of_memory)) return 1;
    run_to_end(world);
    return 0;
}

/* Copy the account of a box that batches; its arrays are those of the world, until it is freed. */
SIMNMT_EXPORT void simnmt_world_account(const World *world, int64_t target, int64_t box, AccountCopy *copy) {
    const Account *account = world->pools[target].servers[box].account;
    *copy = (AccountCopy){account->steps,      account->timeline,   account->step_s,        account->encode_s, account->refill_s, account->encodings,
                          account->refills,    account->src_tokens, account->padded_tokens, account->sentences, account->changes};
}

/* Copy a box that streams; its counts are those of the world, until it is freed. */
SIMNMT_EXPORT void simnmt_world_stream(const World *world, int64_t target, int64_t box, StreamingBox *copy) {
    *copy = world->pools[target].streams[box];
}

/* Return the probes sent by all deciders. */
SIMNMT_EXPORT int64_t simnmt_world_probes(const World *world) {
    int64_t sent = 0;
    for (int64_t number = 0; number < world->settings.deciders; number++)
        for (int64_t target = 0; target < world->settings.targets; target++) sent += world->deciders[number].estimates[target].probes_sent;
    return sent;
}

SIMNMT_EXPORT void simnmt_world_free(World *world) { world_free(world); }
