/* The one translation unit of the native kernels, compiled once per level: see compile.py. */
#include "activations.h"
#include "column_sets.h"
#include "gathered.h"
#include "output_layer.h"
#include "product.h"
#include "sharp.h"
#include "unpack.h"
#include "vectors.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#ifndef SIMNMT_SOURCES
#define SIMNMT_SOURCES "unknown"
#endif

/* Which sources this library was made from. */
SIMNMT_EXPORT const char *simnmt_sources(void) { return SIMNMT_SOURCES; }

/* What the processor has and the operating system saves: 1 for AVX2, FMA and F16C, 2 for AVX-512 F, BW, VL and DQ beside. */
SIMNMT_EXPORT int simnmt_features(void) {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    __builtin_cpu_init();
    int f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    int avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512dq");
    return avx2 | avx512 << 1;
#else
    return 0;
#endif
}
