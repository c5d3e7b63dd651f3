/* Layer normalisation, and softmax attention of queries to keys and values that stand in rows, in panels or in a cache. */
#ifndef TRANSDUCE_ATTENTION_H
#define TRANSDUCE_ATTENTION_H

#include "linear.h"

typedef struct {
    const float *gain, *bias; /* [d_model, rounded up]: zero beyond d_model */
} normalization;

#define EPSILON 1e-5f

/* Mean 0 and variance 1 over the first `width` numbers of each row, then gain and bias; `to` may be `from`. */
static void normalize_rows(const normalization *norm, const float *from, size_t num_rows, int width, size_t stride,
                           float *to) {
    const ints inside_last = lanes_below(width % LANES == 0 ? LANES : width % LANES);
    const int last = (width - 1) / LANES * LANES;
    for (size_t row = 0; row < num_rows; row++, from += stride, to += stride) {
        floats sum = {0}, squares = {0};
        for (int index = 0; index <= last; index += LANES) sum = sum + load(from + index);
        const floats mean = broadcast(sum_lanes(sum) / (float)width);
        for (int index = 0; index <= last; index += LANES) {
            floats difference = load(from + index) - mean;
            if (index == last) difference = choose(inside_last, difference, (floats){0});
            squares = multiply_add(difference, difference, squares);
        }
        const floats factor = broadcast(1.0f / sqrtf(sum_lanes(squares) / (float)width + EPSILON));
        for (int index = 0; index < (int)stride; index += LANES) {
            const floats normalized = (load(from + index) - mean) * factor;
            store(to + index, multiply_add(normalized, load(norm->gain + index), load(norm->bias + index)));
        }
    }
}

/* The weights softmax(scale * scores) of `count` scores, in place. There is room up to a multiple of LANES. */
static void softmax(float *scores, int count, float scale) {
    const int last = (count - 1) / LANES * LANES;
    store(scores + last, choose(lanes_below(count - last), load(scores + last), broadcast(-INFINITY)));
    floats greatest = load(scores), sum = {0};
    for (int index = LANES; index < count; index += LANES) greatest = maximum(load(scores + index), greatest);
    const floats most = broadcast(greatest_lane(greatest)), factor = broadcast(scale);
    for (int index = 0; index < count; index += LANES) {
        const floats power = exponential((load(scores + index) - most) * factor);
        store(scores + index, power);
        sum = sum + power;
    }
    const floats reciprocal = broadcast(1.0f / sum_lanes(sum));
    for (int index = 0; index < count; index += LANES) store(scores + index, load(scores + index) * reciprocal);
}

/* A matrix that a tile can read: for each of its rows, PANEL numbers of a panel, `stride` behind those of the row before.
 * The last panel may have LANES columns, whose numbers are `narrow_stride` behind those of the row before. */
typedef struct {
    const float *numbers;
    size_t stride, narrow_stride, next_panel;
} matrix;

INLINE void multiply_matrix_tile(const float *inputs, size_t input_stride, size_t input_step, matrix by, size_t column,
                                 int num_inputs, float *outputs, size_t output_stride, int rows, int vectors) {
    floats sums[MAX_ROWS][8];
    multiply_float_tile(rows, vectors, inputs, input_stride, input_step, by.numbers + column / PANEL * by.next_panel,
                        vectors == 1 ? by.narrow_stride : by.stride, 0, (size_t)num_inputs, sums);
    UNROLL for (int row = 0; row < rows; row++) {
        UNROLL for (int vector = 0; vector < vectors; vector++)
            store(outputs + row * output_stride + column + vector * LANES, sums[row][vector]);
    }
}

/* outputs = inputs times a matrix of `num_inputs` rows and `columns` columns, a multiple of LANES. The inputs of a row are
 * `input_step` numbers apart; where that is the constant 1, the compiler leaves it out. */
INLINE void multiply_any_matrix(const float *inputs, size_t input_stride, size_t input_step, int num_rows, matrix by,
                                int num_inputs, float *outputs, size_t output_stride, int columns) {
#define MULTIPLY(rows, vectors)                                                                                       \
    multiply_matrix_tile(inputs + row * input_stride, input_stride, input_step, by, (size_t)column, num_inputs,       \
                         outputs + row * output_stride, output_stride, rows, vectors)
#define MULTIPLY_COLUMNS(vectors)                                                                                     \
    {                                                                                                                 \
        for (; row + MAX_ROWS <= num_rows; row += MAX_ROWS) MULTIPLY(MAX_ROWS, vectors);                              \
        for (; row + 4 <= num_rows; row += 4) MULTIPLY(4, vectors);                                                   \
        for (; row + 2 <= num_rows; row += 2) MULTIPLY(2, vectors);                                                   \
        for (; row < num_rows; row++) MULTIPLY(1, vectors);                                                           \
    }
    for (int column = 0; column < columns; column += PANEL) {
        int row = 0;
        if (columns - column >= PANEL) MULTIPLY_COLUMNS(2) else MULTIPLY_COLUMNS(1)
    }
#undef MULTIPLY_COLUMNS
#undef MULTIPLY
}

static void multiply_matrix(const float *inputs, size_t input_stride, int num_rows, matrix by, int num_inputs,
                            float *outputs, size_t output_stride, int columns) {
    multiply_any_matrix(inputs, input_stride, 1, num_rows, by, num_inputs, outputs, output_stride, columns);
}

INLINE int round_up(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }

/* Numbers that the keys of one head take in panels. */
INLINE size_t count_packed_keys(int num_keys, int d_k) { return (size_t)round_up(num_keys, LANES) * (size_t)d_k; }

/* Pack keys in panels of PANEL keys, [keys / PANEL, d_k, PANEL], the last of LANES if that is enough for it, with zeros
 * behind the last. */
static void pack_keys(const float *keys, size_t stride, int num_keys, int d_k, float *to) {
    for (int first = 0; first < num_keys; first += PANEL) {
        const int count = num_keys - first < PANEL ? num_keys - first : PANEL, width = count <= LANES ? LANES : PANEL;
        for (int index = 0; index < d_k; index++, to += width) {
            for (int key = 0; key < count; key++) to[key] = keys[(size_t)(first + key) * stride + (size_t)index];
            for (int key = count; key < width; key++) to[key] = 0.0f;
        }
    }
}

/* Attention of a head: [num_queries, d_v] from queries [num_queries, d_k], packed keys, and values in rows.
 *
 * `scores` has room for num_queries * round_up(num_keys, LANES) numbers.
 */
static void attend(const float *queries, size_t query_stride, int num_queries, const float *packed_keys,
                   const float *values, size_t value_stride, int num_keys, int d_k, int d_v, float scale, float *scores,
                   float *attended, size_t attended_stride) {
    const int padded = round_up(num_keys, LANES);
    const matrix keys = {packed_keys, PANEL, LANES, (size_t)PANEL * d_k};
    const matrix value_rows = {values, value_stride, value_stride, PANEL};
    multiply_matrix(queries, query_stride, num_queries, keys, d_k, scores, (size_t)padded, padded);
    for (int query = 0; query < num_queries; query++) softmax(scores + (size_t)query * padded, num_keys, scale);
    multiply_matrix(scores, (size_t)padded, num_queries, value_rows, num_keys, attended, attended_stride, d_v);
}

/* Attention of one query in one head to those keys and values of a cache that `slots` names.
 *
 * `keys` and `values` point to the head's part of slot 0. `d_k` and `d_v` are multiples of LANES.
 */
static void attend_to_slots(const float *query, const float *keys, size_t key_stride, const float *values,
                            size_t value_stride, const int32_t *slots, int num_slots, int d_k, int d_v, float scale,
                            float *scores, float *attended) {
    for (int index = 0; index < num_slots; index++) {
        const float *key = keys + (size_t)slots[index] * key_stride;
        floats sum = load(query) * load(key);
        for (int part = LANES; part < d_k; part += LANES) sum = multiply_add(load(query + part), load(key + part), sum);
        scores[index] = sum_lanes(sum);
    }
    softmax(scores, num_slots, scale);
    int part = 0;
    for (; part + PANEL <= d_v; part += PANEL) {
        floats first = {0}, second = {0};
        for (int index = 0; index < num_slots; index++) {
            const float *value = values + (size_t)slots[index] * value_stride + part;
            const floats weight = broadcast(scores[index]);
            first = multiply_add(weight, load(value), first);
            second = multiply_add(weight, load(value + LANES), second);
        }
        store(attended + part, first);
        store(attended + part + LANES, second);
    }
    for (; part < d_v; part += LANES) {
        floats sum = {0};
        for (int index = 0; index < num_slots; index++)
            sum = multiply_add(broadcast(scores[index]), load(values + (size_t)slots[index] * value_stride + part), sum);
        store(attended + part, sum);
    }
}

#endif
