/* The cache of translations of one decider. See devices/translation_cache.py, and `CachedRequests` in world/cached.py. */
#ifndef SIMNMT_WORLD_CACHE_H
#define SIMNMT_WORLD_CACHE_H

#include <math.h>

#include "clock.h"

/* Of functions that runs without caches never call: inlined, they would slow down what such runs do for each request. */
#define KEPT_APART __attribute__((noinline))
/* Of few runs: so that the compiler makes the others' code as if there were no such function. */
#define RARE __attribute__((noinline, cold))

enum { NO_HIT, HIT, JOINED };
#define NOTHING (-1)

/* A sentence that is kept or being translated. Places of others are -1 for none. */
typedef struct {
    int64_t sentence;
    double at_s;  /* from when it is kept; of one under way, when its answer is received, and infinite while that is unknown */
    int32_t next; /* of its bucket, or of the unused entries */
    int32_t older, newer; /* by their last use, of those that are kept */
    int32_t waiting;      /* the last request that waits for a translation whose answer is not known yet: its place in `waiting` */
    int32_t is_under_way;
} CacheEntry;

/* A request that waits for a translation, and the place of the one before it. */
typedef struct {
    int64_t request;
    int32_t before;
} WaitingRequest;

typedef struct {
    const CacheSettings *settings;
    Clock answers; /* received from now on: each is inserted before the next request is looked up */
    CacheEntry *entries;
    int32_t *buckets; /* by hash of a sentence, its first entry */
    int64_t bucket_count, entry_count, kept_count;
    int32_t unused, oldest, newest;
    ARRAY(WaitingRequest) waiting;
    int32_t unused_waiting;
} SentenceCache;

static SentenceCache *cache_new(Memory *memory, const CacheSettings *settings) {
    SentenceCache *self = zeroed(memory, 1, sizeof *self);
    self->settings = settings;
    self->unused = self->oldest = self->newest = self->unused_waiting = NOTHING;
    return self;
}

static inline int32_t *bucket_of(const SentenceCache *self, int64_t sentence) {
    uint64_t mixed = (uint64_t)sentence * 0x9E3779B97F4A7C15u;
    return self->buckets + ((mixed >> 32) & (uint64_t)(self->bucket_count - 1));
}

/* Return the place of a sentence; -1 if it is neither kept nor under way. */
static inline int32_t cache_find(const SentenceCache *self, int64_t sentence) {
    if (!self->bucket_count) return NOTHING;
    int32_t place = *bucket_of(self, sentence);
    while (place != NOTHING && self->entries[place].sentence != sentence) place = self->entries[place].next;
    return place;
}

/* Double the entries and the buckets, of which there are as many. */
static void cache_grow(Memory *memory, SentenceCache *self) {
    int64_t count = self->bucket_count, doubled = count ? 2 * count : 64;
    if (doubled > INT32_MAX / 2) longjmp(memory->way_out, NO_MEMORY);
    self->entries = resized(memory, self->entries, doubled, sizeof *self->entries);
    self->buckets = resized(memory, self->buckets, doubled, sizeof *self->buckets);
    self->bucket_count = doubled;
    for (int64_t bucket = 0; bucket < doubled; bucket++) self->buckets[bucket] = NOTHING;
    for (int32_t place = 0; place < count; place++) { /* all are in use */
        int32_t *bucket = bucket_of(self, self->entries[place].sentence);
        self->entries[place].next = *bucket;
        *bucket = place;
    }
}

/* Return the place of a new entry of a sentence. */
static int32_t cache_add(Memory *memory, SentenceCache *self, int64_t sentence) {
    int32_t place = self->unused;
    if (place != NOTHING) {
        self->unused = self->entries[place].next;
    } else {
        if (self->entry_count == self->bucket_count) cache_grow(memory, self);
        place = (int32_t)self->entry_count++;
    }
    int32_t *bucket = bucket_of(self, sentence);
    self->entries[place] = (CacheEntry){sentence, INFINITY, *bucket, NOTHING, NOTHING, NOTHING, 0};
    *bucket = place;
    return place;
}

static void cache_remove(SentenceCache *self, int32_t place) {
    CacheEntry *entry = self->entries + place;
    int32_t *link = bucket_of(self, entry->sentence);
    while (*link != place) link = &self->entries[*link].next;
    *link = entry->next;
    entry->next = self->unused;
    self->unused = place;
}

/* Take an entry out of the order of use. */
static inline void cache_unlink(SentenceCache *self, int32_t place) {
    const CacheEntry *entry = self->entries + place;
    *(entry->older == NOTHING ? &self->oldest : &self->entries[entry->older].newer) = entry->newer;
    *(entry->newer == NOTHING ? &self->newest : &self->entries[entry->newer].older) = entry->older;
}

/* Make an entry, which is out of the order of use, the most recently used one. */
static inline void cache_link(SentenceCache *self, int32_t place) {
    CacheEntry *entry = self->entries + place;
    entry->older = self->newest;
    entry->newer = NOTHING;
    *(self->newest == NOTHING ? &self->oldest : &self->entries[self->newest].newer) = place;
    self->newest = place;
}

/* Keep the translation of a sentence from a moment on. */
static void cache_insert(Memory *memory, SentenceCache *self, int64_t sentence, double now_s) {
    int32_t place = cache_find(self, sentence);
    if (place == NOTHING) place = cache_add(memory, self, sentence);
    CacheEntry *entry = self->entries + place;
    if (entry->at_s < INFINITY && !entry->is_under_way) {
        cache_unlink(self, place);
        self->kept_count -= 1;
    }
    entry->is_under_way = 0;
    entry->at_s = now_s;
    cache_link(self, place);
    if (++self->kept_count <= self->settings->entries) return;
    int32_t oldest = self->oldest;
    cache_unlink(self, oldest);
    cache_remove(self, oldest);
    self->kept_count -= 1;
}

/* Return whether a request needs no translation, as `HIT` or `JOINED`. `place`: of its sentence, -1 for a new one. */
static inline int cache_look_up(SentenceCache *self, int64_t sentence, double now_s, int32_t *place) {
    *place = cache_find(self, sentence);
    if (*place == NOTHING) return NO_HIT;
    if (self->entries[*place].is_under_way) return JOINED;
    cache_unlink(self, *place);
    if (now_s - self->entries[*place].at_s < self->settings->lifetime_s) {
        cache_link(self, *place);
        return HIT;
    }
    cache_remove(self, *place);
    self->kept_count -= 1;
    return NO_HIT;
}

/* Note that a sentence is being translated from now on. */
static inline void cache_begin(Memory *memory, SentenceCache *self, int64_t sentence) {
    if (!self->settings->coalesces) return;
    int32_t place = cache_add(memory, self, sentence);
    self->entries[place].is_under_way = 1;
}

/* Let a request wait for a translation whose answer is not known yet. */
static void cache_wait(Memory *memory, SentenceCache *self, int32_t place, int64_t request) {
    int32_t free = self->unused_waiting;
    if (free == NOTHING) {
        APPEND(memory, self->waiting, (WaitingRequest){0});
        free = (int32_t)self->waiting.count - 1;
    } else {
        self->unused_waiting = self->waiting.items[free].before;
    }
    self->waiting.items[free] = (WaitingRequest){request, self->entries[place].waiting};
    self->entries[place].waiting = free;
}

/* Take a request from those that wait, and set `place` to that of the next one. */
static inline int64_t cache_stop_waiting(SentenceCache *self, int32_t *place) {
    WaitingRequest *waiting = self->waiting.items + *place;
    int32_t taken = *place;
    *place = waiting->before;
    waiting->before = self->unused_waiting;
    self->unused_waiting = taken;
    return waiting->request;
}

/* Note that a sentence was not translated; return the place of the first request that waits for it, before which the others stand in
 * their order. */
static int32_t cache_fail(SentenceCache *self, int64_t sentence) {
    int32_t found = cache_find(self, sentence), first = NOTHING;
    for (int32_t place = self->entries[found].waiting; place != NOTHING;) {
        int32_t before = self->waiting.items[place].before;
        self->waiting.items[place].before = first;
        first = place;
        place = before;
    }
    cache_remove(self, found);
    return first;
}

#endif
