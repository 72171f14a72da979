/* How the weights and the rows of a product are laid out beforehand (SHARP-05).

   Packed weights: panels of PANEL outputs, each panel with the inner size in order, so that a pass over the weights is one sequential stream.
   Outputs beyond the last one are zeros.
      int16   [panel][inner / 2][PANEL][2]   neighbours of the inner size paired, as the multiply-add of pairs takes them; odd: a zero beside
      float32 [panel][inner][PANEL]
   Rows, in blocks of at most ROW_BLOCK that share a pass over the weights:
      int16   [block][inner / 2][rows of the block][2]
      float32 [block][inner][rows of the block]
   Both layouts belong to the level that was compiled: pack and multiply with the same library. */
#ifndef SIMNMT_PACKING_H
#define SIMNMT_PACKING_H

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

/* round(clip(x, -limit, limit) * scale), ties to even; clipped numbers times the scale, a power of two, must stay within 16 bits. The sum with
   1.5 * 2^23 rounds and leaves the integer in the low bits: the same at every level. NaN becomes the limit. Returns 0 where one was met, else 1. */
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

/* Weights [outputs][inner] of int16 into panels. */
static void pack_int16(const int16_t *weights, int64_t outputs, int64_t inner, int16_t *packed) {
    int64_t pairs = (inner + 1) / 2;
    for (int64_t output = 0; output < (outputs + PANEL - 1) / PANEL * PANEL; output++) {
        int16_t *to = packed + (output / PANEL * pairs * PANEL + output % PANEL) * 2;
        const int16_t *from = weights + (output < outputs ? output : 0) * inner;
        for (int64_t pair = 0; pair < pairs; pair++, to += 2 * PANEL) {
            to[0] = output < outputs ? from[2 * pair] : 0;
            to[1] = output < outputs && 2 * pair + 1 < inner ? from[2 * pair + 1] : 0;
        }
    }
}

/* As pack_int16, of floats as they are. */
static void pack_float32(const float *weights, int64_t outputs, int64_t inner, float *packed) {
    for (int64_t output = 0; output < (outputs + PANEL - 1) / PANEL * PANEL; output++) {
        float *to = packed + output / PANEL * inner * PANEL + output % PANEL;
        const float *from = weights + (output < outputs ? output : 0) * inner;
        for (int64_t i = 0; i < inner; i++, to += PANEL) *to = output < outputs ? from[i] : 0;
    }
}

#endif
