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

/* Rows of scores whose weights are computed together, so that none waits for the sum or the maximum of another. */
#define SCORE_ROWS 4

/* The weights softmax(scale * scores) of `rows` rows, a constant, of `count` scores, in place. With a mask, `count` is a multiple
 * of LANES, and a score has the weight 0 unless its number in the mask, in rows of `mask_stride` numbers, is all ones. */
INLINE void softmax_together(float *scores, size_t stride, int rows, int count, const int32_t *mask, size_t mask_stride,
                             float scale) {
    const int last = (count - 1) / LANES * LANES;
    const ints is_inside = lanes_below(count - last);
    const floats factor = broadcast(scale);
    floats vectors[SCORE_ROWS], sums[SCORE_ROWS] = {{0}};
    UNROLL for (int row = 0; row < rows; row++) {
        float *own = scores + row * stride;
        vectors[row] = broadcast(-INFINITY);
        if (!mask) store(own + last, choose(is_inside, load(own + last), broadcast(-INFINITY)));
        for (int index = 0; index <= last; index += LANES) {
            floats seen = load(own + index);
            if (mask) seen = choose(load_ints(mask + row * mask_stride + index), seen, broadcast(-INFINITY));
            vectors[row] = maximum(seen, vectors[row]);
        }
    }
    UNROLL for (int row = rows; row < SCORE_ROWS; row++) vectors[row] = vectors[0];
    const quad greatest = reduce_four(vectors, 1);
    for (int index = 0; index <= last; index += LANES) {
        UNROLL for (int row = 0; row < rows; row++) {
            float *own = scores + row * stride + index;
            floats power = exponential((load(own) - broadcast(greatest[row])) * factor);
            if (mask) power = choose(load_ints(mask + row * mask_stride + index), power, (floats){0});
            store(own, power);
            sums[row] = sums[row] + power;
        }
    }
    UNROLL for (int row = rows; row < SCORE_ROWS; row++) sums[row] = sums[0];
    const quad reciprocals = (quad){1.0f, 1.0f, 1.0f, 1.0f} / reduce_four(sums, 0);
    for (int index = 0; index <= last; index += LANES) {
        UNROLL for (int row = 0; row < rows; row++) {
            float *own = scores + row * stride + index;
            store(own, load(own) * broadcast(reciprocals[row]));
        }
    }
}

/* The same for any number of rows. */
INLINE void masked_softmax(float *scores, size_t stride, int num_rows, int count, const int32_t *mask, size_t mask_stride,
                           float scale) {
    int row = 0;
    for (; row + SCORE_ROWS <= num_rows; row += SCORE_ROWS)
        softmax_together(scores + row * stride, stride, SCORE_ROWS, count, mask ? mask + row * mask_stride : NULL, mask_stride,
                         scale);
    for (; row < num_rows; row++)
        softmax_together(scores + row * stride, stride, 1, count, mask ? mask + row * mask_stride : NULL, mask_stride, scale);
}

/* The weights softmax(scale * scores) of rows of `count` scores, in place. There is room up to a multiple of LANES. */
static void softmax(float *scores, size_t stride, int num_rows, int count, float scale) {
    masked_softmax(scores, stride, num_rows, count, NULL, 0, scale);
}

/* A matrix that a tile can read: for each of its rows, PANEL numbers of a panel, `stride` behind those of the row before.
 * The last panel may have LANES columns, whose numbers are `narrow_stride` behind those of the row before. */
typedef struct {
    const float *numbers;
    size_t stride, narrow_stride, next_panel;
} matrix;

INLINE void multiply_matrix_tile(const float *inputs, size_t input_stride, size_t input_step, matrix by, size_t column,
                                 int num_inputs, float *outputs, size_t output_stride, int rows, int vectors) {
    floats sums[MAX_ROWS][VECTORS];
    multiply_float_tile(rows, vectors, inputs, input_stride, input_step, by.numbers + column / PANEL * by.next_panel,
                        vectors == 1 ? by.narrow_stride : by.stride, (size_t)num_inputs, 0, sums);
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

/* Four numbers of each of four keys, written to four rows of a panel. */
INLINE void transpose_four(const float *keys, size_t stride, float *to, size_t to_stride) {
    quad four[4];
    UNROLL for (int key = 0; key < 4; key++) memcpy(&four[key], keys + key * stride, sizeof four[key]);
    UNROLL for (int index = 0; index < 4; index++) {
        const quad row = {four[0][index], four[1][index], four[2][index], four[3][index]};
        memcpy(to + index * to_stride, &row, sizeof row);
    }
}

/* Pack keys in panels of PANEL keys, [keys / PANEL, d_k, PANEL], the last of LANES if that is enough for it, with zeros
 * behind the last. */
static void pack_keys(const float *keys, size_t stride, int num_keys, int d_k, float *to) {
    for (int first = 0; first < num_keys; first += PANEL) {
        const int count = num_keys - first < PANEL ? num_keys - first : PANEL, width = count <= LANES ? LANES : PANEL;
        const int fours = d_k % 4 == 0 ? count / 4 * 4 : 0;
        for (int key = 0; key < fours; key += 4) {
            for (int index = 0; index < d_k; index += 4)
                transpose_four(keys + (size_t)(first + key) * stride + index, stride, to + index * width + key,
                               (size_t)width);
        }
        for (int index = 0; index < d_k; index++, to += width) {
            for (int key = fours; key < count; key++) to[key] = keys[(size_t)(first + key) * stride + (size_t)index];
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
    softmax(scores, (size_t)padded, num_queries, num_keys, scale);
    multiply_matrix(scores, (size_t)padded, num_queries, value_rows, num_keys, attended, attended_stride, d_v);
}

/* Scores of one query in one head against those keys of a cache that `slots` names. */
INLINE void score_slots(const float *query, const float *keys, size_t key_stride, const int32_t *slots, int num_slots,
                        int d_k, float *scores) {
    for (int first = 0; first < num_slots; first += LANES) {
        quad found[LANES / 4] = {{0}};
        UNROLL for (int group = 0; group < LANES / 4; group++) {
            if (first + 4 * group >= num_slots) break;
            floats products[4];
            UNROLL for (int index = 0; index < 4; index++) {
                const int slot = first + 4 * group + index; /* one beyond the last is left out by softmax */
                const float *key = keys + (size_t)slots[slot < num_slots ? slot : num_slots - 1] * key_stride;
                products[index] = load(query) * load(key);
                for (int part = LANES; part < d_k; part += LANES)
                    products[index] = multiply_add(load(query + part), load(key + part), products[index]);
            }
            found[group] = reduce_four(products, 0);
        }
        store(scores + first, join_quads(found));
    }
}

/* The sum of those values of a cache that `slots` names, in one head, with their weights. */
INLINE void add_slots(const float *weights, const float *values, size_t value_stride, const int32_t *slots, int num_slots,
                      int d_v, float *attended) {
    int part = 0;
    for (; part + PANEL <= d_v; part += PANEL) {
        floats first = {0}, second = {0};
        for (int index = 0; index < num_slots; index++) {
            const float *value = values + (size_t)slots[index] * value_stride + part;
            const floats weight = broadcast(weights[index]);
            first = multiply_add(weight, load(value), first);
            second = multiply_add(weight, load(value + LANES), second);
        }
        store(attended + part, first);
        store(attended + part + LANES, second);
    }
    for (; part < d_v; part += LANES) {
        floats sum = {0};
        for (int index = 0; index < num_slots; index++)
            sum = multiply_add(broadcast(weights[index]), load(values + (size_t)slots[index] * value_stride + part), sum);
        store(attended + part, sum);
    }
}

/* Attention of one query in all heads, which stand side by side, to those keys and values of a cache that `slots` names.
 *
 * `d_k` and `d_v` are multiples of LANES. `scores` has room for SCORE_ROWS * round_up(num_slots, LANES) numbers.
 */
static void attend_to_slots(const float *query, const float *keys, size_t key_stride, const float *values,
                            size_t value_stride, const int32_t *slots, int num_slots, int num_heads, int d_k, int d_v,
                            float scale, float *scores, float *attended) {
    const size_t stride = (size_t)round_up(num_slots, LANES);
    for (int first = 0; first < num_heads; first += SCORE_ROWS) {
        const int end = num_heads - first < SCORE_ROWS ? num_heads : first + SCORE_ROWS;
        for (int head = first; head < end; head++)
            score_slots(query + head * d_k, keys + head * d_k, key_stride, slots, num_slots, d_k,
                        scores + (size_t)(head - first) * stride);
        softmax(scores, stride, end - first, num_slots, scale);
        for (int head = first; head < end; head++)
            add_slots(scores + (size_t)(head - first) * stride, values + head * d_v, value_stride, slots, num_slots, d_v,
                      attended + head * d_v);
    }
}

#endif
