/* What Python hands over, and the state of one run: deciders, servers, and the requests between them. */
#ifndef SIMNMT_WORLD_WORLD_H
#define SIMNMT_WORLD_WORLD_H

#include <time.h>

#include "backlog_view.h"
#include "batch_server.h"
#include "batch_view.h"
#include "clock.h"
#include "estimates.h"
#include "shared_line.h"
#include "streaming_server.h"

enum { BACK_TO_BACK, OPEN_LOOP, CLOSED_LOOP };          /* disciplines */
enum { ALWAYS, LEAST_TOTAL };                           /* choices */
enum { FIFO_POOL, LEAST_WORK_POOL, BATCH_POOL, STREAMING_POOL }; /* servers */
enum { BY_NODE, IN_TURN, LEAST_LOADED_OF_DRAWN, FEWEST_TOKENS }; /* balancers */

/* How a target's boxes are; of target 0 only if they are no first-in first-out servers. */
typedef struct {
    int64_t kind, boxes, workers, balancer, drawn;
    const int16_t *const *choices; /* by drawn box and request */
    const BatchCost *cost;         /* of boxes that batch, as the following */
    Batching batching;
    int64_t enough;                /* sentences that wait, beyond which later arrivals change nothing for now */
    const StreamingSettings *streaming;
} PoolSettings;

/* A series of a link's RTT or bandwidth; a constant has one sample. */
typedef struct {
    int64_t samples;
    double lap_s;
    const double *time_s, *value;
} Series;

typedef struct {
    Series rtt, uplink_bps, downlink_bps;
} Link;

typedef struct {
    int64_t link_count, begin_count;
    const Link *links;
    const double *begin_s;
} Hop;

/* For links that are looked up during the run. */
typedef struct {
    const Hop *access, *hops; /* `access`: NULL if end nodes are their own deciders */
    const int64_t *token_bytes, *src_len, *tgt_len;
    const double *moments_s;               /* by request; NULL: the moments at which they are issued */
    const double *const *half_overhead_s;  /* by target and request; NULL without overhead */
} Routes;

/* One direction of one hop, as one message crosses it: first the line, then the delay. */
typedef struct {
    int64_t line; /* below 0 on a link of the message's own */
    double bits, delay_s;
} Leg;

/* The paths of messages that meet each other on shared lines. */
typedef struct {
    const Hop *hops;
    const int64_t *const *uplinks; /* by hop and link, the number of its uplink's line, which that of the downlink follows */
    int64_t lines;
    const Capacity *capacities; /* by line */
    const int64_t *token_bytes, *src_len, *tgt_len;
    const double *moments_s;              /* by request; NULL: the moments at which they are issued */
    const double *const *half_overhead_s; /* by target and request; NULL without overhead */
} Paths;

/* The clients of a closed loop; `first`: those that ever ask, in the order of their numbers. */
typedef struct {
    int64_t count, nodes, first_count, requests;
    const int64_t *first;
    const double *think_s;
    /* By request: the client, seconds from its decider back to it, its end node, and when its decider had it. */
    int64_t *client_of;
    double *back_s, *decided_s;
    int32_t *node;
} Clients;

typedef struct {
    int64_t targets, deciders, workers, discipline, judged_limit;
    int64_t true_transfer, true_backlog;
    const PoolSettings *pools;          /* by target */
    const EstimateSettings *estimates;  /* by decider and target 1 and following */
    const int64_t *parallel;            /* by target, of its view of the backlog; 0: no such view */
    const BatchViewSettings *const *batch_views; /* by target; NULL: no view of a batch */
    const StreamingSettings *const *plan_views;  /* by target; NULL: no view of a state */
    int64_t is_local;                   /* whether target 0 has a pool, of a box for each decider */
    const Routes *routes;               /* NULL: the columns hold the times of links */
    const Clients *clients;             /* of a closed loop */
    const Paths *paths;                 /* NULL: no message meets another */
    int64_t allocations;                /* see `Memory` */
    int64_t events_a_look, pause_after_ms; /* see `is_pause_due` */
    /* The trail, by request. */
    double *arrival_s, *queue_s, *estimate_s, *measured_at_s, *lost_s, *execution_s, *first_token_s, *stall_s, *transfer_s;
    int8_t *target, *state, *deadline_missed;
    int16_t *server;
} WorldSettings;

/* Consecutive requests, with what the policy prepared for them; columns by request in the block. */
typedef struct {
    int64_t first, count, choice, chosen;
    const double *arrival_s, *access_s;
    const int32_t *node;
    const int64_t *src_len, *tgt_len;
    const double *const *execution_s, *const *uplink_s, *const *downlink_s; /* by target; links from target 1 on */
    const double *const *weighed_s, *const *expected, *const *factor;       /* by target */
    const double *const *const *added;  /* by target that streams: the columns of its requests */
    const double *const *const *beyond; /* by target that streams: by state, what the policy expects beyond its plane */
} Block;

typedef struct {
    double received_s, transfer_s;
    int64_t request, sent_as;
    int32_t target;
    int32_t report;       /* of a box that batches, the sentences left active; of one that streams, the state */
    int32_t left_waiting; /* at a box that batches */
    int32_t believed;     /* the state that the decider had estimated */
} Answer;

typedef struct {
    int64_t number;
    FifoServer device;
    Answer *answers; /* a heap by (received, request) */
    int64_t answer_count, answer_capacity;
    TransferEstimate *estimates; /* by target; that of target 0 stays at 0 */
    double *delay_s;
    BacklogView *views;     /* by target; NULL without views of backlogs */
    BatchView *batch_views; /* by target; NULL without views of batches */
    PlanView *plans;        /* by target; NULL without views of states */
} Decider;

typedef struct RequestEvent RequestEvent;

/* A request between its decision and its arrival at its server. */
struct RequestEvent {
    int64_t request;
    double sent_s, entry_s, execution_s, downlink_s;
    double factor, *added;
    int64_t sent_as, node, src_len, tgt_len;
    Decider *decider;
    int32_t target, believed;
    /* Of a message: its legs, the one that it is on, when the delay there ends, and its execution. */
    Leg *legs;
    int64_t leg, leg_count;
    double due_s, begin_s, finish_s;
    int32_t stage, box, report, left_waiting;
    RequestEvent *next; /* of the unused ones */
};

/* A sentence that enters a box in a trial whose present state is not copied. */
typedef struct {
    int64_t box;
    Waiting sentence;
} Coming;

typedef struct {
    PoolSettings settings;
    FifoServer *boxes;
    LeastWork least_work;
    int64_t next; /* of the balancer that takes boxes in turn */
    /* Copies to foresee waits, each valid in one trial. */
    FifoServer *trial_boxes;
    int64_t *trial_of;
    LeastWork trial_least_work;
    BatchServer *servers, *laters, *trials; /* boxes that batch; copies at the moment when few sentences wait; and for trials */
    int *has_later, *uses_later;
    double *armed_s; /* by box, the last moment for which it was put on the clock */
    Coming *coming;  /* of the present trial */
    int64_t coming_count, coming_capacity;
    StreamingBox *streams, *trial_streams;
    int64_t target;
} Pool;

typedef struct {
    double entry_s, execution_s, factor;
    int64_t request, node, src_len, tgt_len;
    const double *added;
} Arrival;

/* One request with all its numbers, for links that are looked up, and on its way to its decider. */
typedef struct Row Row;

struct Row {
    Block block; /* of this request alone */
    int64_t src_len, tgt_len, states;
    int32_t node;
    double *numbers, *execution_s, *uplink_s, *downlink_s, *weighed_s, *expected, *factor, *added, *beyond;
    const double **of_targets[6], ***added_of, ***beyond_of;
    Row *next; /* of the unused ones */
};

typedef struct {
    Memory memory;
    WorldSettings settings;
    Clock clock;
    Decider *deciders;
    Pool *pools; /* by target */
    double *delay_s, *waits_s, *totals_s; /* by target, of one decision */
    int64_t waits_of;                     /* the request that `waits_s` is of */
    double now_s;                         /* back to back */
    RequestEvent *unused, **slabs;
    Leg **leg_slabs, *trial_legs;
    SharedLine *lines;
    RequestEvent **leaving; /* messages that leave a line at one moment */
    int64_t most_legs, leaving_capacity;
    double **added_slabs, *added; /* the columns of the events of each slab, and of the request that is decided on, by target */
    int64_t slab_count, slab_capacity, most_added;
    Arrival *ahead;
    int64_t ahead_capacity, trial;
    Row **rows, *unused_rows;
    int64_t row_count, row_capacity, issued;
    const Block *block; /* the present one, and its requests that were issued */
    int64_t in_block;
    int64_t looks_left, paused_at_ms; /* events until the wall clock is looked at; when the run returned to Python */
    int is_paused;                    /* whether it returned before the end of the block, or of the run */
} World;

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
        if (world->slab_count == world->slab_capacity) {
            int64_t capacity = world->slab_capacity ? 2 * world->slab_capacity : 8;
            world->slabs = resized(&world->memory, world->slabs, capacity, sizeof *world->slabs);
            world->added_slabs = resized(&world->memory, world->added_slabs, capacity, sizeof *world->added_slabs);
            world->leg_slabs = resized(&world->memory, world->leg_slabs, capacity, sizeof *world->leg_slabs);
            world->slab_capacity = capacity;
        }
        double *added = resized(&world->memory, NULL, SLAB * world->most_added, sizeof *added);
        world->added_slabs[world->slab_count] = added;
        world->leg_slabs[world->slab_count] = NULL;
        world->slabs[world->slab_count++] = NULL;
        Leg *legs = world->leg_slabs[world->slab_count - 1] = resized(&world->memory, NULL, SLAB * world->most_legs, sizeof *legs);
        RequestEvent *slab = world->slabs[world->slab_count - 1] = resized(&world->memory, NULL, SLAB, sizeof *slab);
        for (int64_t number = 0; number < SLAB; number++) {
            slab[number].added = added + number * world->most_added;
            slab[number].legs = legs + number * world->most_legs;
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
