/* Linear layers, x W^T + b, for few rows and for many, in float32 and in int8.
 *
 * Weights are packed in panels of PANEL outputs: panel p holds, for every input in turn, its weights of the outputs
 * p * PANEL to (p + 1) * PANEL side by side, so that a product reads them once, in order.
 *
 *     float32  [outputs / PANEL, inputs, PANEL]
 *     int8     [outputs / PANEL, inputs / GROUP, PANEL, GROUP]
 *
 * A tile of up to MAX_ROWS rows keeps its sums in registers. Every sum is made in the order of the inputs, in one register,
 * whatever the tile: the result of a row does not depend on the number of rows, nor on the rows beside it.
 *
 * In int8, every row of inputs has one scale, and every output has one; sums are exact integers, so that they are the same
 * at every level. Weights and inputs are from -127 to 127. With VNNI, inputs are unsigned: they are moved up by 128, and
 * `corrections`, 128 times the sum of an output's weights, is what that adds to its sum.
 */
#ifndef TRANSDUCE_LINEAR_H
#define TRANSDUCE_LINEAR_H

#include "amx.h"
#include "vectors.h"

/* Inputs that one instruction multiplies for one output. */
#if defined(__AVX512VNNI__)
#define GROUP 4
#define OFFSET 128
typedef uint8_t quantized;
#elif defined(NEON)
#define GROUP 4
#define OFFSET 0
typedef int8_t quantized;
#else
#define GROUP 2
#define OFFSET 0
typedef int16_t quantized;
#endif

/* A product of few rows waits for its weights, which come from memory: it asks for them ahead, for the second cache, which
 * can have more requests under way, and then for the first. With more rows, a panel is in a cache when the next tile needs it. */
#define HAS_TO_ASK(rows) ((rows) <= 4)

INLINE void ask_for_weights(const void *weights) {
    __builtin_prefetch((const char *)weights + 2048);
    for (size_t line = 0; line < PANEL * sizeof(float); line += 64)
        __builtin_prefetch((const char *)weights + 8192 + line, 0, 2);
}

enum { NO_ACTIVATION, RELU, GELU, SWISH };

typedef struct {
    const void *weights;        /* packed, of type float or int8_t */
    const float *bias;          /* [outputs] */
    const float *scales;        /* [outputs]: of the weights in int8; NULL: they are float32 */
    const int32_t *corrections; /* [outputs]: OFFSET times the sum of the weights; with scales only */
    int32_t inputs, outputs;    /* multiples of ROW_ALIGNMENT: what is added to reach them is zero */
} linear_layer;

/* One product of a layer with rows: what all of its tiles share. */
typedef struct {
    const linear_layer *layer;
    const void *inputs;      /* [rows, inputs] of type float or quantized */
    const float *row_scales; /* [rows], in int8 */
    float *outputs;          /* [rows, outputs] */
    const float *residual;   /* [rows, outputs], is added; may be `outputs` itself; NULL: nothing is */
    size_t input_stride, output_stride;
    int activation;
} product;

/* 0.5 x (1 + erf(x / sqrt 2)), the exact gelu: erf by formula 7.1.26 of Abramowitz & Stegun, within 1.5e-7. */
INLINE floats gelu(floats x) {
    const floats z = absolute(x) * broadcast(0.70710678118654752f);
    const floats t = broadcast(1.0f) / multiply_add(broadcast(0.3275911f), z, broadcast(1.0f));
    floats polynomial = multiply_add(broadcast(1.061405429f), t, broadcast(-1.453152027f));
    polynomial = multiply_add(polynomial, t, broadcast(1.421413741f));
    polynomial = multiply_add(polynomial, t, broadcast(-0.284496736f));
    polynomial = multiply_add(polynomial, t, broadcast(0.254829592f));
    const floats tail = broadcast(0.5f) * polynomial * t * exponential(-(z * z)); /* of the normal distribution beyond |x| */
    return x * choose(x < broadcast(0.0f), tail, broadcast(1.0f) - tail);
}

/* x / (1 + e^-x). */
INLINE floats swish(floats x) { return x / (broadcast(1.0f) + exponential(-x)); }

/* Activations that are more than an instruction, apart, so that they are compiled once; `values` are `count` vectors. */
static __attribute__((noinline)) void activate(float *values, int count, int activation) {
    for (int index = 0; index < count; index++, values += LANES)
        store(values, activation == GELU ? gelu(load(values)) : swish(load(values)));
}

/* Write the sums of one row, which are those of the outputs from `first` on, after residual and activation. */
INLINE void finish_row(const product *task, size_t row, size_t first, floats *sums) {
    float *outputs = task->outputs + row * task->output_stride + first;
    if (task->residual != NULL) {
        const float *residual = task->residual + row * task->output_stride + first;
        UNROLL for (int vector = 0; vector < VECTORS; vector++)
            sums[vector] = sums[vector] + load(residual + vector * LANES);
    }
    UNROLL for (int vector = 0; vector < VECTORS; vector++) {
        /* Written so that NaN stays NaN. */
        store(outputs + vector * LANES, task->activation == RELU ? maximum((floats){0}, sums[vector]) : sums[vector]);
    }
    if (task->activation > RELU) activate(outputs, VECTORS, task->activation);
}

/* Sums of a tile in float32: `rows` rows of inputs times `vectors` vectors of outputs. `rows` and `vectors` are constants.
 *
 * `weights` holds the outputs' weights for every input, `stride` numbers behind those of the input before. The inputs of a
 * row are `input_step` numbers apart. `asks` is a constant, too: whether weights are asked for ahead.
 */
INLINE void multiply_float_tile(int rows, int vectors, const float *inputs, size_t input_stride, size_t input_step,
                                const float *weights, size_t stride, size_t num_inputs, int asks,
                                floats sums[][VECTORS]) {
    UNROLL for (int row = 0; row < rows; row++) {
        UNROLL for (int vector = 0; vector < vectors; vector++) sums[row][vector] = (floats){0};
    }
    for (size_t input = 0; input < num_inputs; input++, weights += stride) {
        floats weight[VECTORS];
        if (asks) ask_for_weights(weights);
        UNROLL for (int vector = 0; vector < vectors; vector++) weight[vector] = load(weights + vector * LANES);
        UNROLL for (int row = 0; row < rows; row++) {
            const floats value = broadcast(inputs[row * input_stride + input * input_step]);
            UNROLL for (int vector = 0; vector < vectors; vector++)
                sums[row][vector] = multiply_add(value, weight[vector], sums[row][vector]);
        }
    }
}

/* The weights of LANES outputs for GROUP inputs, as `multiply_group` wants them. */
#if defined(__AVX512VNNI__)
typedef __m512i weight_group;
INLINE weight_group load_weights(const int8_t *from) { return _mm512_loadu_si512(from); }
#elif defined(__AVX512F__)
typedef __m512i weight_group;
INLINE weight_group load_weights(const int8_t *from) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)from));
}
#elif defined(__AVX2__)
typedef __m256i weight_group;
INLINE weight_group load_weights(const int8_t *from) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)from));
}
#elif defined(NEON)
typedef int8x16_t weight_group;
INLINE weight_group load_weights(const int8_t *from) { return vld1q_s8(from); }
#else
typedef const int8_t *weight_group;
INLINE weight_group load_weights(const int8_t *from) { return from; }
#endif

/* Sums of LANES outputs, increased by the products of GROUP inputs of a row, whose bytes `values` holds. */
INLINE ints multiply_group(ints sums, int32_t values, weight_group weights) {
#if defined(__AVX512VNNI__)
    return (ints)_mm512_dpbusd_epi32((__m512i)sums, _mm512_set1_epi32(values), weights);
#elif defined(__AVX512F__)
    return sums + (ints)_mm512_madd_epi16(weights, _mm512_set1_epi32(values));
#elif defined(__AVX2__)
    return sums + (ints)_mm256_madd_epi16(weights, _mm256_set1_epi32(values));
#elif defined(NEON) && defined(__ARM_FEATURE_DOTPROD)
    return (ints)vdotq_s32((int32x4_t)sums, weights, vreinterpretq_s8_s32(vdupq_n_s32(values)));
#elif defined(NEON)
    /* No number is below -127, so that a sum of two products fits into 16 bits. */
    const int8x16_t inputs = vreinterpretq_s8_s32(vdupq_n_s32(values));
    const int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(inputs)), high = vmull_high_s8(weights, inputs);
    return (ints)vpadalq_s16((int32x4_t)sums, vpaddq_s16(low, high));
#else
    int16_t pair[2];
    memcpy(pair, &values, sizeof pair);
    for (int lane = 0; lane < LANES; lane++) sums[lane] += pair[0] * weights[2 * lane] + pair[1] * weights[2 * lane + 1];
    return sums;
#endif
}

/* Sums of a tile in int8 times a panel of outputs, as `multiply_float_tile`, added to those that are in `sums`. */
INLINE void multiply_integer_tile(int rows, const quantized *inputs, size_t input_stride, const int8_t *weights,
                                  size_t num_inputs, int asks, ints sums[][VECTORS]) {
    for (size_t input = 0; input < num_inputs; input += GROUP, weights += PANEL * GROUP) {
        weight_group weight[VECTORS];
        if (asks) ask_for_weights(weights);
        UNROLL for (int vector = 0; vector < VECTORS; vector++)
            weight[vector] = load_weights(weights + vector * LANES * GROUP);
        UNROLL for (int row = 0; row < rows; row++) {
            int32_t values; /* GROUP inputs */
            memcpy(&values, inputs + row * input_stride + input, sizeof values);
            UNROLL for (int vector = 0; vector < VECTORS; vector++)
                sums[row][vector] = multiply_group(sums[row][vector], values, weight[vector]);
        }
    }
}

/* Scales, corrections and bias of a panel in int8. */
typedef struct {
    floats scales[VECTORS], bias[VECTORS];
    ints corrections[VECTORS];
} panel_terms;

INLINE panel_terms load_panel_terms(const linear_layer *layer, size_t first) {
    panel_terms terms;
    UNROLL for (int vector = 0; vector < VECTORS; vector++) {
        terms.scales[vector] = load(layer->scales + first + vector * LANES);
        terms.bias[vector] = load(layer->bias + first + vector * LANES);
        terms.corrections[vector] = load_ints(layer->corrections + first + vector * LANES);
    }
    return terms;
}

/* The exact sums of one row times both scales, and the bias. */
INLINE void scale_sums(const panel_terms *terms, float row_scale, const ints *exact, floats *sums) {
    UNROLL for (int vector = 0; vector < VECTORS; vector++)
        sums[vector] = multiply_add(to_floats(exact[vector]), broadcast(row_scale) * terms->scales[vector], terms->bias[vector]);
}

/* One tile of a product: `rows` rows, a constant, from `row` on times a panel of outputs. */
INLINE void multiply_tile(const product *task, size_t row, size_t panel, int rows, int is_integer) {
    const linear_layer *layer = task->layer;
    const size_t inputs = (size_t)layer->inputs, first = panel * PANEL;
    floats sums[MAX_ROWS][VECTORS];
    if (!is_integer) {
        multiply_float_tile(rows, VECTORS, (const float *)task->inputs + row * task->input_stride, task->input_stride, 1,
                            (const float *)layer->weights + first * inputs, PANEL, inputs, HAS_TO_ASK(rows), sums);
        UNROLL for (int index = 0; index < rows; index++) {
            UNROLL for (int vector = 0; vector < VECTORS; vector++)
                sums[index][vector] = sums[index][vector] + load(layer->bias + first + vector * LANES);
        }
    } else {
        const panel_terms terms = load_panel_terms(layer, first);
        ints exact[MAX_ROWS][VECTORS];
        UNROLL for (int index = 0; index < rows; index++) {
            UNROLL for (int vector = 0; vector < VECTORS; vector++) exact[index][vector] = -terms.corrections[vector];
        }
        multiply_integer_tile(rows, (const quantized *)task->inputs + row * task->input_stride, task->input_stride,
                              (const int8_t *)layer->weights + first * inputs, inputs, HAS_TO_ASK(rows), exact);
        UNROLL for (int index = 0; index < rows; index++)
            scale_sums(&terms, task->row_scales[row + index], exact[index], sums[index]);
    }
    UNROLL for (int index = 0; index < rows; index++) finish_row(task, row + index, first, sums[index]);
}

typedef void (*tile)(const product *task, size_t row, size_t panel);

/* Each kind of tile is a function of its own: the compiler then has all registers for its sums. */
#define DEFINE_TILE(rows)                                                                                  \
    static __attribute__((noinline)) void float_tile_##rows(const product *task, size_t row, size_t panel) {   \
        multiply_tile(task, row, panel, rows, 0);                                                          \
    }                                                                                                      \
    static __attribute__((noinline)) void integer_tile_##rows(const product *task, size_t row, size_t panel) { \
        multiply_tile(task, row, panel, rows, 1);                                                          \
    }

DEFINE_TILE(1)
DEFINE_TILE(2)
DEFINE_TILE(3)
DEFINE_TILE(4)
#if MAX_ROWS >= 6
DEFINE_TILE(5)
DEFINE_TILE(6)
#endif
#if MAX_ROWS == 8
DEFINE_TILE(7)
DEFINE_TILE(8)
#define TILES(type) {NULL, type##_1, type##_2, type##_3, type##_4, type##_5, type##_6, type##_7, type##_8}
#elif MAX_ROWS == 6
#define TILES(type) {NULL, type##_1, type##_2, type##_3, type##_4, type##_5, type##_6}
#else
#define TILES(type) {NULL, type##_1, type##_2, type##_3, type##_4}
#endif

/* Tiles by their number of rows: in float32, and in int8. */
static const tile tiles[2][MAX_ROWS + 1] = {TILES(float_tile), TILES(integer_tile)};

#if defined(AMX)
INLINE size_t lesser(size_t one, size_t other) { return one < other ? one : other; }

/* Whether AMX computes a product: it has rows that fill a register, and inputs that fill its rows. */
INLINE int is_for_amx(const product *task, size_t num_rows) {
    return task->layer->scales != NULL && num_rows >= AMX_ROWS && task->layer->inputs % AMX_INPUTS == 0;
}

/* All rows times one panel. The last register of rows begins earlier where it would not be full, so that some of its rows
 * are computed twice. */
static void multiply_panel_by_amx(const product *given, size_t num_rows, size_t panel) {
    const product task = *given; /* a copy, which nothing that is written can change */
    const size_t inputs = (size_t)task.layer->inputs, first = panel * PANEL, last_start = num_rows - AMX_ROWS;
    const int8_t *weights = (const int8_t *)task.layer->weights + first * inputs;
    const panel_terms terms = load_panel_terms(task.layer, first);
    for (size_t row = 0; row < num_rows; row += 2 * AMX_ROWS) {
        int32_t exact[2 * AMX_ROWS][PANEL] __attribute__((aligned(64)));
        const size_t starts[2] = {lesser(row, last_start), lesser(row + AMX_ROWS, last_start)};
        const quantized *rows = task.inputs, *second = rows + starts[1] * task.input_stride;
        multiply_by_amx(rows + starts[0] * task.input_stride, row + AMX_ROWS < num_rows ? second : NULL, task.input_stride,
                        weights, inputs, exact);
        for (int part = 0; part < 2; part++) {
            const size_t begin = row + (size_t)part * AMX_ROWS, end = lesser(begin + AMX_ROWS, num_rows);
            for (size_t index = begin; index < end; index++) {
                const int32_t *own = exact[(size_t)part * AMX_ROWS + index - starts[part]];
                ints corrected[VECTORS];
                floats sums[VECTORS];
                UNROLL for (int vector = 0; vector < VECTORS; vector++)
                    corrected[vector] = load_ints(own + vector * LANES) - terms.corrections[vector];
                scale_sums(&terms, task.row_scales[index], corrected, sums);
                finish_row(&task, index, first, sums);
            }
        }
    }
}
#endif

/* All rows times the panels of a layer.
 *
 * One panel at a time, which is read in order, as memory is fastest, and stays in the first or second cache while all rows
 * are multiplied with it. Rows are divided evenly among tiles: a tile of few rows would have too few sums to hide the time
 * that an addition takes.
 */
static void multiply_panels(const product *task, size_t num_rows) {
    const size_t panels = (size_t)task->layer->outputs / PANEL, num_tiles = (num_rows + MAX_ROWS - 1) / MAX_ROWS;
    if (num_tiles == 0) return;
#if defined(AMX)
    if (is_for_amx(task, num_rows)) {
        for (size_t panel = 0; panel < panels; panel++) multiply_panel_by_amx(task, num_rows, panel);
        return;
    }
#endif
    const tile *of_rows = tiles[task->layer->scales != NULL];
    const size_t rows = num_rows / num_tiles, num_larger = num_rows % num_tiles; /* the first ones have a row more */
    for (size_t panel = 0; panel < panels; panel++) {
        size_t row = 0;
        for (size_t index = 0; index < num_tiles; index++) {
            const size_t own = index < num_larger ? rows + 1 : rows;
            of_rows[own](task, row, panel);
            row += own;
        }
    }
}

/* The greatest absolute value of a row, or NaN if one of its numbers is NaN or infinite.
 *
 * Absolute values are compared by their bits, which are in the same order; those of infinity and NaN are the greatest.
 */
INLINE float greatest_absolute(const float *values, int count) {
    ints greatest = {0};
    for (int index = 0; index < count; index += LANES) greatest = maximum_int((ints)absolute(load(values + index)), greatest);
    const floats found = (floats)greatest;
    return greatest_lane(found) + sum_lanes(found - found);
}

/* A row in int8, moved by OFFSET; returns its scale. `count` is a multiple of ROW_ALIGNMENT. The factor is rounded twice, as
 * in PyTorch. */
static float quantize_row(const float *values, int count, quantized *to) {
    const float greatest = greatest_absolute(values, count);
    const floats factor = broadcast(greatest > 0.0f ? 1.0f / greatest * 127.0f : 0.0f);
    for (int index = 0; index < count; index += LANES) {
        const ints rounded = round_to_ints(load(values + index) * factor);
#if defined(__AVX512VNNI__)
        _mm_storeu_si128((__m128i *)(to + index), _mm512_cvtepi32_epi8((__m512i)(rounded + broadcast_int(OFFSET))));
#elif defined(__AVX512F__)
        _mm256_storeu_si256((__m256i *)(to + index), _mm512_cvtepi32_epi16((__m512i)rounded));
#elif defined(__AVX2__)
        const __m128i low = _mm256_castsi256_si128((__m256i)rounded), high = _mm256_extracti128_si256((__m256i)rounded, 1);
        _mm_storeu_si128((__m128i *)(to + index), _mm_packs_epi32(low, high));
#elif defined(NEON)
        const int16x4_t narrow = vmovn_s32((int32x4_t)rounded);
        const int8x8_t bytes = vmovn_s16(vcombine_s16(narrow, narrow));
        memcpy(to + index, &bytes, LANES);
#else
        for (int lane = 0; lane < LANES; lane++) to[index + lane] = (quantized)(rounded[lane] + OFFSET);
#endif
    }
    return greatest / 127.0f;
}

/* Numbers between the beginnings of rows in int8: with a multiple of 4,096 bytes, few of them would fit into the first cache. */
static size_t quantized_stride(size_t inputs) { return inputs + 64; }

/* Room for the inputs of a product in int8: [rows, quantized_stride(inputs)]. */
typedef struct {
    quantized *rows;
    float *scales;
} quantized_rows;

/* outputs = activation(inputs W^T + b + residual) for `num_rows` rows. */
static void apply_linear(const linear_layer *layer, const float *inputs, size_t input_stride, size_t num_rows,
                         float *outputs, size_t output_stride, const float *residual, int activation,
                         quantized_rows quantized_inputs) {
    product task = {layer, inputs, NULL, outputs, residual, input_stride, output_stride, activation};
    if (layer->scales != NULL) {
        const size_t stride = quantized_stride((size_t)layer->inputs);
        for (size_t row = 0; row < num_rows; row++)
            quantized_inputs.scales[row] =
                quantize_row(inputs + row * input_stride, layer->inputs, quantized_inputs.rows + row * stride);
        task.inputs = quantized_inputs.rows;
        task.row_scales = quantized_inputs.scales;
        task.input_stride = stride;
    }
    multiply_panels(&task, num_rows);
}

#endif
