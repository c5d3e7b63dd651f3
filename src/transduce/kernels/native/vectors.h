/* Vectors of numbers: the widest that an instruction set has, and the few operations that compilers have no operator for.
 *
 * A file that includes this one is compiled once for each level of instruction sets. The compiler's own macros say which
 * level it is; NEON and AMX are defined by build.py: every 64-bit ARM processor has NEON, at the portable level, too, and
 * compilers have different names for AMX. Arithmetic is written with operators on the vector types of GCC and Clang.
 *
 * The compiler is told never to contract a product and a sum (-ffp-contract=off): `multiply_add` alone decides where they
 * are rounded once. A row therefore gets the same bits in every tile, whatever the compiler makes of that tile.
 */
#ifndef TRANSDUCE_VECTORS_H
#define TRANSDUCE_VECTORS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(NEON)
#include <arm_neon.h>
#endif

#if defined(__AVX2__) && defined(_WIN32) && defined(__GNUC__) && !defined(__clang__)
#error "GCC aligns the stack of Windows to 16 bytes, which is too little for these vectors (its bug 54412)"
#endif

/* Numbers in a vector, and the most rows that a tile of a product has: their sums must fit into the registers. */
#if defined(__AVX512F__)
#define LANES 16
#define MAX_ROWS 8
#elif defined(__AVX2__)
#define LANES 8
#define MAX_ROWS 6
#elif defined(NEON)
#define LANES 4
#define MAX_ROWS 8
#else
#define LANES 4
#define MAX_ROWS 4
#endif

/* Vectors and outputs of a panel of weights. */
#define VECTORS 2
#define PANEL (VECTORS * LANES)

/* Widths of rows in memory are multiples of this at every level, with zeros behind what is used. */
#define ROW_ALIGNMENT 32

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef float unaligned_floats __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t unaligned_ints __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE floats load(const float *from) { return *(const unaligned_floats *)from; }
INLINE void store(float *to, floats values) { *(unaligned_floats *)to = values; }
INLINE ints load_ints(const int32_t *from) { return *(const unaligned_ints *)from; }
INLINE floats broadcast(float value) { return value - (floats){0}; }
INLINE ints broadcast_int(int32_t value) { return value - (ints){0}; }
INLINE floats to_floats(ints values) { return __builtin_convertvector(values, floats); }

/* a * b + c, rounded once where the processor can. */
INLINE floats multiply_add(floats a, floats b, floats c) {
#if defined(__AVX512F__)
    return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(NEON)
    return (floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* Lanes of `a` where `mask` is all ones, of `b` where it is zero. */
INLINE floats choose(ints mask, floats a, floats b) { return (floats)(((ints)a & mask) | ((ints)b & ~mask)); }

/* The greater of a and b; b where either is NaN. */
INLINE floats maximum(floats a, floats b) {
#if defined(__AVX512F__)
    return (floats)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (floats)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return choose(a > b, a, b);
#endif
}

/* The lesser of a and b; b where either is NaN. */
INLINE floats minimum(floats a, floats b) {
#if defined(__AVX512F__)
    return (floats)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (floats)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return choose(a < b, a, b);
#endif
}

INLINE floats absolute(floats values) { return (floats)((ints)values & broadcast_int(0x7FFFFFFF)); }

/* A bit for each lane where a is greater than b, or either is NaN. */
INLINE uint32_t lanes_above(floats a, floats b) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_NLE_UQ);
#elif defined(__AVX2__)
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_NLE_UQ));
#elif defined(NEON)
    const uint32x4_t bits = {1, 2, 4, 8};
    return vaddvq_u32(vbicq_u32(bits, vcleq_f32((float32x4_t)a, (float32x4_t)b)));
#else
    const ints below = a <= b;
    uint32_t bits = 0;
    for (int lane = 0; lane < LANES; lane++) bits |= (uint32_t)(below[lane] == 0) << lane;
    return bits;
#endif
}

/* The sum of all lanes, halves onto halves. */
INLINE float sum_lanes(floats values) {
#if defined(__AVX512F__)
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256((__m512)values),
                                _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512)values), 1)));
#elif defined(__AVX2__)
    __m256 half = (__m256)values;
#endif
#if defined(__AVX512F__) || defined(__AVX2__)
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
#else
    return (values[0] + values[2]) + (values[1] + values[3]);
#endif
}

/* The greatest lane; where one is NaN, any of them. */
INLINE float greatest_lane(floats values) {
#if defined(__AVX512F__)
    __m256 half = _mm256_max_ps(_mm512_castps512_ps256((__m512)values),
                                _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512)values), 1)));
#elif defined(__AVX2__)
    __m256 half = (__m256)values;
#endif
#if defined(__AVX512F__) || defined(__AVX2__)
    __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_movehdup_ps(quarter)));
#elif defined(NEON)
    return vmaxvq_f32((float32x4_t)values);
#else
    float greatest = values[0];
    for (int lane = 1; lane < LANES; lane++) greatest = values[lane] > greatest ? values[lane] : greatest;
    return greatest;
#endif
}

/* The greater of a and b, of integers. */
INLINE ints maximum_int(ints a, ints b) {
#if defined(__AVX512F__)
    return (ints)_mm512_max_epi32((__m512i)a, (__m512i)b);
#else
    const ints mask = a > b;
    return (a & mask) | (b & ~mask);
#endif
}

/* One number of each of four vectors. */
typedef float quad __attribute__((vector_size(16)));

/* The sums of the lanes of four vectors, or their greatest lanes: in a third of the operations that each by itself takes. */
INLINE quad reduce_four(const floats vectors[4], int is_maximum) {
#if defined(__AVX512F__) || defined(__AVX2__)
#if defined(__AVX512F__)
    typedef __m512 part;
#define COMBINE(a, b) (is_maximum ? _mm512_max_ps(a, b) : _mm512_add_ps(a, b))
#define INTERLEAVE(which, a, b) _mm512_unpack##which##_ps(a, b)
#define INTERLEAVE_PAIRS(which, a, b) \
    _mm512_castpd_ps(_mm512_unpack##which##_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)))
#else
    typedef __m256 part;
#define COMBINE(a, b) (is_maximum ? _mm256_max_ps(a, b) : _mm256_add_ps(a, b))
#define INTERLEAVE(which, a, b) _mm256_unpack##which##_ps(a, b)
#define INTERLEAVE_PAIRS(which, a, b) \
    _mm256_castpd_ps(_mm256_unpack##which##_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)))
#endif
    const part one = (part)vectors[0], two = (part)vectors[1], three = (part)vectors[2], four = (part)vectors[3];
    const part front = COMBINE(INTERLEAVE(lo, one, two), INTERLEAVE(hi, one, two));
    const part back = COMBINE(INTERLEAVE(lo, three, four), INTERLEAVE(hi, three, four));
    const part all = COMBINE(INTERLEAVE_PAIRS(lo, front, back), INTERLEAVE_PAIRS(hi, front, back));
#undef COMBINE
#undef INTERLEAVE
#undef INTERLEAVE_PAIRS
#if defined(__AVX512F__)
    const __m256 low = _mm512_castps512_ps256(all);
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(all), 1));
    const __m256 half = is_maximum ? _mm256_max_ps(low, high) : _mm256_add_ps(low, high);
#else
    const __m256 half = all;
#endif
    const __m128 first = _mm256_castps256_ps128(half), second = _mm256_extractf128_ps(half, 1);
    return (quad)(is_maximum ? _mm_max_ps(first, second) : _mm_add_ps(first, second));
#else
    quad all;
    for (int index = 0; index < 4; index++)
        all[index] = is_maximum ? greatest_lane(vectors[index]) : sum_lanes(vectors[index]);
    return all;
#endif
}

/* A vector of LANES / 4 quads. */
INLINE floats join_quads(const quad *quads) {
#if defined(__AVX512F__)
    __m512 all = _mm512_castps128_ps512((__m128)quads[0]);
    all = _mm512_insertf32x4(all, (__m128)quads[1], 1);
    all = _mm512_insertf32x4(all, (__m128)quads[2], 2);
    return (floats)_mm512_insertf32x4(all, (__m128)quads[3], 3);
#elif defined(__AVX2__)
    return (floats)_mm256_insertf128_ps(_mm256_castps128_ps256((__m128)quads[0]), (__m128)quads[1], 1);
#else
    return quads[0];
#endif
}

/* The integer nearest to each value, of two equally near ones the even one, as an integer; for up to 2^21. */
#define ROUNDING 12582912.0f /* 1.5 * 2^23: the sum with it has no bits behind the point */
INLINE ints round_to_ints(floats values) {
    return (ints)(values + broadcast(ROUNDING)) - (ints)broadcast(ROUNDING);
}

/* e^x with an error of about one unit in the last place; below e^-86 it stays there. NaN stays NaN.
 *
 * x = n ln 2 + r, and e^x = 2^n e^r: e^r by the polynomial of Cephes' expf, 2^n by its bits. The product of the two is
 * exact; n added to the bits of e^r would be the same, but make a number of some NaN.
 */
INLINE floats exponential(floats x) {
    x = minimum(broadcast(88.0f), maximum(broadcast(-86.0f), x));
    const floats sum = multiply_add(x, broadcast(1.44269504088896341f), broadcast(ROUNDING));
    const ints exponent = (ints)sum - ((ints)broadcast(ROUNDING) - broadcast_int(127)); /* n, as float32 keeps it */
    const floats whole = sum - broadcast(ROUNDING);
    floats r = multiply_add(whole, broadcast(-0.693359375f), x);
    r = multiply_add(whole, broadcast(2.12194440e-4f), r);
    floats polynomial = multiply_add(broadcast(1.9875691500e-4f), r, broadcast(1.3981999507e-3f));
    polynomial = multiply_add(polynomial, r, broadcast(8.3334519073e-3f));
    polynomial = multiply_add(polynomial, r, broadcast(4.1665795894e-2f));
    polynomial = multiply_add(polynomial, r, broadcast(1.6666665459e-1f));
    polynomial = multiply_add(polynomial, r, broadcast(5.0000001201e-1f));
    const floats power = multiply_add(polynomial, r * r, r + broadcast(1.0f));
    return power * (floats)(exponent << 23);
}

/* A mask of the lanes below `count`. */
INLINE ints lanes_below(int count) {
    ints lane;
    for (int index = 0; index < LANES; index++) lane[index] = index;
    return lane < broadcast_int(count);
}

#endif
