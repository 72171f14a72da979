/* A shard's codes become weights in their places: centroids for codes, outliers laid over them (STI-06).

   Weight i has the code in bits [i * bits, (i + 1) * bits) of the stream, the least significant first; eight codes take `bits` bytes. */
#pragma once

#include "vectors.h"

enum { MOST_BITS = 6 };

/* The next eight codes, code i at bit i * bits of the word; touches `bits` bytes alone. */
INLINE uint64_t codes_of_eight(const uint8_t *codes, int bits) {
    uint64_t word = 0;
    for (int byte = 0; byte < bits; byte++) word |= (uint64_t)codes[byte] << 8 * byte;
    return word;
}

INLINE void unpack_few(const uint8_t *codes, int bits, const float *centroids, int64_t count, float *out) {
    const uint64_t mask = (1u << bits) - 1;
    for (; count > 0; count -= 8, codes += bits, out += 8) {
        int64_t here = count < 8 ? count : 8;
        uint64_t word = codes_of_eight(codes, (int)((here * bits + 7) / 8));
        for (int64_t i = 0; i < here; i++) out[i] = centroids[word >> i * bits & mask];
    }
}

#if LANES == 16
/* Sixteen codes lie in 12 bytes at most: each lane gets the two that hold its own, moves it down, and a permutation looks it up: of a
   dictionary of 16, of two of 32, of four of 64, which stay in registers. What lies above a code in its lane is not looked at: a
   permutation reads 4 or 5 bits, and smaller dictionaries are repeated. */
INLINE void unpack_run(const uint8_t *codes, const uint8_t *end, int bits, const float *centroids, int64_t count, float *out) {
    uint8_t bytes[64];
    int32_t shifts[16];
    float dictionary[64];
    for (int lane = 0; lane < 16; lane++) {
        int bit = lane * bits;
        bytes[4 * lane] = (uint8_t)(bit / 8), bytes[4 * lane + 1] = (uint8_t)(bit / 8 + 1);
        bytes[4 * lane + 2] = bytes[4 * lane + 3] = 0x80;
        shifts[lane] = bit % 8;
    }
    for (int code = 0; code < 64; code++) dictionary[code] = centroids[code & ((1 << bits) - 1)];
    const __m512i places = _mm512_loadu_si512(bytes), down = _mm512_loadu_si512(shifts), half = _mm512_set1_epi32(32);
    const __m512 first = _mm512_loadu_ps(dictionary), second = _mm512_loadu_ps(dictionary + 16);
    const __m512 third = _mm512_loadu_ps(dictionary + 32), fourth = _mm512_loadu_ps(dictionary + 48);
    for (; count >= 16 && end - codes >= 16; count -= 16, codes += 2 * bits, out += 16) {
        __m512i word = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)codes));
        word = _mm512_srlv_epi32(_mm512_shuffle_epi8(word, places), down);
        __m512 x;
        if (bits <= 4)
            x = _mm512_permutexvar_ps(word, first);
        else
            x = _mm512_permutex2var_ps(first, word, second);
        if (bits == 6) x = _mm512_mask_blend_ps(_mm512_test_epi32_mask(word, half), x, _mm512_permutex2var_ps(third, word, fourth));
        _mm512_storeu_ps(out, x);
    }
    unpack_few(codes, bits, centroids, count, out);
}
#else
/* Two codes at once, by a table of all pairs. */
INLINE void unpack_run(const uint8_t *codes, const uint8_t *end, int bits, const float *centroids, int64_t count, float *out) {
    float pairs[1 << 2 * MOST_BITS][2];
    const int64_t distinct = 1 << 2 * bits;
    if (count < 4 * distinct) {
        unpack_few(codes, bits, centroids, count, out);
        return;
    }
    for (int64_t pair = 0; pair < distinct; pair++) {
        pairs[pair][0] = centroids[pair & ((1 << bits) - 1)];
        pairs[pair][1] = centroids[pair >> bits];
    }
    for (; count >= 8 && end - codes >= 8; count -= 8, codes += bits, out += 8) {
        uint64_t word;
        memcpy(&word, codes, sizeof word);
        for (int i = 0; i < 4; i++) memcpy(out + 2 * i, pairs[word >> 2 * bits * i & (uint64_t)(distinct - 1)], sizeof *pairs);
    }
    unpack_few(codes, bits, centroids, count, out);
}
#endif

/* Each width by a loop of its own, in which it is a constant. */
static void unpack_codes(const uint8_t *codes, const uint8_t *end, int bits, const float *centroids, int64_t count, float *out) {
    switch (bits) {
        case 2: unpack_run(codes, end, 2, centroids, count, out); break;
        case 3: unpack_run(codes, end, 3, centroids, count, out); break;
        case 4: unpack_run(codes, end, 4, centroids, count, out); break;
        case 5: unpack_run(codes, end, 5, centroids, count, out); break;
        case 6: unpack_run(codes, end, 6, centroids, count, out); break;
        default: memcpy(out, codes, (size_t)count * sizeof *out);
    }
}

/* The first of the ascending `at` that is not below `place`. */
static int64_t first_from(const int32_t *at, int64_t count, int64_t place) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (at[middle] < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Place s is (first weight, a multiple of 8; first element of `out`; how many) of places[3 * s ..]; `bits` is 2 to 6, or 32 for
   weights as they are. `code_bytes` hold all weights of all places; `outlier_at` is ascending. */
SIMNMT_EXPORT void simnmt_unpack(const uint8_t *codes, int64_t code_bytes, int bits, const float *centroids, const int32_t *outlier_at,
                                 const float *outlier_values, int64_t outliers, const int64_t *places, int64_t segments, float *out) {
    for (int64_t segment = 0; segment < segments; segment++, places += 3) {
        int64_t first = places[0], count = places[2];
        float *to = out + places[1];
        unpack_codes(codes + first / 8 * bits, codes + code_bytes, bits, centroids, count, to);
        for (int64_t i = first_from(outlier_at, outliers, first); i < outliers && outlier_at[i] < first + count; i++)
            to[outlier_at[i] - first] = outlier_values[i];
    }
}
