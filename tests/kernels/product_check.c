/* Products and activations over awkward sizes, every buffer exactly as large as it must be, for the sanitizers to watch (SHARP-05, 08).
   Sums are held against 64-bit loops. Ends with 1 and a line where one differs. */
#include "activations.h"
#include "product.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t state = 1;

static float drawn(float reach) {
    state = state * 1664525u + 1013904223u;
    return reach * ((float)(state >> 8) / 8388608.0f - 1);
}

static float *floats(int64_t count, float reach) {
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = drawn(reach);
    return x;
}

static int16_t *shorts(int64_t count) { return malloc((size_t)count * sizeof(int16_t)); }

static int16_t nearest(float x, float scale, float limit) { return (int16_t)lrintf(fminf(fmaxf(x, -limit), limit) * scale); }

static int check_product(int64_t rows, int64_t outputs, int64_t inner) {
    int wrong = 0;
    float *weights = floats(outputs * inner, 1.5f), *x = floats(rows * inner, 3), *out = floats(rows * outputs, 1);
    int16_t *integers = shorts(outputs * inner), *packed = shorts(packed_size(outputs, inner)), *quantised = shorts(rows_size(rows, inner));
    quantise(weights, outputs * inner, 1024, 1, integers);
    pack_int16(integers, outputs, inner, packed);
    wrong |= !quantise_rows(x, inner, rows, inner, 2048, 2, quantised);
    product_int16(quantised, rows, packed, outputs, inner, 1.0f / 1024 / 2048, 0, out, outputs);
    product_int16(quantised, rows, packed, outputs, inner, 1.0f / 1024 / 2048, 1, out, outputs);

    float *packed_floats = floats(packed_size(outputs, inner), 1), *interleaved = floats(rows_size(rows, inner), 1);
    float *out_floats = floats(rows * outputs, 1);
    pack_float32(weights, outputs, inner, packed_floats);
    interleave_rows(x, inner, rows, inner, interleaved);
    product_float32(interleaved, rows, packed_floats, outputs, inner, 0, out_floats, outputs);

    for (int64_t row = 0; row < rows; row++)
        for (int64_t output = 0; output < outputs; output++) {
            int64_t sum = 0;
            double real = 0;
            for (int64_t i = 0; i < inner; i++) {
                sum += (int64_t)nearest(weights[output * inner + i], 1024, 1) * nearest(x[row * inner + i], 2048, 2);
                real += (double)weights[output * inner + i] * x[row * inner + i];
            }
            wrong |= out[row * outputs + output] != 2 * ((float)sum / 1024 / 2048);
            wrong |= fabs(out_floats[row * outputs + output] - real) > 1e-4;
        }
    free(weights), free(x), free(out), free(integers), free(packed), free(quantised);
    free(packed_floats), free(interleaved), free(out_floats);
    return wrong;
}

static int check_activations(int64_t count) {
    int wrong = 0;
    float *x = floats(count, 12), *out = floats(count, 1);
    for (int way = ACTIVATION_LIBRARY; way <= ACTIVATION_LINEAR_TABLE; way++) {
        if (count) x[0] = way % 2 ? INFINITY : -INFINITY;
        tanh_array(x, count, way, out);
        for (int64_t i = 0; i < count; i++) wrong |= !(fabsf(out[i] - tanhf(x[i])) < 0.00196f);
        if (count) x[count / 2] = NAN;
        sigmoid_array(x, count, way, out);
        for (int64_t i = 0; i < count; i++) wrong |= isnan(x[i]) ? !isnan(out[i]) : !(fabsf(out[i] - 1 / (1 + expf(-x[i]))) < 0.0005f);
        if (count) x[count / 2] = 0;
    }
    free(x), free(out);
    return wrong;
}

int main(void) {
    const int64_t sizes[] = {1, 2, 7, 31, 33, 130};
    /* Each number of rows twice: with one instruction that multiplies and adds, where the processor has it, and with two. */
    for (int64_t rows = 0; rows <= 35; rows++)
        for (int j = 0; j < 6; j++)
            for (int k = 0; k < 6; k++)
                if (simnmt_use_dot_pairs(rows & 1), check_product(rows / 2, sizes[j], sizes[k])) {
                    printf("product of %d rows, %d outputs, %d inputs\n", (int)(rows / 2), (int)sizes[j], (int)sizes[k]);
                    return 1;
                }
    for (int64_t count = 0; count < 40; count++)
        if (check_activations(count)) {
            printf("activations of %d\n", (int)count);
            return 1;
        }
    return 0;
}
