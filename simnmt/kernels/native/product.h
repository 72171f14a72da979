/* Products of a few rows (a beam) with packed weights: 16-bit fixed point and float32 (SHARP-05).

   A product takes two calls: quantise_rows, then product_int16 as many times as matrices take these rows; interleave_rows, then
   product_float32. Buffers are the caller's and nothing here allocates; any number of rows, zero too, any sizes. */
#ifndef SIMNMT_PRODUCT_H
#define SIMNMT_PRODUCT_H

#include "packing.h"

/* Lane by lane a0 b0 + a1 b1 of the pairs, in 32 bits. */
INLINE vi multiply_add_pairs(vpairs a, vpairs b) {
#if LANES == 16
    return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif LANES == 8
    return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    /* Low halves by a shift up and down, high halves by a shift down. */
    vi x = (vi)a, y = (vi)b;
    return ((x << 16) >> 16) * ((y << 16) >> 16) + (x >> 16) * (y >> 16);
#endif
}

#if LANES == 16 && (defined(__clang__) || __GNUC__ >= 8)
#define DOT_PAIRS __attribute__((target("avx512vnni")))
#include <cpuid.h>

/* Whether products of 16 bits multiply and add in one instruction (VNNI): the same integers. With weights in the second cache it takes 0.87 to 0.93 of
   the time for 4 to 25 rows on Zen 4. Zen 5 was measured to be faster with two instructions, which it can start twice a cycle. */
static int dot_pairs_used;

__attribute__((constructor)) static void choose_dot_pairs(void) {
    enum { ZEN_5 = 0x1A };
    unsigned a = 0, b = 0, c = 0, d = 0, family = 0;
    __builtin_cpu_init();
    if (__get_cpuid(1, &a, &b, &c, &d)) family = (a >> 8 & 15) + (a >> 20 & 255);
    int amd = __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx;
    dot_pairs_used = __builtin_cpu_supports("avx512vnni") && !(amd && family >= ZEN_5);
}

/* Switch the instruction on where the processor has it, or off, for comparison; returns what is used from now on. */
SIMNMT_EXPORT int simnmt_use_dot_pairs(int wanted) {
    __builtin_cpu_init();
    return dot_pairs_used = wanted && __builtin_cpu_supports("avx512vnni");
}

DOT_PAIRS INLINE vi dot_pairs(vi total, vpairs a, vpairs b) { return (vi)_mm512_dpwssd_epi32((__m512i)total, (__m512i)a, (__m512i)b); }
#else
enum { dot_pairs_used = 0 };

SIMNMT_EXPORT int simnmt_use_dot_pairs(int wanted) { return (void)wanted, 0; }
#endif

INLINE vi add_pairs(vi total, vpairs a, vpairs b) { return total + multiply_add_pairs(a, b); }

/* One panel for one block: sums of `rows` rows with PANEL outputs. Unrolled for each number of rows, so that the sums stay in registers. `accumulate`:
   how the products of pairs are added. */
#define PANEL_INT16(name, accumulate) \
    INLINE void name(const int rows, const int16_t *x, const int16_t *packed, int64_t pairs, vi (*sums)[2]) { \
        vi total[ROW_BLOCK][2]; \
        _Pragma("GCC unroll 12") for (int row = 0; row < rows; row++) total[row][0] = total[row][1] = viset(0); \
        for (int64_t pair = 0; pair < pairs; pair++, x += 2 * rows, packed += 2 * PANEL) { \
            vpairs low, high; \
            memcpy(&low, packed, sizeof low); \
            memcpy(&high, packed + PANEL, sizeof high); \
            _Pragma("GCC unroll 12") for (int row = 0; row < rows; row++) { \
                int32_t both; \
                memcpy(&both, x + 2 * row, sizeof both); \
                total[row][0] = accumulate(total[row][0], (vpairs)viset(both), low); \
                total[row][1] = accumulate(total[row][1], (vpairs)viset(both), high); \
            } \
        } \
        _Pragma("GCC unroll 12") for (int row = 0; row < rows; row++) sums[row][0] = total[row][0], sums[row][1] = total[row][1]; \
    }

PANEL_INT16(panel_int16, add_pairs)
#ifdef DOT_PAIRS
DOT_PAIRS PANEL_INT16(panel_dot_int16, dot_pairs)
#endif

INLINE void panel_float32(const int rows, const float *x, const float *packed, int64_t inner, vf (*sums)[2]) {
    vf total[ROW_BLOCK][2];
#pragma GCC unroll 12
    for (int row = 0; row < rows; row++) total[row][0] = total[row][1] = vset(0);
    for (int64_t i = 0; i < inner; i++, x += rows, packed += PANEL) {
        vf low = vload(packed), high = vload(packed + LANES);
#pragma GCC unroll 12
        for (int row = 0; row < rows; row++) {
            total[row][0] = vfma(vset(x[row]), low, total[row][0]);
            total[row][1] = vfma(vset(x[row]), high, total[row][1]);
        }
    }
#pragma GCC unroll 12
    for (int row = 0; row < rows; row++) sums[row][0] = total[row][0], sums[row][1] = total[row][1];
}

#define EACH_ROWS(call) \
    switch (rows) { \
        case 1: call(1); break; \
        case 2: call(2); break; \
        case 3: call(3); break; \
        case 4: call(4); break; \
        case 5: call(5); break; \
        case 6: call(6); break; \
        EACH_MORE_ROWS(call) \
    }
#if LANES == 16
#define EACH_MORE_ROWS(call) \
    case 7: call(7); break; \
    case 8: call(8); break; \
    case 9: call(9); break; \
    case 10: call(10); break; \
    case 11: call(11); break; \
    case 12: call(12); break;
#else
#define EACH_MORE_ROWS(call)
#endif

static void block_int16(int64_t rows, const int16_t *x, const int16_t *packed, int64_t pairs, vi (*sums)[2]) {
#define CALL(n) panel_int16(n, x, packed, pairs, sums)
    EACH_ROWS(CALL)
#undef CALL
}

#ifdef DOT_PAIRS
DOT_PAIRS static void block_dot_int16(int64_t rows, const int16_t *x, const int16_t *packed, int64_t pairs, vi (*sums)[2]) {
#define CALL(n) panel_dot_int16(n, x, packed, pairs, sums)
    EACH_ROWS(CALL)
#undef CALL
}
#else
#define block_dot_int16 block_int16
#endif

static void block_float32(int64_t rows, const float *x, const float *packed, int64_t inner, vf (*sums)[2]) {
#define CALL(n) panel_float32(n, x, packed, inner, sums)
    EACH_ROWS(CALL)
#undef CALL
}

/* to[0..count) of one row of a panel = values, or += them. */
INLINE void put_panel(float *to, int64_t count, vf low, vf high, int add) {
    if (count >= PANEL) {
        vstore(to, add ? vload(to) + low : low);
        vstore(to + LANES, add ? vload(to + LANES) + high : high);
        return;
    }
    float values[PANEL];
    vstore(values, low);
    vstore(values + LANES, high);
    for (int64_t i = 0; i < count; i++) to[i] = add ? to[i] + values[i] : values[i];
}

/* out[row][output] (rows at out_stride floats) = sum over the inner size * rescale, added to what is there where `add`. `x`: of quantise_rows with the
   same number of rows; rescale: 1 / (weights' scale * inputs' scale). The caller answers for the sums staying below 2^31. */
static void product_int16(const int16_t *x, int64_t rows, const int16_t *packed, int64_t outputs, int64_t inner, float rescale, int add, float *out,
                          int64_t out_stride) {
    int64_t pairs = (inner + 1) / 2;
    vi sums[ROW_BLOCK][2];
    for (int64_t output = 0; output < outputs; output += PANEL, packed += pairs * 2 * PANEL)
        for (int64_t block = 0; block < row_blocks(rows); block++) {
            int64_t first = block_start(block, rows), width = block_start(block + 1, rows) - first;
            (dot_pairs_used ? block_dot_int16 : block_int16)(width, x + first * pairs * 2, packed, pairs, sums);
            for (int64_t row = 0; row < width; row++) {
                vf low = __builtin_convertvector(sums[row][0], vf) * rescale, high = __builtin_convertvector(sums[row][1], vf) * rescale;
                put_panel(out + (first + row) * out_stride + output, outputs - output, low, high, add);
            }
        }
}

/* As product_int16, of interleave_rows and pack_float32. */
static void product_float32(const float *x, int64_t rows, const float *packed, int64_t outputs, int64_t inner, int add, float *out, int64_t out_stride) {
    vf sums[ROW_BLOCK][2];
    for (int64_t output = 0; output < outputs; output += PANEL, packed += inner * PANEL)
        for (int64_t block = 0; block < row_blocks(rows); block++) {
            int64_t first = block_start(block, rows), width = block_start(block + 1, rows) - first;
            block_float32(width, x + first * inner, packed, inner, sums);
            for (int64_t row = 0; row < width; row++)
                put_panel(out + (first + row) * out_stride + output, outputs - output, sums[row][0], sums[row][1], add);
        }
}

/* What Python calls: `scratch` is of rows_size elements; out is contiguous. */
SIMNMT_EXPORT int64_t simnmt_packed_size(int64_t outputs, int64_t inner) { return packed_size(outputs, inner); }

SIMNMT_EXPORT int simnmt_quantise(const float *x, int64_t count, float scale, float limit, int16_t *out) {
    return quantise(x, count, scale, limit, out);
}

SIMNMT_EXPORT void simnmt_pack_int16(const int16_t *weights, int64_t outputs, int64_t inner, int16_t *packed) {
    pack_int16(weights, outputs, inner, packed);
}

SIMNMT_EXPORT void simnmt_pack_float32(const float *weights, int64_t outputs, int64_t inner, float *packed) {
    pack_float32(weights, outputs, inner, packed);
}

SIMNMT_EXPORT int simnmt_product_int16(const float *x, int64_t rows, const int16_t *packed, int64_t outputs, int64_t inner, float scale, float limit,
                                       float rescale, int add, int16_t *scratch, float *out) {
    int fine = quantise_rows(x, inner, rows, inner, scale, limit, scratch);
    if (fine) product_int16(scratch, rows, packed, outputs, inner, rescale, add, out, outputs);
    return fine;
}

SIMNMT_EXPORT void simnmt_product_float32(const float *x, int64_t rows, const float *packed, int64_t outputs, int64_t inner, int add, float *scratch,
                                          float *out) {
    interleave_rows(x, inner, rows, inner, scratch);
    product_float32(scratch, rows, packed, outputs, inner, add, out, outputs);
}

#endif
