/* Small functions of numbers. */
#ifndef SIMNMT_WORLD_NUMBERS_H
#define SIMNMT_WORLD_NUMBERS_H

#include <math.h>
#include <stdint.h>

static inline double smaller(double one, double other) { return other < one ? other : one; }

static inline double larger(double one, double other) { return other > one ? other : one; }

/* Move a mean towards a new value, which is number `count` or one of `memory`. */
static inline void update_mean(double *mean, double value, int64_t count, int64_t memory) {
    *mean += (value - *mean) / (double)(count < memory ? count : memory);
}

/* Return the number of ascending values that are less than `value`. */
static inline int64_t bisected_left(const double *ascending, int64_t count, double value) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (ascending[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Return the number of ascending values up to `value`. */
static inline int64_t bisected_right(const double *ascending, int64_t count, double value) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (value < ascending[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

#endif
