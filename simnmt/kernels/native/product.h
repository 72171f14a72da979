/* Products of a few rows (a beam) with weights packed beforehand: 16-bit fixed point and float32 (SHARP-05).

   A product takes two calls: quantise_rows, then product_int16 as many times as matrices take these rows; interleave_rows, then
   product_float32. Buffers are the caller's and nothing here allocates; any number of rows, zero too, any sizes.

   Packed weights: panels of PANEL outputs, each panel with the inner size in order, so that a pass over the weights is one sequential stream.
   Outputs beyond the last one are zeros.
      int16   [panel][inner / 2][PANEL][2]   neighbours of the inner size paired, as the multiply-add of pairs takes them; odd: a zero beside
      float32 [panel][inner][PANEL]
   Rows, in blocks of at most ROW_BLOCK that share a pass over the weights:
      int16   [block][inner / 2][rows of the block][2]
      float32 [block][inner][rows of the block]
   Both layouts belong to the level that was compiled: pack and multiply with the same library. */
#ifndef SIMNMT_PRODUCT_H
#define SIMNMT_PRODUCT_H

#include "vectors.h"

/* A panel is two vectors wide; the sums of a block, with two vectors of weights and what is between, fill 32 or 16 registers. */
enum { PANEL = 2 * LANES, ROW_BLOCK = LANES == 16 ? 12 : 6 };

typedef int16_t vpairs __attribute__((vector_size(4 * LANES)));
typedef int16_t vnarrow __attribute__((vector_size(2 * LANES)));

/* Elements that packed weights take, int16 or float32. Best aligned to 64 bytes. */
INLINE int64_t packed_size(int64_t outputs, int64_t inner) { return (outputs + PANEL - 1) / PANEL * PANEL * (inner + (inner & 1)); }

/* Elements that quantised or interleaved rows take. */
INLINE int64_t rows_size(int64_t rows, int64_t inner) { return rows * (inner + (inner & 1)); }

/* Blocks as even as can be: 16 rows in passes of 8 and 8, not 12 and 4. */
INLINE int64_t row_blocks(int64_t rows) { return (rows + ROW_BLOCK - 1) / ROW_BLOCK; }
INLINE int64_t block_start(int64_t block, int64_t rows) { return block * rows / row_blocks(rows); }

/* round(clip(x, -limit, limit) * scale), ties to even, where |limit * scale| <= 32767 and scale is a power of two. The sum with 1.5 * 2^23 rounds
   and leaves the integer in the low bits: the same integers at every level. NaN becomes the limit. Returns 0 where a NaN was met, else 1. */
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

/* Rows [rows][inner] at `stride` floats from one to the next, clipped, quantised and interleaved into `out`, of rows_size int16. Returns 0 where a
   NaN was met, else 1. */
static int quantise_rows(const float *x, int64_t stride, int64_t rows, int64_t inner, float scale, float limit, int16_t *out) {
    enum { CHUNK = 128 };
    int16_t integers[CHUNK];
    int64_t pairs = (inner + 1) / 2;
    int fine = 1;
    for (int64_t block = 0; block < row_blocks(rows); block++) {
        int64_t first = block_start(block, rows), width = block_start(block + 1, rows) - first;
        for (int64_t row = 0; row < width; row++)
            for (int64_t start = 0; start < inner; start += CHUNK) {
                int64_t count = inner - start < CHUNK ? inner - start : CHUNK;
                fine &= quantise(x + (first + row) * stride + start, count, scale, limit, integers);
                if (count & 1) integers[count] = 0;
                int16_t *to = out + (first * pairs + start / 2 * width + row) * 2;
                for (int64_t pair = 0; pair < (count + 1) / 2; pair++) memcpy(to + pair * width * 2, integers + 2 * pair, 4);
            }
    }
    return fine;
}

/* Rows [rows][inner] at `stride` floats from one to the next, interleaved into `out`, of rows_size floats. */
static void interleave_rows(const float *x, int64_t stride, int64_t rows, int64_t inner, float *out) {
    for (int64_t block = 0; block < row_blocks(rows); block++) {
        int64_t first = block_start(block, rows), width = block_start(block + 1, rows) - first;
        for (int64_t row = 0; row < width; row++)
            for (int64_t i = 0; i < inner; i++) out[first * inner + i * width + row] = x[(first + row) * stride + i];
    }
}

/* Weights [.][inner] of int16 at `stride` from one output to the next, into panels: output j is row chosen[j], or row j where chosen is NULL. */
static void pack_int16(const int16_t *weights, int64_t stride, const int64_t *chosen, int64_t outputs, int64_t inner, int16_t *packed) {
    int64_t pairs = (inner + 1) / 2;
    for (int64_t output = 0; output < (outputs + PANEL - 1) / PANEL * PANEL; output++) {
        int16_t *to = packed + (output / PANEL * pairs * PANEL + output % PANEL) * 2;
        const int16_t *from = weights + (output >= outputs ? 0 : chosen ? chosen[output] : output) * stride;
        for (int64_t pair = 0; pair < pairs; pair++, to += 2 * PANEL) {
            to[0] = output < outputs ? from[2 * pair] : 0;
            to[1] = output < outputs && 2 * pair + 1 < inner ? from[2 * pair + 1] : 0;
        }
    }
}

/* As pack_int16, of floats as they are. */
static void pack_float32(const float *weights, int64_t stride, const int64_t *chosen, int64_t outputs, int64_t inner, float *packed) {
    for (int64_t output = 0; output < (outputs + PANEL - 1) / PANEL * PANEL; output++) {
        float *to = packed + output / PANEL * inner * PANEL + output % PANEL;
        const float *from = weights + (output >= outputs ? 0 : chosen ? chosen[output] : output) * stride;
        for (int64_t i = 0; i < inner; i++, to += PANEL) *to = output < outputs ? from[i] : 0;
    }
}

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
            total[row][0] += multiply_add_pairs((vpairs)viset(both), low);
            total[row][1] += multiply_add_pairs((vpairs)viset(both), high);
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
            block_int16(width, x + first * pairs * 2, packed, pairs, sums);
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

#endif
