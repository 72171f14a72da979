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
    int64_t *steps, *timeline;
    double *step_s;
    double encode_s, refill_s;
    int64_t encodings, refills, src_tokens, padded_tokens, sentences, changes;
} AccountCopy;

static void copy_counts(AccountCopy *copy, const Account *account) {
    copy->encode_s = account->encode_s;
    copy->refill_s = account->refill_s;
    copy->encodings = account->encodings;
    copy->refills = account->refills;
    copy->src_tokens = account->src_tokens;
    copy->padded_tokens = account->padded_tokens;
    copy->sentences = account->sentences;
    copy->changes = account->changes;
}

#define SIMNMT_EXPORT __attribute__((visibility("default")))

/* Which sources this library was made from. */
SIMNMT_EXPORT const char *simnmt_sources(void) { return SIMNMT_SOURCES; }

/* Return the sizes of the structures that Python fills, to be compared with its own. */
SIMNMT_EXPORT int64_t simnmt_world_size(int64_t structure) {
    const int64_t sizes[] = {sizeof(WorldSettings), sizeof(PoolSettings), sizeof(EstimateSettings), sizeof(Block),
                             sizeof(BatchCost),     sizeof(LengthCost),   sizeof(BatchViewSettings), sizeof(AccountCopy),
                             sizeof(StreamingSettings), sizeof(Plans),        sizeof(StreamingBox),      sizeof(Series),
                             sizeof(Link),          sizeof(Hop),          sizeof(Routes),            sizeof(Clients),
                             sizeof(Decoding),      sizeof(Capacity),    sizeof(Paths)};
    return structure < (int64_t)(sizeof sizes / sizeof *sizes) ? sizes[structure] : 0;
}

/* Return a world before its first request; NULL without memory. */
SIMNMT_EXPORT World *simnmt_world_new(const WorldSettings *settings) {
    World *volatile world = calloc(1, sizeof(World));
    if (world == NULL) return NULL;
    world->memory.left = settings->allocations;
    if (setjmp(world->memory.way_out)) {
        world_free(world);
        return NULL;
    }
    world_begin(world, settings);
    if (settings->discipline == CLOSED_LOOP) begin_closed_loop(world);
    return world;
}

/* Let the requests of a block come; return `DONE`, `NO_MEMORY`, or `PAUSED`: call it again with the same block. */
SIMNMT_EXPORT int64_t simnmt_world_block(World *world, const Block *block) {
    if (setjmp(world->memory.way_out)) return NO_MEMORY;
    begin_block(world, block);
    if (world->settings.discipline == OPEN_LOOP)
        open_loop(world);
    else if (world->settings.discipline == CLOSED_LOOP)
        run_to_end(world);
    else
        back_to_back(world);
    if (world->is_paused) return PAUSED;
    world->block = NULL;
    return DONE;
}

/* Run until no event is left; return as `simnmt_world_block` does. */
SIMNMT_EXPORT int64_t simnmt_world_end(World *world) {
    if (setjmp(world->memory.way_out)) return NO_MEMORY;
    world->is_paused = 0;
    run_to_end(world);
    return world->is_paused ? PAUSED : DONE;
}

/* Decode sentences on one server without a clock, and copy its account, whose arrays are given; return 0, or `NO_MEMORY`. */
SIMNMT_EXPORT int64_t simnmt_world_decode(const Decoding *decoding, AccountCopy *copy) {
    Memory memory = {.left = decoding->allocations};
    BatchServer *volatile server = calloc(1, sizeof(BatchServer));
    if (server == NULL) return NO_MEMORY;
    int reason = setjmp(memory.way_out);
    if (!reason) {
        batch_server_begin(server, &decoding->batching, decoding->cost);
        begin_account(&memory, server, decoding->batching.size);
        decode_all(&memory, server, decoding);
        const Account *account = server->account;
        size_t sizes = (size_t)decoding->batching.size + 1;
        memcpy(copy->steps, account->steps, sizes * sizeof(int64_t));
        memcpy(copy->step_s, account->step_s, sizes * sizeof(double));
        if (account->changes) memcpy(copy->timeline, account->timeline, (size_t)(2 * account->changes) * sizeof(int64_t));
        copy_counts(copy, account);
    }
    batch_server_free(server);
    free(server);
    return reason;
}

/* Copy the account of a box that batches; its arrays are those of the world, until it is freed. */
SIMNMT_EXPORT void simnmt_world_account(const World *world, int64_t target, int64_t box, AccountCopy *copy) {
    const Account *account = world->pools[target].servers[box].account;
    copy->steps = account->steps;
    copy->timeline = account->timeline;
    copy->step_s = account->step_s;
    copy_counts(copy, account);
}

/* Copy a box that streams; its counts are those of the world, until it is freed. */
SIMNMT_EXPORT void simnmt_world_stream(const World *world, int64_t target, int64_t box, StreamingBox *copy) {
    *copy = world->pools[target].streams[box];
}

SIMNMT_EXPORT void simnmt_world_free(World *world) { world_free(world); }
