/* What the processor can do, for the choice of a level. */
#include <stdint.h>

#if defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#endif

#if defined(__aarch64__)
/* Whether the processor has dot products of 8-bit integers; where the system is not asked, it counts as one without. */
static int has_dot_products(void) {
#if defined(__APPLE__)
    int32_t found = 0;
    size_t size = sizeof found;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &found, &size, 0, 0) == 0 && found;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return 0;
#endif
}
#endif

/* A bit for each level that the processor, and the system with its registers, supports: in the order of `LEVELS`. */
EXPORTED int32_t transduce_supported_levels(void) {
    int32_t found = 1; /* portable */
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found |= 2;
    if ((found & 2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        found |= 4;
    if ((found & 4) && __builtin_cpu_supports("avx512vnni")) found |= 8;
#elif defined(__aarch64__)
    found |= has_dot_products() ? 16 | 32 : 16;
#endif
    return found;
}

/* A number that stands for the sources of which the library was built. */
EXPORTED int64_t transduce_source_digest(void) { return SOURCE_DIGEST; }
