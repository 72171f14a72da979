/* What Python hands over, and the columns that a run fills: the only declaration of these structures. `structures.py` reads it,
 * so that it holds plain `typedef struct`s of int64_t, double, int8_t, int16_t, int32_t, pointers, and structures before. */
#ifndef SIMNMT_WORLD_SETTINGS_H
#define SIMNMT_WORLD_SETTINGS_H

#include <stdint.h>

enum { BACK_TO_BACK, OPEN_LOOP, CLOSED_LOOP };                    /* disciplines */
enum { ALWAYS, LEAST_TOTAL, CALLED };                             /* choices */
enum { FIFO_POOL, MODEL_POOL, BATCH_POOL, STREAM_POOL, QUEUE_POOL, SLOT_POOL }; /* kinds of boxes */
enum { BY_NODE, IN_TURN, LEAST_LOADED_OF_DRAWN, LEAST_WORK };     /* balancers */
enum { WEIGHTED, QUANTILE };                                      /* estimates */
enum { DONE, NO_MEMORY, PAUSED, STOPPED };                        /* how a call of Python ends */
enum { WAS_ANSWERED, FELL_BACK, GAVE_UP, WAS_REFUSED };           /* outcomes of requests, as in results/live_log.py */

/* The seconds of one batch size by length: a table of `knots` lengths. */
typedef struct {
    int64_t knots;
    const double *start, *value, *slopes, *before;
} LengthCost;

/* The seconds of encoding, joining and decoding batches. */
typedef struct {
    const LengthCost *steps, *encoders; /* by sentences, from 1 on */
    const double *gap_s;                /* by sentences, from 1 on */
    int64_t encoder_count, packs, weighs_sources, src_len;
    double mean_over_usual, padding_share, refill_s_fixed, refill_s_per_sentence, leave_s, s_per_row_src_token;
} BatchCost;

/* The classes of requests in a queue, the first served first, and how long requests of each wait at most before they go first. */
typedef struct {
    int64_t count;
    const double *max_wait_s;
} Classes;

/* The settings of a batcher; 0 for no collection and for no limit of padded tokens. */
typedef struct {
    int64_t size, threshold, collected, padded_tokens, together, ends_together;
    double longest_wait_s;
    Classes classes;
} Batching;

/* The streaming plans of one target; bytes and seconds by state. */
typedef struct {
    int64_t states, columns, keeps_preload;
    double within_s, slowing, engagement_gap_s, reclaimed_after_s, engaged_s;
    const double *read_s;
    const int64_t *held_bytes, *kept_bytes, *streamed_bytes;
} StreamSettings;

/* The state of a box that streams its model, which Python reads back; `counts`: requests by state. */
typedef struct {
    double free_s, disk_free_s, begun_s, compute_s, held_byte_s;
    int64_t state, peak_bytes, peak_shard_bytes, last_shard_bytes;
    int64_t *counts;
} StreamBox;

/* The models of a target, and the memory of each of its boxes; bytes and seconds by model. */
typedef struct {
    int64_t models, memory_bytes, keeps_all;
    const int64_t *of_workload, *size_bytes;
    const int64_t *second_of_workload; /* below 0: requests of the workload do not pivot; NULL: none do */
    const double *load_s;
    const BatchCost *const *costs; /* of boxes that batch */
} ModelSettings;

/* The limits and the costs of boxes with slots; 0 for no limit of context. See devices/slots.py. */
typedef struct {
    int64_t slots, chunk, context, cached_prefix;
    double s_per_prompt_token, s_per_context_token, request_s;
    const double *step_s; /* by decoding slots, from 0 on */
} SlotSettings;

/* The boxes of a target, or of a group of deciders. */
typedef struct {
    int64_t kind, boxes, workers, balancer, drawn;
    const int16_t *const *choices; /* by drawn box and request */
    const BatchCost *cost;         /* of boxes that batch, as the following */
    Batching batching;
    double full_step_s; /* of a full batch, or of full slots, for each sentence in it */
    int64_t max_waiting; /* requests that may wait at each box; 0: any number */
    const StreamSettings *stream;
    const ModelSettings *models;
    Classes classes; /* of boxes that keep a queue, as the following */
    int64_t factor_count;
    const double *factors; /* on the seconds of an execution, by requests in its box when it begins, from 1 on */
    const SlotSettings *slots;
} PoolSettings;

/* What all views of a target's batches have in common. */
typedef struct {
    int64_t size, threshold, servers;
    double step_alone_s, alone_s, together_s;
    const double *slower_s, *end_s; /* by twice the sentences in a step, and by the sentences in the batch */
} BatchViewSettings;

/* How a decider estimates the transfer time of a target. */
typedef struct {
    double initial_s, weight, quantile;
    int64_t window, kind;
} EstimateSettings;

/* The cache of translations that each decider of a group has. */
typedef struct {
    int64_t entries, coalesces;
    double lifetime_s, hit_s;
} CacheSettings;

/* Consecutive deciders, their own devices, and what a policy lets them know. */
typedef struct {
    PoolSettings pool; /* a box for each of them */
    int64_t true_transfer, true_backlog, shows_view;
    const int64_t *parallel;                     /* by target, of its view of the backlog; 0: no such view */
    const BatchViewSettings *const *batch_views; /* by target; NULL: no view of a batch */
    const StreamSettings *const *plan_views;     /* by target; NULL: no view of a state */
    const CacheSettings *cache;                  /* NULL: none */
} DeciderGroup;

/* The RTT or the bandwidth of a link over time; a constant has one sample. */
typedef struct {
    int64_t samples;
    double lap_s;
    const double *time_s, *value;
} Series;

/* The series of a link. */
typedef struct {
    Series rtt, uplink_bps, downlink_bps;
} Link;

/* The links of a hop, by end node. */
typedef struct {
    int64_t link_count, begin_count;
    const Link *links;
    const double *begin_s;
} Hop;

/* The hops that a run looks up. */
typedef struct {
    const Hop *access, *hops; /* `access`: NULL if end nodes are their own deciders */
    const int64_t *token_bytes, *src_len, *tgt_len;
    const double *moments_s;              /* by request; NULL: the moments at which they are issued */
    const double *const *half_overhead_s; /* by target and request; NULL without overhead */
} Routes;

/* The clients of a closed loop; `first`: those that ever ask, in the order in which they first do. */
typedef struct {
    int64_t count, nodes, first_count, requests;
    const int64_t *first;
    const double *think_s;
    int64_t *client_of; /* by request, as the seconds back to its client and the moment at which its decider had it */
    double *back_s, *decided_s;
} Clients;

/* The account of a box that batches or has slots. */
typedef struct {
    int64_t *steps; /* by active sentences */
    double *step_s;
    double encode_s, refill_s;
    int64_t encodings, refills, src_tokens, padded_tokens, sentences;
} Account;

/* All settings of a run, and the columns that it fills, by request. */
typedef struct {
    int64_t targets, group_count, deciders, discipline, judged_limit;
    const DeciderGroup *groups;                 /* of the deciders, in their order */
    const PoolSettings *pools;                  /* by target 1 and following */
    const EstimateSettings *estimates;          /* by decider and target 1 and following */
    const Routes *routes;                       /* NULL: the columns hold the times of links */
    const Clients *clients;                     /* of a closed loop */
    const int64_t *sentence;                    /* by request, of a run with caches; NULL: each is a new one */
    void *decide;                               /* int64_t (*)(int64_t in_block); below 0: stop */
    double *shown;                              /* what it decides on: see `called` */
    int64_t events_a_look, pause_after_ms; /* see `is_pause_due` */
    int64_t passes_on, retries; /* whether deciders pass refusals on; most further tries of a client */
    double *decided_s;          /* when the decider last had each request, where clients come back */
    double *deferred_queue_s, *deferred_exe_s; /* of a policy that decides again; NULL: none does */
    double *arrival_s, *queue_s, *estimate_s, *measured_at_s, *decision_regret_s, *execution_s, *first_token_s, *stall_s, *load_wait_s, *retry_s;
    int8_t *target, *state, *deadline_missed, *model_load, *outcome, *tries, *hit;
    int16_t *server;
} WorldSettings;

/* Consecutive requests, with what the policy prepared for them; columns by request in the block. */
typedef struct {
    int64_t first, count, choice, chosen;
    const double *arrival_s, *access_s;
    const double *const *retry_after_s; /* by try, from the refusal until the client is back at its decider */
    const double *patience_s;           /* after which the client does not come back; NULL: it always does */
    int32_t *node;
    const int32_t *decider;  /* NULL: by node */
    const int32_t *document; /* the decision on the first sentence of each holds for all; NULL: each request is decided on by itself */
    const int64_t *src_len, *tgt_len, *model;
    const int64_t *const *prompt, *const *output; /* by target with slots: the tokens of its prompts and outputs */
    const int8_t *priority; /* ranks of classes; NULL: 0 for all */
    const double *const *execution_s;
    double *const *uplink_s, *const *downlink_s;                      /* by target, from 1 on; filled where links are looked up */
    const double *const *second_s; /* by target, what the decision after the first execution weighs; NULL: there is none */
    const double *const *weighed_s, *const *expected, *const *factor; /* by target */
    const double *const *const *added;  /* by target that streams: the columns of its requests */
    const double *const *const *beyond; /* by target that streams: by state, what the policy expects beyond its plane */
} Block;

#endif
