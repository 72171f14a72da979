/* Column sets and products with some columns over awkward sizes, every buffer exactly as large as it must be, for the sanitizers to watch (FVP-06, 07).
   Ends with 1 and a line where a result differs from loops in double. */
#include "gathered.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t state = 1;

static uint32_t drawn(void) { return (state = state * 1664525u + 1013904223u) >> 8; }

static float *floats(int64_t count) {
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = (float)drawn() / 8388608.0f - 1;
    return x;
}

/* About one in `every` of the columns; their number. */
static int64_t some_columns(int64_t vocab, uint32_t every, int32_t *columns) {
    int64_t count = 0;
    for (int64_t column = 0; column < vocab; column++)
        if (drawn() % every == 0) columns[count++] = (int32_t)column;
    return count;
}

static int differs(const float *out, const float *weight, int64_t width, const int32_t *columns, int64_t count, const float *x, int64_t rows) {
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < count; k++) {
            double sum = 0;
            for (int64_t i = 0; i < width; i++) sum += (double)weight[(columns ? columns[k] : k) * width + i] * x[row * width + i];
            if (!(fabs(out[row * count + k] - sum) < 1e-4)) return 1;
        }
    return 0;
}

static int check_products(int64_t rows, int64_t vocab, int64_t width, uint32_t every) {
    int32_t *room = malloc((size_t)vocab * sizeof *room);
    int64_t count = some_columns(vocab, every, room);
    int32_t *columns = malloc((size_t)count * sizeof *columns);
    if (count) memcpy(columns, room, (size_t)count * sizeof *columns);
    float *weight = floats(vocab * width), *x = floats(rows * width), *out = floats(rows * count), *whole = floats(rows * vocab);
    float *scratch = floats(simnmt_gathered_scratch(width, rows)), *packed = floats(packed_size(count, width)), *placed = floats(rows * vocab);
    int wrong = simnmt_row_wise(weight, vocab, width, columns, count, x, rows, out) != -1 || differs(out, weight, width, columns, count, x, rows);
    wrong |= simnmt_row_wise(weight, vocab, width, NULL, vocab, x, rows, whole) != -1 || differs(whole, weight, width, NULL, vocab, x, rows);
    wrong |= simnmt_gathered(weight, vocab, width, columns, count, x, rows, scratch, out) != -1 || differs(out, weight, width, columns, count, x, rows);
    wrong |= simnmt_pack_columns(weight, vocab, width, columns, count, packed) != -1;
    simnmt_product_float32(x, rows, packed, count, width, 0, scratch, out);
    wrong |= differs(out, weight, width, columns, count, x, rows);
    wrong |= simnmt_scatter(out, rows, columns, count, vocab, NULL, placed) != -1;
    for (int64_t row = 0, k = 0; row < rows; row++, k = 0)
        for (int64_t column = 0; column < vocab; column++) {
            int active = k < count && columns[k] == column;
            wrong |= placed[row * vocab + column] != (active ? out[row * count + k] : -INFINITY);
            k += active;
        }
    if (count) {
        columns[count - 1] = (int32_t)vocab;
        wrong |= simnmt_row_wise(weight, vocab, width, columns, count, x, rows, out) != count - 1;
        columns[0] = -1;
        wrong |= simnmt_gathered(weight, vocab, width, columns, count, x, rows, scratch, out) != 0;
    }
    free(room), free(columns), free(weight), free(x), free(out), free(whole), free(scratch), free(packed), free(placed);
    return wrong;
}

static int check_union(int64_t vocab, int64_t sets, uint32_t every) {
    int64_t *starts = malloc((size_t)(sets + 1) * sizeof *starts), *chosen = malloc((size_t)sets * sizeof *chosen);
    int32_t *columns = malloc((size_t)(sets * vocab) * sizeof *columns), *out = malloc((size_t)vocab * sizeof *out);
    uint8_t *flags = calloc((size_t)vocab, 1), *asked = calloc((size_t)vocab, 1);
    starts[0] = 0;
    for (int64_t set = 0; set < sets; set++) {
        starts[set + 1] = starts[set] + some_columns(vocab, every, columns + starts[set]);
        chosen[set] = sets - 1 - set;
        for (int64_t i = starts[set]; i < starts[set + 1]; i++) asked[columns[i]] = 1;
    }
    int64_t found = simnmt_union(chosen, sets, starts, columns, flags, vocab, out), at = 0;
    int wrong = 0;
    for (int64_t column = 0; column < vocab; column++) {
        wrong |= flags[column] != 0;
        if (asked[column]) wrong |= at >= found || out[at++] != column;
    }
    wrong |= at != found;
    free(starts), free(chosen), free(columns), free(out), free(flags), free(asked);
    return wrong;
}

int main(void) {
    const int64_t widths[] = {1, 3, 31, 66}, vocabs[] = {1, 5, 33, 70}, rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 13};
    for (int r = 0; r < 9; r++)
        for (int v = 0; v < 4; v++)
            for (int w = 0; w < 4; w++)
                for (uint32_t every = 1; every <= 3; every++)
                    if (check_products(rows[r], vocabs[v], widths[w], every)) {
                        printf("products of %d rows, %d columns, width %d\n", (int)rows[r], (int)vocabs[v], (int)widths[w]);
                        return 1;
                    }
    for (int64_t vocab = 1; vocab <= 200; vocab += 9)
        for (int64_t sets = 1; sets <= 4; sets++)
            if (check_union(vocab, sets, 1 + (uint32_t)(vocab % 7))) {
                printf("union of %d sets of %d columns\n", (int)sets, (int)vocab);
                return 1;
            }
    return 0;
}
