/* Products of 8-bit integers by AMX (Advanced Matrix Extensions of Intel): its eight registers are matrices of 16 rows of 64
 * bytes, and one instruction adds the product of two of them to a third.
 *
 * Sums are exact integers, the same as those of `multiply_integer_tile`: which of the two computes a row makes no difference.
 */
#ifndef TRANSDUCE_AMX_H
#define TRANSDUCE_AMX_H

#include "vectors.h"

#if defined(AMX)
#define AMX_ROWS 16   /* of a register */
#define AMX_INPUTS 64 /* bytes of a row of a register */

/* The shapes of all registers, as the instruction LDTILECFG reads them. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_shapes;

/* Give all eight registers their full size; returns the shapes that another library in this thread may have set. */
INLINE amx_shapes begin_amx(void) {
    static const amx_shapes full = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    amx_shapes before;
    __asm__ volatile("sttilecfg %0" : "=m"(before));
    __asm__ volatile("ldtilecfg %0" : : "m"(full));
    return before;
}

INLINE void end_amx(const amx_shapes *before) { __asm__ volatile("ldtilecfg %0" : : "m"(*before)); }

/* `volatile` keeps these in order; those that read or write memory count as using all of it. */
#define AMX_ZERO(register) __asm__ volatile("tilezero %%tmm" #register : : :)
#define AMX_LOAD(register, from, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #register : : "r"(from), "r"(stride) : "memory")
#define AMX_STORE(register, to, stride) \
    __asm__ volatile("tilestored %%tmm" #register ", (%0,%1,1)" : : "r"(to), "r"(stride) : "memory")
#define AMX_MULTIPLY(sums, inputs, weights) \
    __asm__ volatile("tdpbusd %%tmm" #weights ", %%tmm" #inputs ", %%tmm" #sums : : :)

/* Sums of 16 rows from `first` on, and with `second` of 16 more, times a panel of outputs: sums [32, PANEL].
 *
 * A register of weights holds 64 inputs of 16 outputs: each of its 16 rows has 4 inputs of each output, half a row of a panel.
 */
INLINE void multiply_by_amx(const uint8_t *first, const uint8_t *second, size_t input_stride, const int8_t *weights,
                            size_t num_inputs, int32_t sums[][PANEL]) {
    const size_t weight_stride = PANEL * 4, sum_stride = PANEL * sizeof(int32_t);
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (size_t input = 0; input < num_inputs; input += AMX_INPUTS, weights += PANEL * AMX_INPUTS) {
        AMX_LOAD(4, first + input, input_stride);
        AMX_LOAD(6, weights, weight_stride);
        AMX_MULTIPLY(0, 4, 6);
        AMX_LOAD(7, weights + 64, weight_stride);
        AMX_MULTIPLY(1, 4, 7);
        if (second == NULL) continue;
        AMX_LOAD(5, second + input, input_stride);
        AMX_MULTIPLY(2, 5, 6);
        AMX_MULTIPLY(3, 5, 7);
    }
    AMX_STORE(0, sums[0], sum_stride);
    AMX_STORE(1, sums[0] + 16, sum_stride);
    if (second == NULL) return;
    AMX_STORE(2, sums[16], sum_stride);
    AMX_STORE(3, sums[16] + 16, sum_stride);
}
#else
typedef struct {
    char unused;
} amx_shapes;

INLINE amx_shapes begin_amx(void) { return (amx_shapes){0}; }

INLINE void end_amx(const amx_shapes *before) { (void)before; }
#endif

#endif
