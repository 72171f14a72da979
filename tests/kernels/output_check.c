/* Vectors and the output layer over awkward sizes, every buffer exactly as large as it must be, for the sanitizers to watch (FNI-03 to FNI-07).
   Ends with 1 and a line where a result is not what a plain loop gives. */
#include "output_layer.h"
#include "vectors.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t state = 1;

static float drawn(float reach) {
    state = state * 1664525u + 1013904223u;
    return reach * ((float)(state >> 8) / 8388608.0f - 1);
}

static int wrong(const char *what, double x, double found, double wanted) {
    printf("%s of %g is %.9g, not %.9g\n", what, x, found, wanted);
    return 1;
}

static float first(vf x) { return x[0]; }

static float exponential(float x) {
    vf v[4] = {vset(0), vset(x), vset(-3), vset(x)};
    exponentials(v);
    return v[3][LANES - 1];
}

/* vexp over all its range; what vectors.h states. */
static int check_exponential(void) {
    for (double x = -87.32; x < 88.36; x += 0.0037) {
        double wanted = exp((double)(float)x), found = first(vexp(vset((float)x)));
        if (fabs(found / wanted - 1) > 2.5e-7) return wrong("vexp", x, found, wanted);
        if (x > 0) continue;
        found = (double)exponential((float)x) / exponential(0);
        if (fabs(found / wanted - 1) > 4e-7 + 8e-8 * fabs(x)) return wrong("exponential", x, found, wanted);
    }
    if (first(vexp(vset(0))) != 1) return wrong("vexp", 0, first(vexp(vset(0))), 1);
    if (first(vexp(vset(-INFINITY))) != 0 || first(vexp(vset(-88))) != 0) return wrong("vexp", -INFINITY, 1, 0);
    if (!(first(vexp(vset(INFINITY))) > 2e38)) return wrong("vexp", INFINITY, first(vexp(vset(INFINITY))), 2.4e38);
    for (uint32_t bits = 0x7f800001u; bits < 0x7f800400u; bits++) {
        float nan;
        memcpy(&nan, &bits, sizeof nan);
        if (!isnan(first(vexp(vset(nan)))) || !isnan(exponential(nan))) return wrong("exponential", nan, 0, nan);
    }
    return 0;
}

/* A half by its definition. */
static double half(unsigned bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = exponent == 31 ? (mantissa ? NAN : INFINITY) : exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits & 0x8000 ? -size : size;
}

static int check_halves(void) {
    uint16_t *halves = malloc(LANES * sizeof *halves);
    int failed = 0;
    for (unsigned bits = 0; bits < 65536 && !failed; bits++) {
        for (int i = 0; i < LANES; i++) halves[i] = (uint16_t)bits;
        float found = first(vload_half(halves)), brain;
        double wanted = half(bits);
        if (isnan(wanted) ? !isnan(found) : found != wanted) failed = wrong("half", bits, found, wanted);
        uint32_t wide = bits << 16;
        memcpy(&brain, &wide, sizeof brain);
        found = first(vload_bfloat(halves));
        if (isnan(brain) ? !isnan(found) : found != brain) failed = wrong("brain float", bits, found, brain);
    }
    free(halves);
    return failed;
}

static int check_tails(void) {
    int failed = 0;
    for (int n = 0; n <= LANES; n++) {
        float *from = malloc((size_t)n * sizeof *from), *to = malloc((size_t)n * sizeof *to);
        for (int i = 0; i < n; i++) from[i] = (float)i;
        vf x = vload_some(from, n, -7);
        for (int i = 0; i < LANES; i++)
            if (x[i] != (i < n ? (float)i : -7)) failed = wrong("lane", i, x[i], i);
        vstore_some(to, x + vset(1), n);
        for (int i = 0; i < n; i++)
            if (to[i] != (float)i + 1) failed = wrong("stored lane", i, to[i], i + 1);
        free(from);
        free(to);
    }
    vf x = vset(-3);
    x[LANES - 1] = 5, x[0] = 2;
    if (vreduce_max(x) != 5) failed = wrong("vreduce_max", 5, vreduce_max(x), 5);
    if (vreduce_add(x) != 7 - 3 * (LANES - 2)) failed = wrong("vreduce_add", 0, vreduce_add(x), 7 - 3 * (LANES - 2));
    return failed;
}

static int check_best(int64_t rows, int64_t width, int64_t count, int with_bias, int parts) {
    float *products = malloc((size_t)(rows * width) * sizeof *products), *bias = malloc((size_t)width * sizeof *bias);
    float *values = malloc((size_t)(rows * count) * sizeof *values), *log_total = malloc((size_t)rows * sizeof *log_total);
    float *maximum = malloc((size_t)rows * sizeof *maximum), *total = malloc((size_t)rows * sizeof *total);
    uint16_t *halves = calloc((size_t)(rows * width), sizeof *halves);
    int64_t *columns = malloc((size_t)(rows * count) * sizeof *columns);
    for (int64_t i = 0; i < rows * width; i++) products[i] = drawn(9);
    for (int64_t i = 0; i < width; i++) bias[i] = drawn(2);
    const float *added = with_bias ? bias : NULL;
    int failed = 0;
    int64_t broken = parts ? simnmt_best(FLOAT32, products, width, added, rows, width, 0, count, columns, values, NULL, maximum, total)
                           : simnmt_best(FLOAT32, products, width, added, rows, width, 0, count, columns, values, log_total, NULL, NULL);
    if (broken != -1) failed = wrong("row", (double)broken, 0, -1);
    for (int64_t i = 0; i < rows && !failed; i++) {
        double sum = 0;
        int64_t best = 0;
        for (int64_t j = 0; j < width; j++) {
            float v = products[i * width + j] + (with_bias ? bias[j] : 0), most = products[i * width + best] + (with_bias ? bias[best] : 0);
            sum += exp(v);
            if (v > most) best = j;
        }
        double found = parts ? maximum[i] + log(total[i]) : values[i * count] + log_total[i];
        if (columns[i * count] != best) failed = wrong("best column", (double)i, (double)columns[i * count], (double)best);
        if (fabs(found - log(sum)) > 1e-6 * fmax(1, fabs(log(sum)))) failed = wrong("log-sum", (double)i, found, log(sum));
    }
    /* The halves are zeros: every column ties, and the lowest come first. */
    broken = simnmt_best(FLOAT16, halves, width, NULL, rows, width, 0, count, columns, values, log_total, NULL, NULL);
    for (int64_t k = 0; k < count && rows; k++)
        if (columns[k] != k) failed = wrong("tied column", (double)k, (double)columns[k], (double)k);
    broken |= simnmt_best(BFLOAT16, halves, width, added, rows, width, 0, count, columns, values, NULL, NULL, NULL);
    if (broken != -1) failed = wrong("row of halves", (double)broken, 0, -1);
    for (int64_t i = 0; i < rows * width; i++) products[i] = -INFINITY;
    broken = simnmt_best(FLOAT32, products, width, added, rows, width, 0, count, columns, values, log_total, NULL, NULL);
    if (broken != (rows ? 0 : -1)) failed = wrong("masked row", 0, (double)broken, 0);
    free(products), free(bias), free(values), free(log_total), free(maximum), free(total), free(halves), free(columns);
    return failed;
}

/* All parts of a shared search on one thread: the results of a search of the whole, in buffers that are just as large. */
static int check_shared(int64_t rows, int64_t width, int64_t count, int64_t row_parts, int64_t column_parts) {
    const int64_t results = rows * column_parts;
    float *products = malloc((size_t)(rows * width) * sizeof *products), *bias = malloc((size_t)width * sizeof *bias);
    float *values = malloc((size_t)(results * count) * sizeof *values), *maximum = malloc((size_t)results * sizeof *maximum);
    int64_t *columns = malloc((size_t)(results * count) * sizeof *columns);
    for (int64_t i = 0; i < rows * width; i++) products[i] = drawn(9);
    for (int64_t i = 0; i < width; i++) bias[i] = drawn(2);
    SharedSearch search = {products, bias, columns, values, NULL, maximum, NULL, FLOAT32, width, rows, width, count, row_parts, column_parts, 0, rows};
    simnmt_best_shared(&search);
    int failed = search.broken != rows ? wrong("shared row", 0, (double)search.broken, (double)rows) : 0;
    for (int64_t i = 0; i < rows && !failed; i++) {
        float found = -INFINITY, wanted = -INFINITY;
        for (int64_t part = 0; part < column_parts; part++) {
            found = fmaxf(found, maximum[part * rows + i]);
            int64_t column = columns[(part * rows + i) * count];
            if (products[i * width + column] + bias[column] != maximum[part * rows + i])
                failed = wrong("shared column", (double)column, products[i * width + column] + bias[column], maximum[part * rows + i]);
        }
        for (int64_t j = 0; j < width; j++) wanted = fmaxf(wanted, products[i * width + j] + bias[j]);
        if (found != wanted) failed = wrong("shared maximum of row", (double)i, found, wanted);
    }
    for (int64_t row = 0; row < rows; row += 3) products[row * width + width / 2] = NAN;
    search.next = 0;
    simnmt_best_shared(&search);
    if (search.broken != 0) failed |= wrong("shared broken row", 0, (double)search.broken, 0);
    free(products), free(bias), free(values), free(maximum), free(columns);
    return failed;
}

int main(void) {
    static const int64_t widths[] = {1, 2, 3, 7, 15, 16, 17, 63, 64, 65, 1000, 1023, 1024, 1025, 1087, 1088, 1089, 2049, 5000};
    int failed = check_exponential() | check_halves() | check_tails();
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int64_t rows = 0; rows <= 3; rows++)
            for (int64_t count = 1; count <= 8 && count <= widths[w]; count += 3)
                failed |= check_best(rows, widths[w], count, (int)(rows + count) & 1, (int)rows & 1);
    for (int64_t row_parts = 1; row_parts <= 4; row_parts++)
        for (int64_t column_parts = 1; column_parts <= 3; column_parts++)
            failed |= check_shared(9, 1031, 3, row_parts, column_parts) | check_shared(1, 9, 3, row_parts, column_parts);
    return failed;
}
