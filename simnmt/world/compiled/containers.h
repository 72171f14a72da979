/* Arrays that grow, binary heaps and queues, of any type of items; those that are all 0 are empty. */
#ifndef SIMNMT_WORLD_CONTAINERS_H
#define SIMNMT_WORLD_CONTAINERS_H

#include "memory.h"

#define ARRAY(Item)              \
    struct {                     \
        Item *items;             \
        int64_t count, capacity; \
    }

/* Make room for one more item after `count` items; the capacity doubles. */
#define GROW(memory, items, count, capacity)                                \
    do {                                                                    \
        if ((count) == (capacity)) {                                        \
            int64_t doubled = (capacity) ? 2 * (capacity) : 8;              \
            (items) = resized((memory), (items), doubled, sizeof *(items)); \
            (capacity) = doubled;                                           \
        }                                                                   \
    } while (0)

/* Add an item, the last argument, at the end of an array. */
#define APPEND(memory, array, ...)                                           \
    do {                                                                     \
        GROW((memory), (array).items, (array).count, (array).capacity);      \
        (array).items[(array).count++] = (__VA_ARGS__);                      \
    } while (0)

/* Of short functions that most events call, which a compiler else leaves out of line once rare ones call them too. */
#define INLINED inline __attribute__((always_inline))

/* Define a heap, whose `items[0]` is before all others; `is_before(one, other)` compares two items by their addresses. */
#define DEFINE_HEAP(Heap, Item, name, is_before)                                                                             \
    typedef ARRAY(Item) Heap;                                                                                                \
                                                                                                                             \
    static inline void name##_replace_first(Heap *heap, Item item) {                                                         \
        Item *items = heap->items;                                                                                           \
        int64_t place = 0, count = heap->count;                                                                              \
        for (int64_t child = 1; child < count; child = 2 * place + 1) {                                                      \
            if (child + 1 < count && is_before(items + child + 1, items + child)) child += 1;                                \
            if (!is_before(items + child, &item)) break;                                                                     \
            items[place] = items[child];                                                                                     \
            place = child;                                                                                                   \
        }                                                                                                                    \
        items[place] = item;                                                                                                 \
    }                                                                                                                        \
                                                                                                                             \
    static INLINED void name##_push(Memory *memory, Heap *heap, Item item) {                                                 \
        GROW(memory, heap->items, heap->count, heap->capacity);                                                              \
        Item *items = heap->items;                                                                                           \
        int64_t place = heap->count++;                                                                                       \
        while (place > 0 && is_before(&item, items + (place - 1) / 2)) {                                                     \
            items[place] = items[(place - 1) / 2];                                                                           \
            place = (place - 1) / 2;                                                                                         \
        }                                                                                                                    \
        items[place] = item;                                                                                                 \
    }                                                                                                                        \
                                                                                                                             \
    static inline Item name##_pop(Heap *heap) {                                                                              \
        Item first = heap->items[0];                                                                                         \
        heap->count -= 1;                                                                                                    \
        name##_replace_first(heap, heap->items[heap->count]);                                                                \
        return first;                                                                                                        \
    }

/* Define a queue, which keeps its items one after another; `name_at(queue, 0)` is the first. */
#define DEFINE_QUEUE(Queue, Item, name)                                                                                      \
    typedef struct {                                                                                                         \
        Item *items;                                                                                                         \
        int64_t first, count, capacity;                                                                                      \
    } Queue;                                                                                                                 \
                                                                                                                             \
    static inline Item *name##_at(const Queue *queue, int64_t place) { return queue->items + queue->first + place; }         \
                                                                                                                             \
    static inline void name##_add(Memory *memory, Queue *queue, Item item) {                                                 \
        int64_t end = queue->first + queue->count;                                                                           \
        if (end == queue->capacity && 2 * queue->first > end) { /* mostly gone: move the rest to the front */                \
            memmove(queue->items, name##_at(queue, 0), (size_t)queue->count * sizeof(Item));                                 \
            queue->first = 0;                                                                                                \
            end = queue->count;                                                                                              \
        }                                                                                                                    \
        GROW(memory, queue->items, end, queue->capacity);                                                                    \
        queue->items[end] = item;                                                                                            \
        queue->count += 1;                                                                                                   \
    }                                                                                                                        \
                                                                                                                             \
    static inline Item name##_take(Queue *queue) {                                                                           \
        Item first = queue->items[queue->first++];                                                                           \
        queue->count -= 1;                                                                                                   \
        if (!queue->count) queue->first = 0;                                                                                 \
        return first;                                                                                                        \
    }

#endif
