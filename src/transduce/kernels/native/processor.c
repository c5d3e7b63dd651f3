/* What the processor can do, for the choice of a level. */
#include <stdint.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#endif

#if defined(__x86_64__) || defined(__i386__)
/* Ask the system for AMX, whose registers it saves only for processes that have asked; it may refuse. Only Linux is asked. */
static int may_use_amx(void) {
#if defined(__x86_64__) && defined(__linux__) && defined(SYS_arch_prctl)
    const long request_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return 0;
#endif
}

/* The bits of avx2, avx512, avx512_vnni and amx. They are read here, as not every compiler's library has what
 * __builtin_cpu_supports asks. */
static int32_t find_x86_levels(void) {
    uint32_t a, b, c, d, states, more;
    const uint32_t save = 1u << 27, avx = 1u << 28, fma = 1u << 12;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (save | avx | fma)) != (save | avx | fma)) return 0;
    __asm__("xgetbv" : "=a"(states), "=d"(more) : "c"(0)); /* the registers that the system saves */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (states & 0x06) != 0x06 || !(b >> 5 & 1)) return 0;
    const uint32_t f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31, vnni = 1u << 11;
    if ((states & 0xE6) != 0xE6 || (b & (f | dq | bw | vl)) != (f | dq | bw | vl)) return 2;
    if (!(c & vnni)) return 2 | 4;
    const uint32_t amx = 1u << 24 | 1u << 25, amx_states = 1u << 17 | 1u << 18; /* tiles and their products of int8 */
    if ((d & amx) != amx || (states & amx_states) != amx_states || !may_use_amx()) return 2 | 4 | 8;
    return 2 | 4 | 8 | 16;
}
#elif defined(__aarch64__)
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
    found |= find_x86_levels();
#elif defined(__aarch64__)
    found |= has_dot_products() ? 32 | 64 : 32;
#endif
    return found;
}

/* Whether the processor multiplies matrices of type bfloat16 by AMX, whatever the system allows. */
EXPORTED int32_t transduce_has_amx(void) {
#if defined(__x86_64__) || defined(__i386__)
    uint32_t a, b, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) return (int32_t)(d >> 22 & 1);
#endif
    return 0;
}

/* A number that stands for the sources of which the library was built. */
EXPORTED int64_t transduce_source_digest(void) { return SOURCE_DIGEST; }
