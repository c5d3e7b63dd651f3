/* Operations in training, forward and backward: dropout, bias and relu, layer normalisation, attention of short sentences, and
 * softmax over the vocabulary.
 *
 * Numbers in memory are float32 or bfloat16; all of them are computed in float32. One thread computes an operation.
 */
#ifndef TRANSDUCE_TRAINING_H
#define TRANSDUCE_TRAINING_H

#include "attention.h"

typedef uint16_t halves __attribute__((vector_size(2 * LANES)));
typedef int16_t short_ints __attribute__((vector_size(2 * LANES)));
typedef uint32_t bits32 __attribute__((vector_size(4 * LANES)));

/* Numbers `index` and on of an array of float32 or bfloat16. `is_bfloat16` is a constant. */
INLINE floats load_number(const void *from, size_t index, int is_bfloat16) {
    if (!is_bfloat16) return load((const float *)from + index);
    const uint16_t *const numbers = (const uint16_t *)from + index;
#if defined(__AVX512F__)
    return (floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)numbers)), 16);
#elif defined(__AVX2__)
    return (floats)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)numbers)), 16);
#else
    halves upper;
    memcpy(&upper, numbers, sizeof upper);
    return (floats)(__builtin_convertvector(upper, bits32) << 16);
#endif
}

/* The same, written: to bfloat16 rounded to the nearest, of two equally near ones to the even one. */
INLINE void store_number(void *to, size_t index, floats values, int is_bfloat16) {
    if (!is_bfloat16) {
        store((float *)to + index, values);
        return;
    }
    const bits32 bits = (bits32)values, odd = bits >> 16 & 1, rounded = (bits + 0x7FFF + odd) >> 16;
    const ints is_number = values == values;
    const bits32 upper = (rounded & (bits32)is_number) | (0x7FC0 & ~(bits32)is_number);
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)((uint16_t *)to + index), _mm512_cvtepi32_epi16((__m512i)upper));
#elif defined(__AVX2__)
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)upper, (__m256i)upper), 0x08);
    _mm_storeu_si128((__m128i *)((uint16_t *)to + index), _mm256_castsi256_si128(packed));
#else
    const halves narrow = __builtin_convertvector(upper, halves);
    memcpy((uint16_t *)to + index, &narrow, sizeof narrow);
#endif
}

/* Random bits: STREAMS generators (Doty-Humphrey's sfc32) side by side, so that every level draws the same. */
#define STREAMS 16
#define DRAWN (2 * STREAMS) /* numbers of 16 bits in a draw */
#define STREAM_VECTORS (STREAMS / LANES)

typedef struct {
    bits32 a[STREAM_VECTORS], b[STREAM_VECTORS], c[STREAM_VECTORS];
    uint32_t counter;
} random_streams;

/* The next 32 bits of every stream. */
INLINE void draw_bits(random_streams *streams, bits32 drawn[STREAM_VECTORS]) {
    UNROLL for (int part = 0; part < STREAM_VECTORS; part++) {
        const bits32 a = streams->a[part], b = streams->b[part], c = streams->c[part];
        drawn[part] = a + b + streams->counter;
        streams->a[part] = b ^ b >> 9;
        streams->b[part] = c + (c << 3);
        streams->c[part] = (c << 21 | c >> 11) + drawn[part];
    }
    streams->counter++;
}

/* Steele's splitmix64: the next of a sequence of well mixed numbers. */
INLINE uint64_t mix(uint64_t *state) {
    uint64_t mixed = *state += 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
    return mixed ^ mixed >> 31;
}

static void seed_streams(random_streams *streams, uint64_t seed) {
    uint64_t state = seed;
    uint32_t starts[3][STREAMS];
    for (int stream = 0; stream < STREAMS; stream++) {
        const uint64_t first = mix(&state), second = mix(&state);
        starts[0][stream] = (uint32_t)first;
        starts[1][stream] = (uint32_t)(first >> 32);
        starts[2][stream] = (uint32_t)second;
    }
    memcpy(streams->a, starts[0], sizeof starts[0]);
    memcpy(streams->b, starts[1], sizeof starts[1]);
    memcpy(streams->c, starts[2], sizeof starts[2]);
    streams->counter = 1;
    bits32 drawn[STREAM_VECTORS];
    for (int round = 0; round < 12; round++) draw_bits(streams, drawn);
}

/* outputs = inputs, each with probability kept / 2^16 divided by that, and else 0: DRAWN numbers from `index` on. */
INLINE void drop_numbers(random_streams *streams, uint32_t kept, const void *inputs, void *outputs, size_t index,
                         int is_bfloat16) {
    const floats factor = broadcast(65536.0f / (float)kept);
    bits32 drawn[STREAM_VECTORS];
    draw_bits(streams, drawn);
    UNROLL for (int half = 0; half < 2; half++) {
        UNROLL for (int part = 0; part < STREAM_VECTORS; part++) {
            const size_t place = index + half * STREAMS + part * LANES;
            const ints is_kept = (ints)(half == 0 ? drawn[part] & 0xFFFF : drawn[part] >> 16) < broadcast_int((int32_t)kept);
            const floats mask = choose(is_kept, factor, (floats){0});
            store_number(outputs, place, load_number(inputs, place, is_bfloat16) * mask, is_bfloat16);
        }
    }
}

INLINE void drop_any(const void *inputs, void *outputs, size_t count, uint32_t kept, uint64_t seed, int is_bfloat16) {
    const size_t size = is_bfloat16 ? sizeof(uint16_t) : sizeof(float), whole = count / DRAWN * DRAWN;
    random_streams streams;
    seed_streams(&streams, seed);
    for (size_t index = 0; index < whole; index += DRAWN)
        drop_numbers(&streams, kept, inputs, outputs, index, is_bfloat16);
    if (whole < count) {
        float last[DRAWN] = {0}; /* an array as long as a draw */
        memcpy(last, (const char *)inputs + whole * size, (count - whole) * size);
        drop_numbers(&streams, kept, last, last, 0, is_bfloat16);
        memcpy((char *)outputs + whole * size, last, (count - whole) * size);
    }
}

/* Dropout of `count` numbers; that of their gradients is the same function with the same seed. */
static void drop(const void *inputs, void *outputs, size_t count, uint32_t kept, uint64_t seed, int is_bfloat16) {
    if (is_bfloat16)
        drop_any(inputs, outputs, count, kept, seed, 1);
    else
        drop_any(inputs, outputs, count, kept, seed, 0);
}

/* Gradients of relu(x + bias) for rows x of `width` numbers, a multiple of LANES: of x, and of the bias. */
typedef struct {
    const void *output_gradient; /* [rows, width] */
    const void *outputs;         /* [rows, width]; NULL without relu */
    void *inputs_gradient;       /* [rows, width], used with relu only: without, it would equal `output_gradient` */
    float *bias_gradient;        /* [width]: sums over the rows */
    uint64_t num_rows;
    int32_t width, is_bfloat16;
} bias_task;

/* Rows whose numbers are summed in a register before they are added to the sum over all rows. With relu it is one: the rows of
 * three arrays, often a multiple of 4 KB apart, would evict each other from the cache. */
#define BIAS_ROWS 8

/* Gradients where outputs are above 0, else 0, in bfloat16, whose bits are those of a positive integer above 0. */
INLINE void mask_halves(const void *output_gradient, const void *outputs, void *masked, size_t place) {
    halves gradient;
    short_ints output;
    memcpy(&gradient, (const uint16_t *)output_gradient + place, sizeof gradient);
    memcpy(&output, (const uint16_t *)outputs + place, sizeof output);
    gradient &= (halves)(output > (short_ints){0});
    memcpy((uint16_t *)masked + place, &gradient, sizeof gradient);
}

INLINE void differentiate_some_bias(const bias_task *task, size_t first, int rows, int is_bfloat16, int has_relu) {
    const size_t width = (size_t)task->width;
    for (size_t index = 0; index < width; index += LANES) {
        floats sum = {0};
        UNROLL for (int row = 0; row < rows; row++) {
            const size_t place = (first + row) * width + index;
            if (has_relu) {
                if (is_bfloat16)
                    mask_halves(task->output_gradient, task->outputs, task->inputs_gradient, place);
                else
                    store((float *)task->inputs_gradient + place,
                          choose(load((const float *)task->outputs + place) <= (floats){0}, (floats){0},
                                 load((const float *)task->output_gradient + place)));
            }
            sum = sum + load_number(has_relu ? task->inputs_gradient : task->output_gradient, place, is_bfloat16);
        }
        store(task->bias_gradient + index, load(task->bias_gradient + index) + sum);
    }
}

INLINE void differentiate_any_bias(const bias_task *task, int is_bfloat16, int has_relu) {
    memset(task->bias_gradient, 0, (size_t)task->width * sizeof(float));
    size_t row = 0;
    for (; !has_relu && row + BIAS_ROWS <= task->num_rows; row += BIAS_ROWS)
        differentiate_some_bias(task, row, BIAS_ROWS, is_bfloat16, has_relu);
    for (; row < task->num_rows; row++) differentiate_some_bias(task, row, 1, is_bfloat16, has_relu);
}

static void differentiate_bias(const bias_task *task) {
    if (task->is_bfloat16 && task->outputs)
        differentiate_any_bias(task, 1, 1);
    else if (task->is_bfloat16)
        differentiate_any_bias(task, 1, 0);
    else if (task->outputs)
        differentiate_any_bias(task, 0, 1);
    else
        differentiate_any_bias(task, 0, 0);
}

/* sums += numbers; `count` is a multiple of LANES. */
static void add_numbers(float *sums, const void *numbers, size_t count, int is_bfloat16) {
    if (is_bfloat16) {
        for (size_t index = 0; index < count; index += LANES)
            store(sums + index, load(sums + index) + load_number(numbers, index, 1));
    } else {
        for (size_t index = 0; index < count; index += LANES)
            store(sums + index, load(sums + index) + load_number(numbers, index, 0));
    }
}

/* Layer normalisation of rows of `width` numbers, a multiple of LANES, in bfloat16; in float32 PyTorch's is as fast. */
typedef struct {
    const void *inputs;        /* [rows, width] */
    const float *gain, *bias;  /* [width] */
    void *outputs;             /* [rows, width] */
    float *statistics;         /* [rows, 2]: of the inputs of a row, the mean, and one divided by the standard deviation */
    const void *output_gradient; /* [rows, width] */
    void *inputs_gradient;     /* [rows, width] */
    float *gain_gradient, *bias_gradient; /* [width] */
    uint64_t num_rows;
    int32_t width;
    float epsilon;
} normalization_task;

static void normalize(const normalization_task *task) {
    const size_t width = (size_t)task->width;
    for (size_t row = 0; row < task->num_rows; row++) {
        const size_t start = row * width;
        floats sum = {0}, squares = {0};
        for (size_t index = 0; index < width; index += LANES)
            sum = sum + load_number(task->inputs, start + index, 1);
        const float mean = sum_lanes(sum) / (float)width;
        for (size_t index = 0; index < width; index += LANES) {
            const floats difference = load_number(task->inputs, start + index, 1) - broadcast(mean);
            squares = multiply_add(difference, difference, squares);
        }
        const float factor = 1.0f / sqrtf(sum_lanes(squares) / (float)width + task->epsilon);
        for (size_t index = 0; index < width; index += LANES) {
            const floats input = load_number(task->inputs, start + index, 1);
            const floats normalized = (input - broadcast(mean)) * broadcast(factor);
            store_number(task->outputs, start + index,
                         multiply_add(normalized, load(task->gain + index), load(task->bias + index)), 1);
        }
        task->statistics[2 * row] = mean;
        task->statistics[2 * row + 1] = factor;
    }
}

/* With x the normalised inputs of a row and h its gradients times gain: (h - mean(h) - x mean(h x)) / deviation. */
static void differentiate_normalization(const normalization_task *task) {
    const size_t width = (size_t)task->width;
    float *const of_gain = task->gain_gradient, *const of_bias = task->bias_gradient;
    memset(of_gain, 0, width * sizeof(float));
    memset(of_bias, 0, width * sizeof(float));
    for (size_t row = 0; row < task->num_rows; row++) {
        const size_t start = row * width;
        const floats mean = broadcast(task->statistics[2 * row]), factor = broadcast(task->statistics[2 * row + 1]);
        floats sum = {0}, products = {0};
        for (size_t index = 0; index < width; index += LANES) {
            const floats output_gradient = load_number(task->output_gradient, start + index, 1);
            const floats normalized = (load_number(task->inputs, start + index, 1) - mean) * factor;
            const floats scaled = output_gradient * load(task->gain + index);
            sum = sum + scaled;
            products = multiply_add(scaled, normalized, products);
            store(of_gain + index, multiply_add(output_gradient, normalized, load(of_gain + index)));
            store(of_bias + index, output_gradient + load(of_bias + index));
        }
        const floats of_sum = broadcast(sum_lanes(sum) / (float)width);
        const floats of_products = broadcast(sum_lanes(products) / (float)width);
        for (size_t index = 0; index < width; index += LANES) {
            const floats output_gradient = load_number(task->output_gradient, start + index, 1);
            const floats normalized = (load_number(task->inputs, start + index, 1) - mean) * factor;
            const floats centred = output_gradient * load(task->gain + index) - of_sum - normalized * of_products;
            store_number(task->inputs_gradient, start + index, centred * factor, 1);
        }
    }
}

/* An array [sentences, heads, positions, width] of float32 or bfloat16; numbers of one position stand side by side. */
typedef struct {
    void *numbers;
    int64_t sentence_stride, head_stride, stride; /* in numbers */
} head_array;

/* Attention of all heads of a batch; widths are multiples of LANES. The backward pass needs the weights of the forward. */
typedef struct {
    head_array queries, keys, values, attended;
    const uint8_t *mask; /* [sentences, queries, keys]: 1 where a query attends to a key, at least once for each query */
    int64_t mask_sentence_stride, mask_query_stride; /* either may be 0 */
    void *weights;       /* [sentences, heads, queries, keys rounded up to KEY_ALIGNMENT] */
    head_array output_gradient; /* that of `attended` */
    head_array queries_gradient, keys_gradient, values_gradient;
    int32_t num_sentences, num_heads, num_queries, num_keys, d_k, d_v, is_bfloat16;
    float scale;
} attention_task;

#define KEY_ALIGNMENT 16

/* Numbers of float32 that are enough for the workspace of `attend_heads` and of `differentiate_heads`. */
static size_t count_attention_workspace(const attention_task *task) {
    const size_t keys = (size_t)round_up(task->num_keys, KEY_ALIGNMENT), queries = (size_t)task->num_queries;
    const size_t width = (size_t)(task->d_k > task->d_v ? task->d_k : task->d_v);
    return 4 * (keys + queries) * width + 3 * queries * keys;
}

/* A head's rows as float32, copied to `*buffer`, which moves behind them: where they are, they are often a multiple of 1 KB
 * apart, and would evict each other from the cache. */
INLINE const float *read_rows(head_array array, int sentence, int head, int num_rows, int width, int is_bfloat16,
                              float **buffer, size_t *stride) {
    const size_t start = (size_t)(sentence * array.sentence_stride + head * array.head_stride);
    float *const rows = *buffer;
    for (int row = 0; row < num_rows; row++) {
        for (int index = 0; index < width; index += LANES)
            store(rows + row * width + index,
                  load_number(array.numbers, start + (size_t)row * (size_t)array.stride + (size_t)index, is_bfloat16));
    }
    *buffer += num_rows * width;
    *stride = (size_t)width;
    return rows;
}

/* A head's rows, written from float32. */
INLINE void write_rows(head_array array, int sentence, int head, int num_rows, int width, int is_bfloat16,
                       const float *rows) {
    const size_t start = (size_t)(sentence * array.sentence_stride + head * array.head_stride);
    for (int row = 0; row < num_rows; row++) {
        for (int index = 0; index < width; index += LANES)
            store_number(array.numbers, start + (size_t)row * (size_t)array.stride + (size_t)index,
                         load(rows + row * width + index), is_bfloat16);
    }
}

/* The mask of a sentence as lanes, [queries or 1, padded keys]; returns the numbers from one query's to the next. */
INLINE size_t expand_mask(const attention_task *task, int sentence, int padded, int32_t *lanes) {
    const int num_rows = task->mask_query_stride == 0 ? 1 : task->num_queries;
    for (int query = 0; query < num_rows; query++) {
        const uint8_t *row = task->mask + sentence * task->mask_sentence_stride + query * task->mask_query_stride;
        for (int key = 0; key < padded; key++) lanes[query * padded + key] = key < task->num_keys && row[key] ? -1 : 0;
    }
    return num_rows == 1 ? 0 : (size_t)padded;
}

INLINE void attend_any(const attention_task *task, float *workspace, int is_bfloat16) {
    const int num_queries = task->num_queries, num_keys = task->num_keys, d_k = task->d_k, d_v = task->d_v;
    const int padded = round_up(num_keys, KEY_ALIGNMENT);
    for (int sentence = 0; sentence < task->num_sentences; sentence++) {
        float *next = workspace;
        int32_t *const mask = (int32_t *)next;
        const size_t mask_stride = expand_mask(task, sentence, padded, mask);
        next += (size_t)num_queries * padded;
        for (int head = 0; head < task->num_heads; head++) {
            float *buffer = next;
            size_t query_stride, key_stride, value_stride;
            const float *queries =
                read_rows(task->queries, sentence, head, num_queries, d_k, is_bfloat16, &buffer, &query_stride);
            const float *keys = read_rows(task->keys, sentence, head, num_keys, d_k, is_bfloat16, &buffer, &key_stride);
            const float *values =
                read_rows(task->values, sentence, head, num_keys, d_v, is_bfloat16, &buffer, &value_stride);
            float *const packed = buffer, *const scores = packed + count_packed_keys(num_keys, d_k);
            float *const attended = scores + (size_t)num_queries * padded;
            pack_keys(keys, key_stride, num_keys, d_k, packed);
            multiply_matrix(queries, query_stride, num_queries, (matrix){packed, PANEL, LANES, (size_t)PANEL * d_k}, d_k,
                            scores, (size_t)padded, round_up(num_keys, LANES));
            for (int query = 0; query < num_queries; query++) {
                for (int key = round_up(num_keys, LANES); key < padded; key++) scores[query * padded + key] = 0.0f;
            }
            const size_t start = ((size_t)sentence * task->num_heads + head) * (size_t)num_queries * padded;
            masked_softmax(scores, (size_t)padded, num_queries, padded, mask, mask_stride, task->scale);
            for (int index = 0; index < num_queries * padded; index += LANES)
                store_number(task->weights, start + (size_t)index, load(scores + index), is_bfloat16);
            multiply_matrix(scores, (size_t)padded, num_queries, (matrix){values, value_stride, value_stride, PANEL},
                            num_keys, attended, (size_t)d_v, d_v);
            write_rows(task->attended, sentence, head, num_queries, d_v, is_bfloat16, attended);
        }
    }
}

/* With g the gradients of the weights w of a query, those of its scores are w (g - w . g), times the scale. */
INLINE void differentiate_attention_any(const attention_task *task, float *workspace, int is_bfloat16) {
    const int num_queries = task->num_queries, num_keys = task->num_keys, d_k = task->d_k, d_v = task->d_v;
    const int padded = round_up(num_keys, KEY_ALIGNMENT), used = round_up(num_keys, LANES);
    for (int sentence = 0; sentence < task->num_sentences; sentence++) {
        for (int head = 0; head < task->num_heads; head++) {
            float *buffer = workspace;
            size_t query_stride, key_stride, value_stride, output_gradient_stride, weight_stride;
            const float *queries =
                read_rows(task->queries, sentence, head, num_queries, d_k, is_bfloat16, &buffer, &query_stride);
            const float *keys = read_rows(task->keys, sentence, head, num_keys, d_k, is_bfloat16, &buffer, &key_stride);
            const float *values =
                read_rows(task->values, sentence, head, num_keys, d_v, is_bfloat16, &buffer, &value_stride);
            const float *output_gradient = read_rows(task->output_gradient, sentence, head, num_queries, d_v,
                                                     is_bfloat16, &buffer, &output_gradient_stride);
            const head_array saved = {task->weights, (int64_t)task->num_heads * num_queries * padded,
                                      (int64_t)num_queries * padded, padded};
            const float *weights =
                read_rows(saved, sentence, head, num_queries, padded, is_bfloat16, &buffer, &weight_stride);
            float *const packed = buffer, *const scores = packed + count_packed_keys(num_keys, d_v);
            float *const gradient = scores + (size_t)num_queries * padded;
            /* values: weights transposed times output_gradient */
            const matrix of_outputs = {output_gradient, output_gradient_stride, output_gradient_stride, PANEL};
            multiply_any_matrix(weights, 1, weight_stride, num_keys, of_outputs, num_queries, gradient, (size_t)d_v, d_v);
            write_rows(task->values_gradient, sentence, head, num_keys, d_v, is_bfloat16, gradient);
            /* weights, and from them scores */
            pack_keys(values, value_stride, num_keys, d_v, packed);
            multiply_matrix(output_gradient, output_gradient_stride, num_queries,
                            (matrix){packed, PANEL, LANES, (size_t)PANEL * d_v}, d_v, scores, (size_t)padded, used);
            for (int query = 0; query < num_queries; query++) {
                float *const row = scores + (size_t)query * padded;
                const float *const weight = weights + (size_t)query * weight_stride;
                floats sum = {0};
                for (int key = 0; key < used; key += LANES) sum = multiply_add(load(row + key), load(weight + key), sum);
                const floats mean = broadcast(sum_lanes(sum)), scale = broadcast(task->scale);
                for (int key = 0; key < used; key += LANES)
                    store(row + key, (load(row + key) - mean) * load(weight + key) * scale);
            }
            /* queries: scores times keys; keys: scores transposed times queries */
            multiply_matrix(scores, (size_t)padded, num_queries, (matrix){keys, key_stride, key_stride, PANEL}, num_keys,
                            gradient, (size_t)d_k, d_k);
            write_rows(task->queries_gradient, sentence, head, num_queries, d_k, is_bfloat16, gradient);
            multiply_any_matrix(scores, 1, (size_t)padded, num_keys, (matrix){queries, query_stride, query_stride, PANEL},
                                num_queries, gradient, (size_t)d_k, d_k);
            write_rows(task->keys_gradient, sentence, head, num_keys, d_k, is_bfloat16, gradient);
        }
    }
}

static void attend_heads(const attention_task *task, float *workspace) {
    if (task->is_bfloat16)
        attend_any(task, workspace, 1);
    else
        attend_any(task, workspace, 0);
}

static void differentiate_heads(const attention_task *task, float *workspace) {
    if (task->is_bfloat16)
        differentiate_attention_any(task, workspace, 1);
    else
        differentiate_attention_any(task, workspace, 0);
}

/* The softmax of rows of logits [rows, width], written over them, and of each row what the loss needs. */
typedef struct {
    void *logits;           /* float32 or bfloat16; a token whose logit is -inf cannot be predicted */
    const int64_t *targets; /* [rows], each at least 0 and below width */
    float *log_totals;      /* [rows]: the logarithm of the sum of all e^logit */
    float *target_logits;   /* [rows] */
    float *greatest;        /* [rows] */
    uint64_t num_rows;
    int32_t width, is_bfloat16;
} softmax_task;

/* A number of an array of float32 or bfloat16. */
INLINE float read_number(const void *from, size_t index, int is_bfloat16) {
    if (!is_bfloat16) return ((const float *)from)[index];
    const uint32_t bits = (uint32_t)((const uint16_t *)from)[index] << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* `row` has room for round_up(width, LANES) numbers. */
INLINE void softmax_any(const softmax_task *task, float *row, int is_bfloat16) {
    const size_t width = (size_t)task->width, whole = width / LANES * LANES, padded = whole + (whole < width ? LANES : 0);
    const size_t size = is_bfloat16 ? sizeof(uint16_t) : sizeof(float);
    for (size_t number = 0; number < task->num_rows; number++) {
        char *const logits = (char *)task->logits + number * width * size;
        task->target_logits[number] = read_number(logits, (size_t)task->targets[number], is_bfloat16);
        floats greatest = broadcast(-INFINITY), sum = {0};
        for (size_t index = 0; index < whole; index += LANES) {
            const floats values = load_number(logits, index, is_bfloat16);
            store(row + index, values);
            greatest = maximum(values, greatest);
        }
        if (whole < width) {
            for (size_t index = whole; index < padded; index++)
                row[index] = index < width ? read_number(logits, index, is_bfloat16) : -INFINITY;
            greatest = maximum(load(row + whole), greatest);
        }
        const float most = greatest_lane(greatest);
        for (size_t index = 0; index < padded; index += LANES) {
            const floats difference = load(row + index) - broadcast(most);
            const floats power = choose(difference < broadcast(-86.0f), (floats){0}, exponential(difference));
            store(row + index, power);
            sum = sum + power;
        }
        const float total = sum_lanes(sum);
        task->greatest[number] = most;
        task->log_totals[number] = most + logf(total);
        const floats reciprocal = broadcast(1.0f / total);
        for (size_t index = 0; index < whole; index += LANES)
            store_number(logits, index, load(row + index) * reciprocal, is_bfloat16);
        if (whole < width) {
            float last[LANES];
            store_number(last, 0, load(row + whole) * reciprocal, is_bfloat16);
            memcpy(logits + whole * size, last, (width - whole) * size);
        }
    }
}

static void softmax_rows(const softmax_task *task, float *workspace) {
    if (task->is_bfloat16)
        softmax_any(task, workspace, 1);
    else
        softmax_any(task, workspace, 0);
}

#endif
