/* Codes of awkward numbers of weights unpacked, every buffer exactly as large as it must be, for the sanitizers to watch (STI-06).
   Ends with 1 and a line where a weight differs from what its code and its outlier say. */
#include "unpack.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t state = 1;

static uint32_t drawn(void) { return (state = state * 1664525u + 1013904223u) >> 8; }

static int64_t bytes_of(int64_t weights, int bits) { return (weights * bits + 7) / 8; }

/* The stream's bit by bit: no word, no shuffle. */
static uint32_t code_at(const uint8_t *codes, int bits, int64_t weight) {
    uint32_t code = 0;
    for (int bit = 0; bit < bits; bit++) {
        int64_t at = weight * bits + bit;
        code |= (uint32_t)(codes[at / 8] >> at % 8 & 1) << bit;
    }
    return code;
}

/* `count` weights in two places, the later half first in `out`; about one in `every` is an outlier. */
static int check(int bits, int64_t count, uint32_t every) {
    int64_t bytes = bits == 32 ? 4 * count : bytes_of(count, bits), half = count / 16 * 8, outliers = 0;
    uint8_t *codes = malloc((size_t)bytes);
    float *centroids = malloc((bits == 32 ? 1u : 1u << bits) * sizeof *centroids), *out = malloc((size_t)count * sizeof *out);
    int32_t *found = malloc((size_t)count * sizeof *found);
    for (int64_t i = 0; i < bytes; i++) codes[i] = (uint8_t)drawn();
    for (int64_t i = 0; bits != 32 && i < 1 << bits; i++) centroids[i] = (float)i + 0.5f;
    for (int64_t i = 0; bits != 32 && i < count; i++)
        if (drawn() % every == 0) found[outliers++] = (int32_t)i;
    int32_t *at = malloc((size_t)outliers * sizeof *at);
    float *values = malloc((size_t)outliers * sizeof *values);
    if (outliers) memcpy(at, found, (size_t)outliers * sizeof *at);
    for (int64_t i = 0; i < outliers; i++) values[i] = -(float)i - 1;
    int64_t places[6] = {half, 0, count - half, 0, count - half, half};
    simnmt_unpack(codes, bytes, bits, centroids, at, values, outliers, places, 2, out);
    int wrong = 0;
    for (int64_t i = 0, next = 0; i < count; i++) {
        float weight = out[i < half ? i + count - half : i - half];
        if (bits == 32)
            wrong |= memcmp(&weight, codes + 4 * i, sizeof weight) != 0;
        else if (next < outliers && at[next] == i)
            wrong |= weight != values[next++];
        else
            wrong |= weight != centroids[code_at(codes, bits, i)];
    }
    free(codes), free(centroids), free(out), free(found), free(at), free(values);
    return wrong;
}

int main(void) {
    const int widths[] = {2, 3, 4, 5, 6, 32};
    for (int w = 0; w < 6; w++)
        for (uint32_t every = 1; every <= 50; every += 7) {
            for (int64_t count = 1; count <= 150; count++)
                if (check(widths[w], count, every)) {
                    printf("%d bits, %d weights, one in %u an outlier\n", widths[w], (int)count, every);
                    return 1;
                }
            if (check(widths[w], 40003, every)) {
                printf("%d bits, 40003 weights, one in %u an outlier\n", widths[w], every);
                return 1;
            }
        }
    return 0;
}
