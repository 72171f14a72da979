/* Vectors of LANES floats, and what the kernels do with them: 16 with AVX-512, 8 with AVX2 and FMA, 4 anywhere else (SSE2, NEON, or whatever
   the compiler makes of it). */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels are for little-endian processors"
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define LANES 16
#define LEVEL "AVX-512"
#elif defined(__AVX2__) && defined(__FMA__)
#define LANES 8
#define LEVEL "AVX2"
#elif defined(__SSE2__)
#define LANES 4
#define LEVEL "SSE2"
#elif defined(__ARM_NEON)
#define LANES 4
#define LEVEL "NEON"
#else
#define LANES 4
#define LEVEL "C without vectors"
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * LANES)));

#define SIMNMT_EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline, unused))

/* Which vectors the kernels were compiled for. */
SIMNMT_EXPORT const char *simnmt_level(void) { return LEVEL; }

INLINE vf vset(float x) { return x - (vf){0}; }
INLINE vi viset(int32_t x) { return x - (vi){0}; }

/* Memory: anywhere, aligned or not; `_some` touches the first n lanes alone, 0 <= n <= LANES. */
INLINE vf vload(const float *from) {
    vf x;
    memcpy(&x, from, sizeof x);
    return x;
}

INLINE void vstore(float *to, vf x) { memcpy(to, &x, sizeof x); }

INLINE vf vload_some(const float *from, ptrdiff_t n, float rest) {
#if LANES == 16
    return _mm512_mask_loadu_ps(vset(rest), (__mmask16)((1u << n) - 1), from);
#else
    vf x = vset(rest);
    for (ptrdiff_t i = 0; i < n; i++) x[i] = from[i];
    return x;
#endif
}

INLINE void vstore_some(float *to, vf x, ptrdiff_t n) {
#if LANES == 16
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), x);
#else
    for (ptrdiff_t i = 0; i < n; i++) to[i] = x[i];
#endif
}

/* Lanes of a where the mask has all its bits set, of b where it has none. */
INLINE vf vselect(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }

/* A flag per lane, kept in a mask register where there is one; and one bit a lane, the first lane's lowest. The larger and the smaller; b where
   either is NaN. a * b + c, rounded once where the processor can. */
#if LANES == 16
typedef __mmask16 vflags;
INLINE vflags vabove(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
INLINE vflags vunordered(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
INLINE unsigned vbits(vflags f) { return f; }
INLINE vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf vfma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
#else
typedef vi vflags;
INLINE vflags vabove(vf a, vf b) { return a > b; }
#if LANES == 8
INLINE vflags vunordered(vf a, vf b) { return (vi)_mm256_cmp_ps(a, b, _CMP_UNORD_Q); }
INLINE unsigned vbits(vflags f) { return (unsigned)_mm256_movemask_ps((vf)f); }
INLINE vf vmax(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vmin(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf vfma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
#else
INLINE vflags vunordered(vf a, vf b) { return (a != a) | (b != b); }
INLINE vf vfma(vf a, vf b, vf c) { return a * b + c; }
#if defined(__SSE2__)
INLINE unsigned vbits(vflags f) { return (unsigned)_mm_movemask_ps((vf)f); }
INLINE vf vmax(vf a, vf b) { return _mm_max_ps(a, b); }
INLINE vf vmin(vf a, vf b) { return _mm_min_ps(a, b); }
#else
INLINE unsigned vbits(vflags f) { return (unsigned)((f[0] & 1) | (f[1] & 2) | (f[2] & 4) | (f[3] & 8)); }
INLINE vf vmax(vf a, vf b) { return vselect(a > b, a, b); }
INLINE vf vmin(vf a, vf b) { return vselect(a < b, a, b); }
#endif
#endif
#endif

INLINE float vreduce_add(vf x) {
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) x[i] += x[i + width];
    return x[0];
}

INLINE float vreduce_max(vf x) {
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) x[i] = x[i] > x[i + width] ? x[i] : x[i + width];
    return x[0];
}

/* e^x; 0 below -87.33 (so e^-inf = 0), 2.4e38 at most; NaN stays NaN.
   e^x = 2^n e^r with n the integer nearest to x / ln 2. Adding 1.5 * 2^23 + 127 rounds x / ln 2 and leaves n + 127 in the low bits, which moved
   by 23 are the float 2^n. The polynomial is the least relative error of degree 5 that is exactly 1 at 0: 1.05e-7, with rounding below 2.5e-7. */
INLINE vf vexp(vf x) {
    const vf shift = vset(12583039.0f);
    vf held = vmin(vset(88.37f), vmax(vset(-87.33f), x));
    vf t = vfma(held, vset(1.44269504f), shift);
    vf n = t - shift;
    vf r = vfma(n, vset(-0.693359375f), held);
    r = vfma(n, vset(2.12194440e-4f), r);
    vf p = vfma(vset(0.008312501431776993f), r, vset(0.041890332182784186f));
    p = vfma(p, r, vset(0.16667115389583334f));
    p = vfma(p, r, vset(0.4999923030490129f));
    p = vfma(p, r, vset(1.0f));
    p = vfma(p, r, vset(1.0f));
    vf e = p * (vf)((vi)t << 23);
#if LANES == 16
    return _mm512_mask_mov_ps(e, _mm512_cmp_ps_mask(x, vset(-87.33f), _CMP_LT_OQ), _mm512_setzero_ps());
#else
    return (vf)(~(x < vset(-87.33f)) & (vi)e);
#endif
}

/* Brain floats, as stored, widened exactly. */
INLINE vf vload_bfloat(const uint16_t *from) {
    vh h;
    memcpy(&h, from, sizeof h);
    return (vf)(__builtin_convertvector(h, vi) << 16);
}
