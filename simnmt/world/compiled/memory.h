/* Memory that grows, and the way out if there is none: every entry point sets a jump, and a failed request takes it. */
#ifndef SIMNMT_WORLD_MEMORY_H
#define SIMNMT_WORLD_MEMORY_H

#include <assert.h> /* with NDEBUG in a release: see WORLD_LIBRARY in base/compile.py */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

typedef struct {
    jmp_buf way_out;
} Memory;

/* Return `content` resized to `count` items of `size` bytes. */
static void *resized(Memory *memory, void *content, int64_t count, size_t size) {
    void *made = (uint64_t)count <= PTRDIFF_MAX / size ? realloc(content, count ? (size_t)count * size : 1) : NULL;
    if (made == NULL) longjmp(memory->way_out, NO_MEMORY);
    return made;
}

/* Return `count` items of `size` bytes, all 0. */
static void *zeroed(Memory *memory, int64_t count, size_t size) {
    void *made = resized(memory, NULL, count, size);
    memset(made, 0, (size_t)count * size);
    return made;
}

/* Make room for one more item in an array of `count` items, whose capacity doubles. */
#define GROW(memory, array, count, capacity)                                                              \
    do {                                                                                                  \
        if ((count) == (capacity)) {                                                                      \
            int64_t doubled = (capacity) ? 2 * (capacity) : 8;                                            \
            (array) = resized((memory), (array), doubled, sizeof *(array));                               \
            (capacity) = doubled;                                                                         \
        }                                                                                                 \
    } while (0)

#endif
