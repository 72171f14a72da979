/* The memory of a world, which is freed as a whole, and the way out if there is none: every entry point sets a jump, and a request
 * for memory that fails takes it. */
#ifndef SIMNMT_WORLD_MEMORY_H
#define SIMNMT_WORLD_MEMORY_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

/* What lies before the content of every piece of memory: its place in a ring of all pieces. */
typedef struct Piece {
    _Alignas(max_align_t) struct Piece *before;
    struct Piece *after;
} Piece;

typedef struct {
    Piece ring; /* where the ring begins and ends */
    jmp_buf way_out;
} Memory;

/* Return a memory without pieces; NULL if there is none. */
static Memory *memory_new(void) {
    Memory *memory = malloc(sizeof(Memory));
    if (memory != NULL) memory->ring.before = memory->ring.after = &memory->ring;
    return memory;
}

static void memory_free(Memory *memory) {
    for (Piece *piece = memory->ring.after; piece != &memory->ring;) {
        Piece *after = piece->after;
        free(piece);
        piece = after;
    }
    free(memory);
}

/* Return `content` resized to `count` items of `size` bytes; NULL for a new piece. */
static void *resized(Memory *memory, void *content, int64_t count, size_t size) {
    int fits = (uint64_t)count <= (PTRDIFF_MAX - sizeof(Piece)) / size;
    Piece *old = content == NULL ? NULL : (Piece *)content - 1;
    Piece *piece = fits ? realloc(old, sizeof(Piece) + (size_t)count * size) : NULL;
    if (piece == NULL) longjmp(memory->way_out, NO_MEMORY);
    if (content == NULL) {
        piece->before = &memory->ring;
        piece->after = memory->ring.after;
    }
    piece->before->after = piece->after->before = piece;
    return piece + 1;
}

/* Return `count` items of `size` bytes, all 0, as every `*_begin` takes them. */
static void *zeroed(Memory *memory, int64_t count, size_t size) {
    void *made = resized(memory, NULL, count, size);
    memset(made, 0, (size_t)count * size);
    return made;
}

#endif
