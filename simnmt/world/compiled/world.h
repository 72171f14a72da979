/* The state of one run: deciders, pools of boxes, and the requests between them. */
#ifndef SIMNMT_WORLD_WORLD_H
#define SIMNMT_WORLD_WORLD_H

#include <time.h>

#include "batch_box.h"
#include "cache.h"
#include "clock.h"
#include "estimates.h"
#include "models.h"
#include "queue_box.h"
#include "slots.h"
#include "views.h"

/* What a decider expects of a target beyond the plane; NULL where it has no such view. */
typedef struct {
    BacklogView *backlog;
    BatchView *batch;
    PlanView *plan;
} Views;

typedef struct {
    const DeciderGroup *group;
    int64_t number;              /* in its group, as that of its own box */
    struct Pool *pool;           /* of the boxes of its group; NULL: first in, first out */
    FifoBox device;              /* without a pool */
    WaitingRoom *room;           /* of this device; NULL: any number of requests may wait */
    int only_heard, has_views;   /* whether it knows what it has heard and no more; whether it has any views */
    SentenceCache *cache;        /* NULL: none */
    int notes_executions;        /* whether the room, the cache or a second decision needs to know what this device executes */
    Clock answers;               /* only the next decision needs an answer, so that none is on the clock of the world */
    TransferEstimate *estimates; /* by target, as the following; that of target 0 stays at 0 */
    double *delay_s, *reported_wait_s;
    Views *views;
} Decider;

/* A request as it enters a pool. */
typedef struct {
    double entry_s, execution_s, factor;
    int64_t request, node, src_len, tgt_len; /* `node`: at a decider's own device, the number of its box; lengths at boxes with slots
                                              * in tokens of prompt and output */
    int64_t models[2]; /* the second of a request that pivots, else below 0 */
    int64_t rank;      /* of its class, at boxes that batch or keep a queue */
    const double *added;
} Arrival;

/* A request between its decision and the moment at which its decider has heard of its answer. */
typedef struct RequestEvent {
    Arrival arrival;
    ModelCopy *copies[2]; /* of its models, at a box that loads them; NULL for no second one */
    double sent_s, downlink_s, transfer_s, wait_s, *added; /* `added`: room for the columns of the arrival */
    int64_t sent_as;
    Decider *decider;
    struct Pool *pool; /* that it enters */
    int32_t target;
    int32_t believed;     /* the state that the decider had estimated */
    int32_t report;       /* of a box that batches, the sentences left active; of one that streams, the state */
    int32_t left_waiting; /* at a box that batches */
    struct RequestEvent *next; /* of the unused ones */
} RequestEvent;

typedef struct Pool {
    PoolSettings settings;
    int64_t target;
    int64_t next; /* of the balancer that takes boxes in turn */
    int is_least_work;
    FifoBox *boxes; /* one for all boxes if `is_least_work` */
    WaitingRoom *rooms; /* by box that is first in, first out; NULL: any number of requests may wait */
    ModelBox *models;
    StreamBox *streams;
    BatchBox *batches;
    QueueBox *queues;
    SlotBox *slots;
    /* Copies to foresee waits, each valid in one trial. */
    int64_t *trial_of;
    FifoBox *trial_boxes;
    StreamBox *trial_streams;
} Pool;

typedef struct {
    Memory *memory;
    WorldSettings settings;
    Clock clock;
    Decider *deciders;
    Pool *pools, *remote;                 /* of the groups of deciders and of the targets from 1 on; `remote + target`: of a target */
    int64_t pool_count;
    double *delay_s, *waits_s, *totals_s; /* by target, of one decision */
    int64_t waits_of;                     /* the request that `waits_s` is of */
    int64_t last_document, last_choice;   /* if decisions are by document: the one last decided on, and its target */
    double last_choice_s;                 /* and when: a sentence that comes again, after a refusal, is decided on by itself */
    double now_s;                         /* back to back */
    double latest_s;                      /* the last moment at which anything happened or will */
    RequestEvent *unused;
    double *added;        /* the columns of the request that is decided on, by target */
    int64_t most_added;   /* the most columns of a target */
    ARRAY(Arrival) ahead; /* see `find_ahead` */
    int64_t trial, issued;
    const Block *block; /* the present one, and its requests that were issued */
    int64_t in_block;
    int64_t looks_left, paused_at_ms; /* events until the wall clock is looked at; when the run returned to Python */
    int is_paused;                    /* whether it returned before the end of the block, or of the run */
} World;

static inline int64_t node_of(const Block *block, int64_t in_block) { return block->node == NULL ? 0 : block->node[in_block]; }

/* Return the decider of a request. A division costs as much as the rest of a decision. */
static inline Decider *decider_of(const World *world, const Block *block, int64_t in_block) {
    if (world->settings.deciders == 1) return world->deciders;
    return world->deciders + (block->decider == NULL ? node_of(block, in_block) % world->settings.deciders : block->decider[in_block]);
}

/* Return the boxes of a target for a decider; NULL at its own first-in first-out device. */
static inline Pool *pool_of(const World *world, const Decider *decider, int64_t target) {
    return target ? world->remote + target : decider->pool;
}

static inline void note_moment(World *world, double at_s) {
    if (at_s > world->latest_s) world->latest_s = at_s;
}

/* Return whether it is time to return to Python, which handles signals: an interrupt ends the run there. Looks at the wall clock
 * after some events; then at least one event comes before the next pause. */
static inline int is_pause_due(World *world) {
    if (world->looks_left-- > 0) return 0;
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, since_ms = now_ms - world->paused_at_ms;
    world->looks_left = world->settings.events_a_look;
    if (since_ms >= 0 && since_ms < world->settings.pause_after_ms) return 0;
    world->paused_at_ms = now_ms;
    world->is_paused = 1;
    return 1;
}

#define SLAB 1024

static RequestEvent *new_event(World *world) {
    if (world->unused == NULL) {
        RequestEvent *slab = resized(world->memory, NULL, SLAB, sizeof *slab);
        double *added = resized(world->memory, NULL, SLAB * world->most_added, sizeof *added);
        for (int64_t number = 0; number < SLAB; number++) {
            slab[number].added = added + number * world->most_added;
            slab[number].next = world->unused;
            world->unused = slab + number;
        }
    }
    RequestEvent *event = world->unused;
    world->unused = event->next;
    return event;
}

static void free_event(World *world, RequestEvent *event) {
    event->next = world->unused;
    world->unused = event;
}

#endif
