/* What the processor can do, for the choice of a level. */
#include <stdint.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

/* A bit for each level that the processor, and the system with its registers, supports: in the order of `LEVELS`. */
__attribute__((visibility("default"))) int32_t transduce_supported_levels(void) {
    int32_t found = 1; /* portable */
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found |= 2;
    if ((found & 2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        found |= 4;
    if ((found & 4) && __builtin_cpu_supports("avx512vnni")) found |= 8;
#endif
    return found;
}

/* Whether the processor multiplies numbers of type bfloat16 (AVX-512 BF16 or AMX), whatever the system allows. */
__attribute__((visibility("default"))) int32_t transduce_has_bfloat16(void) {
#if defined(__x86_64__) || defined(__i386__)
    uint32_t a, b, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1)) return 1; /* AMX-BF16 */
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1)) return 1;  /* AVX512_BF16 */
#endif
    return 0;
}

/* A number that stands for the sources of which the library was built. */
__attribute__((visibility("default"))) int64_t transduce_source_digest(void) { return SOURCE_DIGEST; }
