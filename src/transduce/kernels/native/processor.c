/* What the processor can do, for the choice of a level. */
#include <stdint.h>

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

/* A number that stands for the sources of which the library was built. */
__attribute__((visibility("default"))) int64_t transduce_source_digest(void) { return SOURCE_DIGEST; }
