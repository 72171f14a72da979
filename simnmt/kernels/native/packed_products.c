/* Products of a few rows (a beam) with packed weights: 16-bit fixed point and float32 (SHARP-05).

   Packed weights: panels of PANEL outputs, each panel with the inner size in order, so that a pass over the weights is one sequential stream.
   Outputs beyond the last one are zeros. Both kinds are units of 4 bytes: a float, or a pair of int16 that are neighbours of the inner size, as the
   multiply-add of pairs takes them (odd inner size: a zero beside the last).
      [panel][units][PANEL]
   Rows, in blocks of at most ROW_BLOCK that share a pass over the weights:
      [block][units][rows of the block]
   The layout belongs to the build: pack and multiply with the same library. Buffers are the caller's, any sizes, zero rows too. */
#pragma once

#include "vectors.h"

/* A panel is two vectors wide; the sums of a block, with two vectors of weights and what is between, fill 32 or 16 registers. */
enum { PANEL = 2 * LANES, ROW_BLOCK = LANES == 16 ? 12 : 6 };

typedef int32_t unit __attribute__((may_alias));
typedef int16_t vpairs __attribute__((vector_size(4 * LANES)));
typedef int16_t vnarrow __attribute__((vector_size(2 * LANES)));

/* Units of packed weights; best aligned to 64 bytes. */
SIMNMT_EXPORT int64_t simnmt_packed_size(int64_t outputs, int64_t units) { return (outputs + PANEL - 1) / PANEL * PANEL * units; }

/* Blocks as even as can be: 16 rows in passes of 8 and 8, not 12 and 4. */
INLINE int64_t row_blocks(int64_t rows) { return (rows + ROW_BLOCK - 1) / ROW_BLOCK; }
INLINE int64_t block_start(int64_t block, int64_t rows) { return block * rows / row_blocks(rows); }

/* Weights [outputs][units] into panels: all of them, or those named by `ids`, `count` in all. In pieces that stay in the nearest cache, with the rows
   to come called for beforehand: they may lie far apart. */
SIMNMT_EXPORT void simnmt_pack(const unit *weights, int64_t units, const int64_t *ids, int64_t count, unit *packed) {
    enum { PIECE = 64, AHEAD = 8, LINE = 16 };
    for (int64_t first = 0; first < count; first += PANEL, packed += units * PANEL)
        for (int64_t start = 0; start < units; start += PIECE) {
            int64_t here = units - start < PIECE ? units - start : PIECE;
            for (int64_t output = first; output < first + PANEL; output++) {
                unit *to = packed + start * PANEL + output - first;
                if (ids && output + AHEAD < count)
                    for (int64_t i = 0; i < here; i += LINE) __builtin_prefetch(weights + ids[output + AHEAD] * units + start + i);
                if (output >= count) {
                    for (int64_t i = 0; i < here; i++) to[i * PANEL] = 0;
                    continue;
                }
                const unit *from = weights + (ids ? ids[output] : output) * units + start;
                for (int64_t i = 0; i < here; i++) to[i * PANEL] = from[i];
            }
        }
}

/* round(clip(x, -limit, limit) * scale), ties to even; clipped numbers times the scale, a power of two, must stay within 16 bits. The sum with
   1.5 * 2^23 rounds and leaves the integer in the low bits: the same in every build. NaN becomes the limit. Returns 0 where one was met, else 1. */
static int quantise(const float *x, int64_t count, float scale, float limit, int16_t *out) {
    const int32_t shift = 0x4B400000; /* 12582912.0f */
    vi met = viset(0);
    for (int64_t i = 0; i < count; i += LANES) {
        int64_t left = count - i;
        vf value = left >= LANES ? vload(x + i) : vload_some(x + i, left, 0);
        met |= value != value;
        value = vmax(vmin(value, vset(limit)), vset(-limit));
        vnarrow integers = __builtin_convertvector((vi)vfma(value, vset(scale), vset(12582912.0f)) - shift, vnarrow);
        memcpy(out + i, &integers, (size_t)(left >= LANES ? LANES : left) * sizeof *out);
    }
    int fine = 1;
    for (int lane = 0; lane < LANES; lane++) fine &= !met[lane];
    return fine;
}

/* Rows [rows][inner] clipped, quantised and interleaved into `out`, of 4 bytes a pair. Returns 0 where a NaN was met, else 1. */
static int quantise_rows(const float *x, int64_t rows, int64_t inner, float scale, float limit, int16_t *out) {
    enum { CHUNK = 128 };
    int16_t integers[CHUNK];
    int64_t pairs = (inner + 1) / 2;
    int fine = 1;
    for (int64_t block = 0; block < row_blocks(rows); block++) {
        int64_t first = block_start(block, rows), width = block_start(block + 1, rows) - first;
        for (int64_t row = 0; row < width; row++)
            for (int64_t start = 0; start < inner; start += CHUNK) {
                int64_t count = inner - start < CHUNK ? inner - start : CHUNK;
                fine &= quantise(x + (first + row) * inner + start, count, scale, limit, integers);
                if (count & 1) integers[count] = 0;
                int16_t *to = out + (first * pairs + start / 2 * width + row) * 2;
                for (int64_t pair = 0; pair < (count + 1) / 2; pair++) memcpy(to + pair * width * 2, integers + 2 * pair, 4);
            }
    }
    return fine;
}

/* Rows [rows][inner] at `stride` floats from one to the next, interleaved into `out`. */
static void interleave_rows(const float *x, int64_t stride, int64_t rows, int64_t inner, float *out) {
    for (int64_t block = 0; block < row_blocks(rows); block++) {
        int64_t first = block_start(block, rows), width = block_start(block + 1, rows) - first;
        for (int64_t row = 0; row < width; row++)
            for (int64_t i = 0; i < inner; i++) out[first * inner + i * width + row] = x[(first + row) * stride + i];
    }
}

/* Lane by lane total + a0 b0 + a1 b1 of the pairs, in 32 bits. One instruction (VNNI) takes 0.87 to 0.93 of the time of two for 4 to 25 rows with
   weights in the second cache on Zen 4; Zen 5 was measured to be faster with two, which it can start twice a cycle. */
INLINE vi add_pairs(vi total, vpairs a, vpairs b) {
#if LANES == 16 && defined(__AVX512VNNI__) && !defined(__znver5__)
    return (vi)_mm512_dpwssd_epi32((__m512i)total, (__m512i)a, (__m512i)b);
#elif LANES == 16
    return total + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif LANES == 8
    return total + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return total + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    /* Low halves by a shift up and down, high halves by a shift down. */
    vi x = (vi)a, y = (vi)b;
    return total + ((x << 16) >> 16) * ((y << 16) >> 16) + (x >> 16) * (y >> 16);
#endif
}

/* One panel for one block: sums of `rows` rows with PANEL outputs. Unrolled for each number of rows, so that the sums stay in registers. */
INLINE void panel_int16(const int rows, const int16_t *x, const int16_t *packed, int64_t pairs, vi (*sums)[2]) {
    vi total[ROW_BLOCK][2];
#pragma GCC unroll 12
    for (int row = 0; row < rows; row++) total[row][0] = total[row][1] = viset(0);
    for (int64_t pair = 0; pair < pairs; pair++, x += 2 * rows, packed += 2 * PANEL) {
        vpairs low, high;
        memcpy(&low, packed, sizeof low);
        memcpy(&high, packed + PANEL, sizeof high);
#pragma GCC unroll 12
        for (int row = 0; row < rows; row++) {
            int32_t both;
            memcpy(&both, x + 2 * row, sizeof both);
            total[row][0] = add_pairs(total[row][0], (vpairs)viset(both), low);
            total[row][1] = add_pairs(total[row][1], (vpairs)viset(both), high);
        }
    }
#pragma GCC unroll 12
    for (int row = 0; row < rows; row++) sums[row][0] = total[row][0], sums[row][1] = total[row][1];
}

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

/* call(n) for n = rows, which it gets as a constant. */
#define ROWS(n, call) \
    case n: call(n); break;
#define SIX_ROWS(call) ROWS(1, call) ROWS(2, call) ROWS(3, call) ROWS(4, call) ROWS(5, call) ROWS(6, call)
#if LANES == 16
#define EACH_ROWS(call) SIX_ROWS(call) ROWS(7, call) ROWS(8, call) ROWS(9, call) ROWS(10, call) ROWS(11, call) ROWS(12, call)
#else
#define EACH_ROWS(call) SIX_ROWS(call)
#endif

static void block_int16(int64_t rows, const int16_t *x, const int16_t *packed, int64_t pairs, vi (*sums)[2]) {
#define CALL(n) panel_int16(n, x, packed, pairs, sums)
    switch (rows) { EACH_ROWS(CALL) }
#undef CALL
}

static void block_float32(int64_t rows, const float *x, const float *packed, int64_t inner, vf (*sums)[2]) {
#define CALL(n) panel_float32(n, x, packed, inner, sums)
    switch (rows) { EACH_ROWS(CALL) }
#undef CALL
}

INLINE void put_panel(float *to, int64_t count, vf low, vf high) {
    if (count >= PANEL) {
        vstore(to, low);
        vstore(to + LANES, high);
    } else {
        float values[PANEL];
        vstore(values, low);
        vstore(values + LANES, high);
        memcpy(to, values, (size_t)count * sizeof *to);
    }
}

/* out[row][output] (rows at out_stride floats) = sum over the inner size * rescale. `x`: of quantise_rows with the same number of rows; rescale:
   1 / (weights' scale * inputs' scale). The caller answers for the sums staying below 2^31. */
static void product_int16(const int16_t *x, int64_t rows, const int16_t *packed, int64_t outputs, int64_t inner, float rescale, float *out,
                          int64_t out_stride) {
    int64_t pairs = (inner + 1) / 2;
    vi sums[ROW_BLOCK][2];
    for (int64_t output = 0; output < outputs; output += PANEL, packed += pairs * 2 * PANEL)
        for (int64_t block = 0; block < row_blocks(rows); block++) {
            int64_t first = block_start(block, rows), width = block_start(block + 1, rows) - first;
            block_int16(width, x + first * pairs * 2, packed, pairs, sums);
            for (int64_t row = 0; row < width; row++) {
                vf low = __builtin_convertvector(sums[row][0], vf) * rescale, high = __builtin_convertvector(sums[row][1], vf) * rescale;
                put_panel(out + (first + row) * out_stride + output, outputs - output, low, high);
            }
        }
}

/* As product_int16, of interleave_rows. */
static void product_float32(const float *x, int64_t rows, const float *packed, int64_t outputs, int64_t inner, float *out, int64_t out_stride) {
    vf sums[ROW_BLOCK][2];
    for (int64_t output = 0; output < outputs; output += PANEL, packed += inner * PANEL)
        for (int64_t block = 0; block < row_blocks(rows); block++) {
            int64_t first = block_start(block, rows), width = block_start(block + 1, rows) - first;
            block_float32(width, x + first * inner, packed, inner, sums);
            for (int64_t row = 0; row < width; row++)
                put_panel(out + (first + row) * out_stride + output, outputs - output, sums[row][0], sums[row][1]);
        }
}

/* What Python calls; `scratch`: of rows (inner + 1) elements. Returns 0, without a product, where x holds NaN. */
SIMNMT_EXPORT int simnmt_product_int16(const float *x, int64_t rows, const int16_t *packed, int64_t outputs, int64_t inner, float scale, float limit,
                                       float rescale, int16_t *scratch, float *out) {
    int fine = quantise_rows(x, rows, inner, scale, limit, scratch);
    if (fine) product_int16(scratch, rows, packed, outputs, inner, rescale, out, outputs);
    return fine;
}

SIMNMT_EXPORT void simnmt_product_float32(const float *x, int64_t rows, const float *packed, int64_t outputs, int64_t inner, float *scratch,
                                          float *out) {
    interleave_rows(x, inner, rows, inner, scratch);
    product_float32(scratch, rows, packed, outputs, inner, out, outputs);
}
