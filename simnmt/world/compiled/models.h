/* The models of a box, not all of which fit into memory. See devices/models.py and batching/model_memory.py. */
#ifndef SIMNMT_WORLD_MODELS_H
#define SIMNMT_WORLD_MODELS_H

#include "containers.h"
#include "numbers.h"

/* A model in memory, from the request that asks for its load until it is evicted and its last request has ended. */
typedef struct ModelCopy {
    int64_t model;
    int is_loaded;
    double ended_s;        /* the last end of its requests that is known */
    int64_t requests;      /* those that have entered and whose end is not known yet */
    ARRAY(void *) waiting; /* the events of the requests that wait for its load */
    ARRAY(struct ModelCopy *) evicts;
    struct ModelCopy *next; /* of the unused ones */
} ModelCopy;

DEFINE_QUEUE(Loads, ModelCopy *, loads)

typedef struct {
    const ModelSettings *settings;
    ModelCopy **held; /* least recently used first */
    int64_t held_count, free_bytes;
    Loads loads; /* the first has begun if `is_loading`, and ends at `load_ends_s` */
    int is_loading;
    double load_ends_s;
    ModelCopy *unused;
} ModelBox;

static ModelCopy *new_copy(Memory *memory, ModelBox *self, int64_t model) {
    ModelCopy *copy = self->unused;
    if (copy == NULL)
        copy = zeroed(memory, 1, sizeof *copy);
    else
        self->unused = copy->next;
    copy->model = model;
    copy->is_loaded = 0;
    copy->ended_s = 0.0;
    return copy;
}

static void model_box_begin(Memory *memory, ModelBox *self, const ModelSettings *settings) {
    self->settings = settings;
    self->free_bytes = settings->memory_bytes;
    self->held = zeroed(memory, settings->models, sizeof(ModelCopy *));
}

/* Return the place of a model in memory; -1 if it is not there. */
static int64_t held_at(const ModelBox *self, int64_t model) {
    int64_t place = self->held_count - 1;
    while (place >= 0 && self->held[place]->model != model) place -= 1;
    return place;
}

/* Let a request enter; return the copy of its model, and set whether that was in memory. */
static ModelCopy *model_enter(Memory *memory, ModelBox *self, int64_t model, int *is_hit) {
    const int64_t *size_bytes = self->settings->size_bytes;
    ModelCopy **held = self->held, *copy;
    int64_t place = held_at(self, model), removed = 1;
    *is_hit = place >= 0;
    if (*is_hit) {
        copy = held[place];
    } else {
        copy = new_copy(memory, self, model);
        self->free_bytes -= size_bytes[model];
        for (place = removed = 0; self->free_bytes < 0; removed++) {
            self->free_bytes += size_bytes[held[removed]->model];
            APPEND(memory, copy->evicts, held[removed]);
        }
        loads_add(memory, &self->loads, copy);
    }
    self->held_count -= removed;
    memmove(held + place, held + place + removed, (size_t)(self->held_count - place) * sizeof *held);
    held[self->held_count++] = copy;
    copy->requests += 1;
    return copy;
}

/* Let the first load begin when the requests of the copies that it evicts have ended; return whether these ends are known, and
 * so `load_ends_s`. */
static int load_begin(ModelBox *self, double now_s) {
    if (self->is_loading || !self->loads.count) return 0;
    ModelCopy *copy = *loads_at(&self->loads, 0);
    double begin_s = now_s;
    for (int64_t number = 0; number < copy->evicts.count; number++)
        if (copy->evicts.items[number]->requests) return 0;
    for (int64_t number = 0; number < copy->evicts.count; number++) {
        ModelCopy *evicted = copy->evicts.items[number];
        begin_s = larger(begin_s, evicted->ended_s);
        evicted->next = self->unused;
        self->unused = evicted;
    }
    copy->evicts.count = 0;
    self->load_ends_s = begin_s + self->settings->load_s[copy->model];
    return self->is_loading = 1;
}

/* Return how many of the loads end before a request of two models, the second below 0 for none, can begin. */
static int64_t loads_until(const ModelBox *self, const int64_t models[2]) {
    int64_t until = 0;
    for (int number = 0; number < 2 && models[number] >= 0; number++) {
        int64_t place = held_at(self, models[number]);
        if (place < 0) return self->loads.count;
        for (int64_t load = until; load < self->loads.count; load++)
            if (*loads_at(&self->loads, load) == self->held[place]) until = load + 1;
    }
    return until;
}

/* Return the seconds of the loads before a request that entered now could begin; waits for memory are not foreseen. */
static double load_left_s(const ModelBox *self, const int64_t models[2], double now_s) {
    int64_t until = loads_until(self, models);
    double left_s = 0.0;
    for (int64_t number = 0; number < until; number++) {
        double load_s = self->settings->load_s[(*loads_at(&self->loads, number))->model];
        left_s += number || !self->is_loading ? load_s : smaller(load_s, self->load_ends_s - now_s);
    }
    for (int number = 0; number < 2 && models[number] >= 0; number++)
        if (held_at(self, models[number]) < 0) left_s += self->settings->load_s[models[number]];
    return left_s;
}

#endif
