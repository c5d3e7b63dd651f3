/* The Transformer: the encoder for a batch of sentences, and one step of the decoder for all hypotheses of a batch.
 *
 * Rows are tokens, or hypotheses. Every row stands by itself in linear layers and normalisations, and attends to nothing
 * but its own sentence or its own ancestors, without padding: what a sentence gets does not depend on its batch.
 *
 * Widths in memory are rounded up to a multiple of ROW_ALIGNMENT, those of a head (d_k, d_v) to a multiple of 16; what
 * fills up is zero everywhere, as its weights are zero.
 */
#ifndef TRANSDUCE_TRANSFORMER_H
#define TRANSDUCE_TRANSFORMER_H

#include "attention.h"
#include "continuations.h"

/* Rows that go through all layers together: what they need stays in the processor's second cache. Products by AMX are so fast
 * that they would wait for what does not fit; 128 rows were the fastest of 96, 128 and 192. */
#if defined(AMX)
#define GROUP_ROWS 128
#else
#define GROUP_ROWS 192
#endif

/* Bytes of logits that are computed before they are looked at, or more where these are fewer rows than MIN_LOGIT_ROWS: the
 * weights of the projection, in float32 four times as many bytes as in int8, are read anew for each part of the rows. */
#define LOGIT_BYTES (1 << 20)
#define MIN_LOGIT_ROWS(is_int8) ((is_int8) ? 48 : 96)

/* Queries whose attention scores are computed together. */
#define QUERIES 16

enum { DONE = 0, WORKSPACE_TOO_SMALL = 1, UNKNOWN_ID = 2, NOT_A_NUMBER = 3, UNFINISHED = 4 };

typedef struct {
    linear_layer projection; /* self-attention: queries, keys and values; cross-attention: queries alone */
    linear_layer memory;     /* cross-attention: keys and values of the memory; else unused */
    linear_layer output;
    normalization norm;
} attention_layer;

typedef struct {
    attention_layer self_attention;
    attention_layer cross_attention; /* of the decoder; else unused */
    linear_layer inner, outer;
    normalization norm; /* of the feed-forward network */
} transformer_layer;

typedef struct {
    int32_t d_model, model_width; /* the second is rounded up, as all that are called width */
    int32_t inner_width;
    int32_t num_heads, d_k, d_v, query_width, value_width;
    int32_t vocabulary, logit_width;
    int32_t activation, is_pre_norm;
    int32_t num_encoder_layers, num_decoder_layers;
    float score_scale, embedding_scale;
    const float *source_embedding, *target_embedding; /* [vocabulary, d_model] */
    const transformer_layer *encoder, *decoder;
    normalization encoder_norm, decoder_norm; /* of the output of a stack; without gain: there is none */
    linear_layer projection;                  /* to logits; -inf for what only fills up */
} transformer;

/* Memory of a call, given by the caller, and handed out piece by piece. */
typedef struct {
    char *next;
    size_t left;
    int is_exhausted;
} arena;

static void *take(arena *workspace, size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    if (bytes > workspace->left) {
        workspace->is_exhausted = 1;
        return NULL;
    }
    void *found = workspace->next;
    workspace->next += bytes;
    workspace->left -= bytes;
    return found;
}

static float *take_floats(arena *workspace, size_t count) { return take(workspace, count * sizeof(float)); }

static size_t greater(size_t one, size_t other) { return one > other ? one : other; }

/* Buffers for up to so many rows. */
typedef struct {
    float *x, *normalized; /* [rows, model_width] */
    float *wide;           /* [rows, the widest projection or inner layer] */
    float *attended;       /* [rows, value_width] */
    float *scores, *keys;  /* attention scores of QUERIES queries, packed keys of a head */
    float *logits;         /* [logit_rows, logit_width] */
    float *totals;         /* [continuations of a sentence] */
    quantized_rows quantized;
    size_t logit_rows;
} buffers;

static size_t widest_row(const transformer *model) {
    return greater((size_t)(2 * model->query_width + model->value_width), (size_t)model->inner_width);
}

static size_t count_logit_rows(const transformer *model) {
    return greater(LOGIT_BYTES / sizeof(float) / (size_t)model->logit_width / 8 * 8,
                   MIN_LOGIT_ROWS(model->projection.scales != NULL));
}

/* Take all buffers out of an arena; with an arena of any size and no memory, it is counted how large it has to be. */
static buffers take_buffers(const transformer *model, size_t rows, size_t keys, size_t count, arena *workspace) {
    const size_t wide = widest_row(model), padded_keys = (keys + ROW_ALIGNMENT) / ROW_ALIGNMENT * ROW_ALIGNMENT;
    buffers found;
    found.logit_rows = count == 0 ? 0 : greater(1, rows < count_logit_rows(model) ? rows : count_logit_rows(model));
    found.x = take_floats(workspace, rows * (size_t)model->model_width);
    found.normalized = take_floats(workspace, rows * (size_t)model->model_width);
    found.wide = take_floats(workspace, rows * wide);
    found.attended = take_floats(workspace, rows * (size_t)model->value_width);
    found.scores = take_floats(workspace, QUERIES * padded_keys);
    found.keys = take_floats(workspace, padded_keys * (size_t)model->d_k);
    found.logits = take_floats(workspace, found.logit_rows * (size_t)model->logit_width);
    found.totals = take_floats(workspace, count);
    const size_t widest = greater(wide, greater((size_t)model->model_width, (size_t)model->value_width));
    found.quantized.rows = take(workspace, rows * quantized_stride(widest) * sizeof(quantized));
    found.quantized.scales = take_floats(workspace, rows);
    return found;
}

/* Where the sub-layers of a group of rows read and write. */
typedef struct {
    const transformer *model;
    buffers buffer;
    size_t num_rows;
} row_group;

/* The input of a sub-layer: x itself, or with pre-norm, normalised. */
static const float *begin_sublayer(const row_group *group, const normalization *norm) {
    const transformer *model = group->model;
    if (!model->is_pre_norm) return group->buffer.x;
    normalize_rows(norm, group->buffer.x, group->num_rows, model->d_model, (size_t)model->model_width,
                   group->buffer.normalized);
    return group->buffer.normalized;
}

/* x = x + inputs W^T + b, the last product of a sub-layer; with post-norm, normalised. */
static void end_sublayer(const row_group *group, const linear_layer *layer, const float *inputs, size_t stride,
                         const normalization *norm) {
    const size_t width = (size_t)group->model->model_width;
    float *x = group->buffer.x;
    apply_linear(layer, inputs, stride, group->num_rows, x, width, x, NO_ACTIVATION, group->buffer.quantized);
    if (!group->model->is_pre_norm) normalize_rows(norm, x, group->num_rows, group->model->d_model, width, x);
}

/* A product with all rows of the group, into `wide`, whose rows have the width of the layer's outputs. */
static void project(const row_group *group, const linear_layer *layer, const float *inputs, int activation) {
    apply_linear(layer, inputs, (size_t)group->model->model_width, group->num_rows, group->buffer.wide,
                 (size_t)layer->outputs,
                 NULL, activation, group->buffer.quantized);
}

static void feed_forward(const row_group *group, const transformer_layer *layer) {
    const float *inputs = begin_sublayer(group, &layer->norm);
    project(group, &layer->inner, inputs, group->model->activation);
    end_sublayer(group, &layer->outer, group->buffer.wide, (size_t)layer->inner.outputs, &layer->norm);
}

/* to = scale * embedding + position, with zeros up to the rounded width. */
static void embed(const transformer *model, const float *embedding, int32_t id, const float *position, float *to) {
    const float *from = embedding + (size_t)id * (size_t)model->d_model;
    for (int index = 0; index < model->d_model; index++) to[index] = from[index] * model->embedding_scale + position[index];
    for (int index = model->d_model; index < model->model_width; index++) to[index] = 0.0f;
}

static void clear_fill(const row_group *group) {
    memset(group->buffer.attended, 0, group->num_rows * (size_t)group->model->value_width * sizeof(float));
}

/* A batch of sources without padding, and what the decoder needs of them. */
typedef struct {
    int32_t num_sentences;
    const int32_t *ids;          /* [tokens]: of one sentence after the other */
    const int32_t *starts;       /* [sentences + 1]: the first token of each, and the number of all */
    const float *position_table; /* [longest, d_model] */
    const int32_t *positions;    /* [tokens]: the position of each, a row of the table */
    const int64_t *key_starts;   /* [sentences + 1]: where the packed keys of each begin in a layer, and their number */
    float *memory_keys;          /* [decoder layers, keys]: of each sentence [heads, packed keys] */
    float *memory_values;        /* [decoder layers, tokens, value_width] */
    void *workspace;
    uint64_t workspace_bytes;
} encoder_task;

/* Self-attention of the sentences `first` to `last` - 1, whose queries, keys and values stand in `wide`. */
static void attend_to_source(const row_group *group, const encoder_task *task, int first, int last) {
    const transformer *model = group->model;
    const buffers *buffer = &group->buffer;
    const size_t stride = (size_t)(2 * model->query_width + model->value_width);
    for (int sentence = first; sentence < last; sentence++) {
        const int length = task->starts[sentence + 1] - task->starts[sentence];
        const size_t start = (size_t)(task->starts[sentence] - task->starts[first]);
        for (int head = 0; head < model->num_heads; head++) {
            const float *queries = buffer->wide + start * stride + head * model->d_k;
            const float *values = buffer->wide + start * stride + 2 * model->query_width + head * model->d_v;
            float *attended = buffer->attended + start * (size_t)model->value_width + head * model->d_v;
            pack_keys(queries + model->query_width, stride, length, model->d_k, buffer->keys);
            for (int query = 0; query < length; query += QUERIES)
                attend(queries + (size_t)query * stride, stride, length - query < QUERIES ? length - query : QUERIES,
                       buffer->keys, values, stride, length, model->d_k, model->d_v, model->score_scale, buffer->scores,
                       attended + (size_t)query * (size_t)model->value_width, (size_t)model->value_width);
        }
    }
}

/* Keys and values of the memory of some sentences, for all layers of the decoder. */
static void read_memory(const row_group *group, const encoder_task *task, int first, int last) {
    const transformer *model = group->model;
    const int64_t num_keys = task->key_starts[task->num_sentences], num_tokens = task->starts[task->num_sentences];
    const size_t width = (size_t)model->value_width, stride = (size_t)model->query_width + width;
    for (int layer = 0; layer < model->num_decoder_layers; layer++) {
        project(group, &model->decoder[layer].cross_attention.memory, group->buffer.x, NO_ACTIVATION);
        for (int sentence = first; sentence < last; sentence++) {
            const int length = task->starts[sentence + 1] - task->starts[sentence];
            const float *from = group->buffer.wide + (size_t)(task->starts[sentence] - task->starts[first]) * stride;
            float *keys = task->memory_keys + layer * num_keys + task->key_starts[sentence];
            for (int head = 0; head < model->num_heads; head++)
                pack_keys(from + head * model->d_k, stride, length, model->d_k,
                          keys + (size_t)head * count_packed_keys(length, model->d_k));
            float *values = task->memory_values + ((size_t)layer * (size_t)num_tokens + (size_t)task->starts[sentence]) * width;
            for (int token = 0; token < length; token++)
                memcpy(values + (size_t)token * width, from + (size_t)token * stride + model->query_width,
                       width * sizeof(float));
        }
    }
}

/* The sentence behind the last that goes with `first`: together they have up to GROUP_ROWS tokens, or they are one. */
static int end_of_group(const encoder_task *task, int first) {
    int last = first + 1;
    while (last < task->num_sentences && task->starts[last + 1] - task->starts[first] <= GROUP_ROWS) last++;
    return last;
}

static int run_encoder(const transformer *model, const encoder_task *task) {
    size_t max_rows = 0, max_keys = 0;
    for (int first = 0, last; first < task->num_sentences; first = last) {
        last = end_of_group(task, first);
        max_rows = greater(max_rows, (size_t)(task->starts[last] - task->starts[first]));
    }
    for (int sentence = 0; sentence < task->num_sentences; sentence++)
        max_keys = greater(max_keys, (size_t)(task->starts[sentence + 1] - task->starts[sentence]));
    arena workspace = {task->workspace, task->workspace_bytes, 0};
    row_group group = {model, take_buffers(model, max_rows, max_keys, 0, &workspace), 0};
    if (workspace.is_exhausted) return WORKSPACE_TOO_SMALL;
    for (int first = 0, last; first < task->num_sentences; first = last) {
        last = end_of_group(task, first);
        const int start = task->starts[first];
        group.num_rows = (size_t)(task->starts[last] - start);
        clear_fill(&group);
        for (size_t row = 0; row < group.num_rows; row++) {
            const int32_t id = task->ids[(size_t)start + row];
            if (id < 0 || id >= model->vocabulary) return UNKNOWN_ID;
            const float *position = task->position_table + (size_t)task->positions[(size_t)start + row] * model->d_model;
            embed(model, model->source_embedding, id, position,
                  group.buffer.x + row * (size_t)model->model_width);
        }
        for (int number = 0; number < model->num_encoder_layers; number++) {
            const transformer_layer *layer = model->encoder + number;
            const attention_layer *attention = &layer->self_attention;
            project(&group, &attention->projection, begin_sublayer(&group, &attention->norm), NO_ACTIVATION);
            attend_to_source(&group, task, first, last);
            end_sublayer(&group, &attention->output, group.buffer.attended, (size_t)model->value_width, &attention->norm);
            feed_forward(&group, layer);
        }
        if (model->encoder_norm.gain != NULL)
            normalize_rows(&model->encoder_norm, group.buffer.x, group.num_rows, model->d_model, (size_t)model->model_width,
                           group.buffer.x);
        read_memory(&group, task, first, last);
    }
    return DONE;
}

/* One step for `width` hypotheses of each sentence, and the state that it reads and extends.
 *
 * Every hypothesis of every step has a slot in a cache of keys and values; nothing in there is ever moved. Row r of
 * `ancestors` names the slots of the tokens of hypothesis r so far, first token first. The step writes `next_ancestors`: those
 * of each row's parent, and the row's own slot, which is `used` + r.
 */
typedef struct {
    int32_t num_sentences, width, length; /* length: tokens of each hypothesis before this one */
    const int32_t *last_ids;              /* [rows] */
    const int32_t *parents;               /* [rows]: rows of `ancestors` */
    const float *position;                /* [d_model]: of the last ids */
    const int32_t *source_starts, *source_lengths; /* [sentences] */
    const int64_t *key_starts;                     /* [sentences] */
    const float *memory_keys, *memory_values;
    int64_t num_memory_keys, num_memory_tokens; /* of a layer */
    float *past_keys;                           /* [decoder layers, slots, query_width] */
    float *past_values;                         /* [decoder layers, slots, value_width] */
    int64_t num_slots, used;
    int32_t *ancestors, *next_ancestors; /* [rows, ancestor_stride] */
    int32_t ancestor_stride;
    int32_t max_keys; /* the length of the longest source, or of the hypotheses, whichever is more */
    void *workspace;
    uint64_t workspace_bytes;
} decoder_task;

/* What may come next in a sentence. */
enum { ANYTHING = 0, NO_END = 1, END_ALONE = 2 };

/* The token of a slot. */
typedef struct {
    int32_t id, previous; /* the slot of the token before; of the start symbol, which nothing goes back to, any number */
    float score;          /* log-probability */
} slot_token;

/* The best continuations that are asked for, and where they are written. */
typedef struct {
    int32_t count, end_id;
    const float *sums;     /* [rows]: of the log-probabilities of each hypothesis so far; -inf: it does not go on */
    const uint8_t *limits; /* [sentences]: ANYTHING, NO_END or END_ALONE */
    float *scores;         /* [sentences, count]; -inf fills up */
    int32_t *parents, *ids; /* [sentences, count] */
    int32_t no_repeat_ngram;  /* the length of n-grams that a hypothesis may not have twice; 0: any */
    const slot_token *tokens; /* [slots] */
} best_task;

/* Self-attention of the hypotheses `first` to `first` + rows - 1, after their keys and values went into the cache. */
static void attend_to_past(const row_group *group, const decoder_task *task, int layer, size_t first) {
    const transformer *model = group->model;
    const size_t key_width = (size_t)model->query_width, value_width = (size_t)model->value_width;
    const size_t stride = 2 * key_width + value_width;
    float *keys = task->past_keys + (size_t)layer * (size_t)task->num_slots * key_width;
    float *values = task->past_values + (size_t)layer * (size_t)task->num_slots * value_width;
    for (size_t row = 0; row < group->num_rows; row++) {
        const float *projected = group->buffer.wide + row * stride;
        const size_t slot = (size_t)task->used + first + row;
        memcpy(keys + slot * key_width, projected + key_width, key_width * sizeof(float));
        memcpy(values + slot * value_width, projected + 2 * key_width, value_width * sizeof(float));
        const int32_t *slots = task->next_ancestors + (first + row) * (size_t)task->ancestor_stride;
        attend_to_slots(projected, keys, key_width, values, value_width, slots, task->length + 1, model->num_heads,
                        model->d_k, model->d_v, model->score_scale, group->buffer.scores,
                        group->buffer.attended + row * value_width);
    }
}

/* Cross-attention of the hypotheses of some sentences, whose queries stand in `wide`, to the memory. */
static void attend_to_memory(const row_group *group, const decoder_task *task, int layer, int first, int last) {
    const transformer *model = group->model;
    const size_t query_width = (size_t)model->query_width, value_width = (size_t)model->value_width;
    const float *keys = task->memory_keys + (size_t)layer * (size_t)task->num_memory_keys;
    const float *values = task->memory_values + (size_t)layer * (size_t)task->num_memory_tokens * value_width;
    for (int sentence = first; sentence < last; sentence++) {
        const int length = task->source_lengths[sentence];
        const size_t row = (size_t)(sentence - first) * (size_t)task->width, head_keys = count_packed_keys(length, model->d_k);
        for (int head = 0; head < model->num_heads; head++)
            for (int query = 0; query < task->width; query += QUERIES)
                attend(group->buffer.wide + (row + (size_t)query) * query_width + head * model->d_k, query_width,
                       task->width - query < QUERIES ? task->width - query : QUERIES,
                       keys + task->key_starts[sentence] + (size_t)head * head_keys,
                       values + (size_t)task->source_starts[sentence] * value_width + head * model->d_v, value_width, length,
                       model->d_k, model->d_v, model->score_scale, group->buffer.scores,
                       group->buffer.attended + (row + (size_t)query) * value_width + head * model->d_v, value_width);
    }
}

/* The layers of the decoder for the hypotheses of the sentences `first` to `last` - 1; leaves their outputs in x. */
static int run_decoder_layers(row_group *group, const decoder_task *task, int first, int last) {
    const transformer *model = group->model;
    const size_t first_row = (size_t)first * (size_t)task->width;
    group->num_rows = (size_t)(last - first) * (size_t)task->width;
    clear_fill(group);
    for (size_t row = 0; row < group->num_rows; row++) {
        const int32_t id = task->last_ids[first_row + row];
        if (id < 0 || id >= model->vocabulary) return UNKNOWN_ID;
        embed(model, model->target_embedding, id, task->position, group->buffer.x + row * (size_t)model->model_width);
        int32_t *slots = task->next_ancestors + (first_row + row) * (size_t)task->ancestor_stride;
        const int32_t *before = task->ancestors + (size_t)task->parents[first_row + row] * (size_t)task->ancestor_stride;
        memcpy(slots, before, (size_t)task->length * sizeof(int32_t));
        slots[task->length] = (int32_t)((size_t)task->used + first_row + row);
    }
    for (int number = 0; number < model->num_decoder_layers; number++) {
        const transformer_layer *layer = model->decoder + number;
        const attention_layer *self_attention = &layer->self_attention, *cross_attention = &layer->cross_attention;
        const size_t value_width = (size_t)model->value_width;
        project(group, &self_attention->projection, begin_sublayer(group, &self_attention->norm), NO_ACTIVATION);
        attend_to_past(group, task, number, first_row);
        end_sublayer(group, &self_attention->output, group->buffer.attended, value_width, &self_attention->norm);
        project(group, &cross_attention->projection, begin_sublayer(group, &cross_attention->norm), NO_ACTIVATION);
        attend_to_memory(group, task, number, first, last);
        end_sublayer(group, &cross_attention->output, group->buffer.attended, value_width, &cross_attention->norm);
        feed_forward(group, layer);
    }
    if (model->decoder_norm.gain != NULL)
        normalize_rows(&model->decoder_norm, group->buffer.x, group->num_rows, model->d_model, (size_t)model->model_width,
                       group->buffer.x);
    return DONE;
}

/* Where a hypothesis ends with the first n - 1 tokens of an n-gram that it has, the logit of the last one becomes -inf.
 * `slots` are those of its `length` tokens, after that of the start symbol. As `LogitsProcessor.find_repeating_tokens`. */
static void forbid_repetitions(const best_task *best, const int32_t *slots, int length, float *logits) {
    const int n = best->no_repeat_ngram;
    const slot_token *tokens = best->tokens;
    if (n == 0) return;
    const int32_t *end = slots + length - n + 2; /* of the last n - 1 tokens */
    for (int place = 1; place <= length - n + 1; place++) {
        int same = 0;
        while (same < n - 1 && tokens[slots[place + same]].id == tokens[end[same]].id) same++;
        if (same == n - 1) logits[tokens[slots[place + n - 1]].id] = -INFINITY;
    }
}

/* Take a row of logits into the list of the best continuations of its sentence. */
static void find_best_of_row(const transformer *model, const best_task *best, best_list *list, int limit, float *logits,
                             row_normalizer normalizer, float so_far, int32_t parent) {
    if (so_far == -INFINITY) return;
    if (limit == END_ALONE) {
        const float score = (logits[best->end_id] - normalizer.greatest) - normalizer.log_sum;
        insert_best(list, so_far + score, score, parent, best->end_id);
        return;
    }
    if (limit == NO_END) logits[best->end_id] = -INFINITY;
    insert_row(list, logits, model->logit_width, normalizer, so_far, parent);
}

/* From the outputs of the layers, in x, to log-probabilities or to the best continuations of each sentence. */
static void predict(const row_group *group, const decoder_task *task, int first, float *log_probabilities,
                    const best_task *best) {
    const transformer *model = group->model;
    const size_t first_row = (size_t)first * (size_t)task->width, width = (size_t)model->logit_width;
    for (size_t done = 0; done < group->num_rows; done += group->buffer.logit_rows) {
        const size_t left = group->num_rows - done, count = left < group->buffer.logit_rows ? left : group->buffer.logit_rows;
        apply_linear(&model->projection, group->buffer.x + done * (size_t)model->model_width, (size_t)model->model_width,
                     count, group->buffer.logits, width, NULL, NO_ACTIVATION, group->buffer.quantized);
        for (size_t index = 0; index < count; index++) {
            float *logits = group->buffer.logits + index * width;
            const size_t row = first_row + done + index;
            const row_normalizer normalizer = normalize_logits(logits, model->logit_width);
            if (best == NULL) {
                write_log_probabilities(logits, model->vocabulary, normalizer,
                                        log_probabilities + row * (size_t)model->vocabulary);
                continue;
            }
            const size_t sentence = row / (size_t)task->width, parent = row % (size_t)task->width;
            const size_t offset = sentence * (size_t)best->count;
            best_list list = {group->buffer.totals, best->scores + offset, best->parents + offset, best->ids + offset,
                              best->count};
            if (parent == 0) clear_best(&list);
            forbid_repetitions(best, task->next_ancestors + row * (size_t)task->ancestor_stride, task->length, logits);
            find_best_of_row(model, best, &list, best->limits[sentence], logits, normalizer, best->sums[row],
                             (int32_t)parent);
        }
    }
}

/* Sentences whose hypotheses go through the layers together; where they have no hypotheses, any number. */
static int sentences_of_group(const decoder_task *task) {
    return task->width < 1 || task->width >= GROUP_ROWS ? 1 : GROUP_ROWS / task->width;
}

/* One step: log-probabilities [rows, vocabulary], or where `best` is given, the best continuations. */
static int run_decoder(const transformer *model, const decoder_task *task, float *log_probabilities,
                       const best_task *best) {
    const int together = sentences_of_group(task);
    const int most = together < task->num_sentences ? together : task->num_sentences;
    arena workspace = {task->workspace, task->workspace_bytes, 0};
    row_group group = {model, take_buffers(model, (size_t)most * (size_t)task->width, (size_t)task->max_keys,
                                      best == NULL ? 1 : (size_t)best->count, &workspace), 0};
    if (workspace.is_exhausted) return WORKSPACE_TOO_SMALL;
    for (int first = 0; first < task->num_sentences; first += together) {
        const int last = first + together < task->num_sentences ? first + together : task->num_sentences;
        const int problem = run_decoder_layers(&group, task, first, last);
        if (problem != DONE) return problem;
        predict(&group, task, first, log_probabilities, best);
    }
    return DONE;
}

#endif
