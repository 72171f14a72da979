/* Seconds of encoding, joining and decoding batches. See `DecodingCost` in profile/cost.py. */
#ifndef SIMNMT_WORLD_BATCH_COST_H
#define SIMNMT_WORLD_BATCH_COST_H

#include "numbers.h"
#include "settings.h"
#include <stdlib.h>

static double sum_up_to(const LengthCost *self, int64_t end) {
    int64_t at = bisected_right(self->start, self->knots, (double)end) - 1;
    if (at < 0) return self->value[0] * ((double)end - self->start[0]);
    double many = (double)end - self->start[at];
    return self->before[at] + many * self->value[at] + self->slopes[at] * 0.5 * many * (many - 1.0);
}

/* Return the sum over the lengths first..last, both included; 0 if last < first. */
static double length_sum_s(const LengthCost *self, int64_t first, int64_t last) {
    if (last < first) return 0.0;
    return sum_up_to(self, last + 1) - sum_up_to(self, first);
}

static double steps_s(const BatchCost *self, int64_t batch, int64_t first, int64_t last) {
    if (last < first) return 0.0;
    return self->mean_over_usual * length_sum_s(self->steps + batch - 1, first, last) + (double)(last - first + 1) * self->gap_s[batch - 1];
}

static double source_s(const BatchCost *self, int64_t batch, int64_t longest) {
    double more_s = self->s_per_row_src_token * (double)batch * (double)(longest - self->src_len);
    if (more_s >= 0.0) return more_s;
    return larger(more_s, -0.5 * steps_s(self, batch, 0, 0));
}

static double refill_s(const BatchCost *self, int64_t joining) {
    return joining > 0 ? self->refill_s_fixed + self->refill_s_per_sentence * (double)joining : 0.0;
}

static int compare_lengths(const void *one, const void *other) {
    int64_t first = *(const int64_t *)one, second = *(const int64_t *)other;
    return first < second ? -1 : first > second;
}

/* Return the seconds of one call of the encoder; sorts the lengths. */
static double encode_s(const BatchCost *self, int64_t *src_lens, int64_t count) {
    qsort(src_lens, (size_t)count, sizeof(int64_t), compare_lengths);
    int64_t left = count, longest = src_lens[count - 1], before = 0;
    double padded_s = length_sum_s(self->encoders + left - 1, longest, longest), total_s = 0.0;
    if (!self->packs || left == 1) return padded_s;
    for (int64_t place = 0; place < count;) {
        int64_t length = src_lens[place], alike = 0;
        const LengthCost *encoder = self->encoders + left - 1;
        double at = length_sum_s(encoder, length, length);
        if (place) {
            at -= length_sum_s(encoder, before, before);
            if (!(at >= 0.0)) at = 0.0;
        }
        total_s += at;
        while (place + alike < count && src_lens[place + alike] == length) alike += 1;
        before = length;
        left -= alike;
        place += alike;
    }
    double padding_s = padded_s - total_s;
    return total_s + self->padding_share * (padding_s >= 0.0 ? padding_s : 0.0);
}

#endif
