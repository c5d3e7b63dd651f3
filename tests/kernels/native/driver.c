/* Runs the compiled kernels of a library on random Transformers: driver LIBRARY LEVEL FIRST_SEED NUMBER_OF_SEEDS.
 *
 * Without Python, a library can be run that is for another processor, by an emulator, and under sanitizers every byte that it
 * may touch is known: each array is an allocation of its own, as large as the library may ask for.
 *
 * Prints the log-probabilities of every step, one row a line, and what the operations of training compute. Fails where a
 * sentence gets other bits alone than in a batch, where the best continuations are not those of the log-probabilities, or
 * where a search finds what cannot be.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "search.h" /* for its structures alone */
#include "training.h"

#define STEPS 6
#define MAX_SENTENCES 5
#define MAX_WIDTH 20
#define MAX_LENGTH 40
#define MAX_ALLOCATIONS 4096

static uint64_t state;

/* A whole number from 0 to `below` - 1: the same on every machine, as all that is drawn. */
static int draw(int below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int)((state >> 16) % (uint64_t)below);
}

static int draw_from(int least, int most) { return least + draw(most - least + 1); }

static float draw_weight(float most) { return ((float)draw(1 << 20) / (float)(1 << 19) - 1.0f) * most; }

static void *allocations[MAX_ALLOCATIONS];
static int num_allocations;

/* Memory that is free once a model is done; its bytes are not zero. */
static void *allocate(size_t bytes) {
    void *found = malloc(bytes);
    if (found == NULL || num_allocations == MAX_ALLOCATIONS) abort();
    memset(found, 0x7F, bytes); /* of floats a NaN or nearly the greatest one */
    return allocations[num_allocations++] = found;
}

static float *allocate_floats(size_t count) { return allocate(count * sizeof(float)); }

static void release(void) {
    while (num_allocations > 0) free(allocations[--num_allocations]);
}

/* The functions of a level. */
static int32_t (*panel)(void), (*group_inputs)(void), (*offset)(void);
static uint64_t (*count_workspace)(const transformer *, uint64_t, uint64_t, uint64_t);
static int32_t (*encode)(const transformer *, const encoder_task *);
static int32_t (*decode)(const transformer *, const decoder_task *, float *, const best_task *);
static uint64_t (*count_search_workspace)(uint64_t, uint64_t);
static int32_t (*search_batch)(const transformer *, search_task *);
static void (*drop_numbers_of)(const void *, void *, uint64_t, uint32_t, uint64_t, int32_t);
static void (*differentiate_bias_of)(const bias_task *);
static void (*add_numbers_of)(float *, const void *, uint64_t, int32_t);
static void (*normalize_rows_of)(const normalization_task *);
static void (*differentiate_rows)(const normalization_task *);
static uint64_t (*count_heads_workspace)(const attention_task *);
static void (*attend_all)(const attention_task *, float *);
static void (*differentiate_attention)(const attention_task *, float *);
static void (*compute_softmax)(const softmax_task *, float *);

static void *find(void *library, const char *level, const char *name) {
    char symbol[100];
    snprintf(symbol, sizeof symbol, "transduce_%s_%s", level, name);
    void *found = dlsym(library, symbol);
    if (found == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    return found;
}

/* A padded row: `num_parts` times `used` numbers, each followed by zeros up to `width`. */
typedef struct {
    int num_parts, used[3], width[3];
} layout;

static layout whole(int used) { return (layout){1, {used}, {round_up(used, ROW_ALIGNMENT)}}; }

static int count(layout row) {
    int sum = 0;
    for (int part = 0; part < row.num_parts; part++) sum += row.width[part];
    return sum;
}

static int is_used(layout row, int place) {
    for (int part = 0; part < row.num_parts; place -= row.width[part++])
        if (place < row.width[part]) return place < row.used[part];
    return 0;
}

/* Random weights, packed as linear.h says. */
static linear_layer make_linear(layout inputs, layout outputs, int is_int8, float fill) {
    const int num_inputs = count(inputs), num_outputs = count(outputs), group = is_int8 ? group_inputs() : 1;
    float *bias = allocate_floats((size_t)num_outputs), *scales = NULL, *row = malloc((size_t)num_inputs * sizeof(float));
    int32_t *corrections = NULL;
    void *weights = allocate((size_t)num_inputs * (size_t)num_outputs * (is_int8 ? 1 : sizeof(float)));
    if (is_int8) {
        scales = allocate_floats((size_t)num_outputs);
        corrections = allocate((size_t)num_outputs * sizeof(int32_t));
    }
    for (int output = 0; output < num_outputs; output++) {
        const int has_weights = is_used(outputs, output);
        float greatest = 0.0f;
        bias[output] = has_weights ? draw_weight(0.5f) : fill;
        for (int input = 0; input < num_inputs; input++) {
            row[input] = has_weights && is_used(inputs, input) ? draw_weight(0.2f) : 0.0f;
            greatest = fabsf(row[input]) > greatest ? fabsf(row[input]) : greatest;
        }
        int32_t sum = 0;
        for (int input = 0; input < num_inputs; input++) {
            const size_t first = (size_t)(output / panel()) * (size_t)panel() * (size_t)num_inputs;
            const size_t place = first + ((size_t)(input / group) * (size_t)panel() + (size_t)(output % panel())) * (size_t)group +
                                 (size_t)(input % group);
            if (!is_int8) {
                ((float *)weights)[place] = row[input];
                continue;
            }
            const float moved = greatest > 0.0f ? row[input] * 127.0f / greatest : 0.0f;
            const int rounded = (int)(moved + (moved < 0.0f ? -0.5f : 0.5f));
            ((int8_t *)weights)[place] = (int8_t)rounded;
            sum += rounded;
        }
        if (is_int8) {
            scales[output] = greatest / 127.0f;
            corrections[output] = offset() * sum;
        }
    }
    free(row);
    return (linear_layer){weights, bias, scales, corrections, num_inputs, num_outputs};
}

static normalization make_norm(int d_model) {
    const int width = round_up(d_model, ROW_ALIGNMENT);
    float *gain = allocate_floats((size_t)width), *bias = allocate_floats((size_t)width);
    for (int place = 0; place < width; place++) {
        gain[place] = place < d_model ? 1.0f + draw_weight(0.2f) : 0.0f;
        bias[place] = place < d_model ? draw_weight(0.2f) : 0.0f;
    }
    return (normalization){gain, bias};
}

static float *make_table(int rows, int columns) {
    float *table = allocate_floats((size_t)rows * (size_t)columns);
    for (int place = 0; place < rows * columns; place++) table[place] = draw_weight(1.0f);
    return table;
}

static transformer_layer *make_layers(const transformer *model, int num_layers, int inner, int is_decoder, int is_int8) {
    const layout rows = whole(model->d_model), hidden = whole(inner);
    const int queries = model->num_heads * model->d_k, values = model->num_heads * model->d_v;
    const layout query = {1, {queries}, {model->query_width}}, value = {1, {values}, {model->value_width}};
    const layout memory = {2, {queries, values}, {model->query_width, model->value_width}};
    const layout all = {3, {queries, queries, values}, {model->query_width, model->query_width, model->value_width}};
    transformer_layer *layers = allocate((size_t)num_layers * sizeof(transformer_layer));
    for (int number = 0; number < num_layers; number++) {
        transformer_layer *layer = layers + number;
        layer->self_attention.projection = make_linear(rows, all, is_int8, 0.0f);
        layer->self_attention.output = make_linear(value, rows, is_int8, 0.0f);
        layer->self_attention.norm = make_norm(model->d_model);
        if (is_decoder) {
            layer->cross_attention.projection = make_linear(rows, query, is_int8, 0.0f);
            layer->cross_attention.memory = make_linear(rows, memory, is_int8, 0.0f);
            layer->cross_attention.output = make_linear(value, rows, is_int8, 0.0f);
            layer->cross_attention.norm = make_norm(model->d_model);
        }
        layer->inner = make_linear(rows, hidden, is_int8, 0.0f);
        layer->outer = make_linear(hidden, rows, is_int8, 0.0f);
        layer->norm = make_norm(model->d_model);
    }
    return layers;
}

static transformer make_model(int is_int8) {
    transformer model = {0};
    model.d_model = draw_from(1, 70);
    model.model_width = round_up(model.d_model, ROW_ALIGNMENT);
    model.num_heads = draw_from(1, 3);
    model.d_k = 16 * draw_from(1, 3);
    model.d_v = 16 * draw_from(1, 3);
    model.query_width = round_up(model.num_heads * model.d_k, ROW_ALIGNMENT);
    model.value_width = round_up(model.num_heads * model.d_v, ROW_ALIGNMENT);
    model.vocabulary = draw(3) ? draw_from(3, 200) : 3;
    model.logit_width = round_up(model.vocabulary, ROW_ALIGNMENT);
    model.activation = draw_from(RELU, SWISH);
    model.is_pre_norm = draw(2);
    model.num_encoder_layers = draw_from(1, 2);
    model.num_decoder_layers = draw_from(1, 2);
    model.score_scale = 0.2f;
    model.embedding_scale = 2.0f;
    const int inner = draw_from(1, 100);
    model.inner_width = round_up(inner, ROW_ALIGNMENT);
    model.source_embedding = make_table(model.vocabulary, model.d_model);
    model.target_embedding = draw(2) ? model.source_embedding : make_table(model.vocabulary, model.d_model);
    model.encoder = make_layers(&model, model.num_encoder_layers, inner, 0, is_int8);
    model.decoder = make_layers(&model, model.num_decoder_layers, inner, 1, is_int8);
    if (model.is_pre_norm) {
        model.encoder_norm = make_norm(model.d_model);
        model.decoder_norm = make_norm(model.d_model);
    }
    model.projection = make_linear(whole(model.d_model), whole(model.vocabulary), is_int8, -INFINITY);
    return model;
}

/* A batch, and the hypotheses that its decoder is to follow. */
typedef struct {
    int num_sentences, lengths[MAX_SENTENCES], ids[MAX_SENTENCES][MAX_LENGTH];
    int widths[STEPS], parents[STEPS][MAX_SENTENCES][MAX_WIDTH], last_ids[STEPS][MAX_SENTENCES][MAX_WIDTH];
    int num_best, limits[MAX_SENTENCES];
    int beam, min_length, no_repeat_ngram, max_lengths[MAX_SENTENCES], pauses;
    const float *positions; /* [MAX_LENGTH, d_model] */
} search;

static search draw_search(const transformer *model) {
    search task = {.num_sentences = draw_from(1, MAX_SENTENCES), .num_best = draw_from(1, 30)};
    for (int sentence = 0; sentence < task.num_sentences; sentence++) {
        task.lengths[sentence] = draw_from(1, MAX_LENGTH);
        task.limits[sentence] = draw(3);
        for (int place = 0; place < MAX_LENGTH; place++) task.ids[sentence][place] = draw(model->vocabulary);
    }
    for (int step = 0; step < STEPS; step++) {
        task.widths[step] = step == 0 ? 1 : draw_from(1, MAX_WIDTH);
        for (int sentence = 0; sentence < task.num_sentences; sentence++)
            for (int place = 0; place < MAX_WIDTH; place++) {
                task.parents[step][sentence][place] = step == 0 ? 0 : draw(task.widths[step - 1]);
                task.last_ids[step][sentence][place] = draw(model->vocabulary);
            }
    }
    task.beam = draw_from(1, MAX_WIDTH);
    task.min_length = draw_from(0, MAX_LENGTH);
    task.no_repeat_ngram = draw_from(0, 4);
    task.pauses = draw_from(1, MAX_LENGTH);
    for (int sentence = 0; sentence < task.num_sentences; sentence++)
        task.max_lengths[sentence] = draw_from(1, MAX_LENGTH);
    task.positions = make_table(MAX_LENGTH, model->d_model);
    return task;
}

static void check(int is_right, const char *what) {
    if (is_right) return;
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Compare the best continuations of one sentence with its log-probabilities [width, vocabulary], all sums being 0. */
static void check_best(const transformer *model, const float *log_probs, int width, int limit, const best_task *best,
                       int sentence) {
    for (int place = 0; place < best->count; place++) {
        const size_t found = (size_t)sentence * (size_t)best->count + (size_t)place;
        if (best->scores[found] == -INFINITY) continue;
        const int parent = best->parents[found], id = best->ids[found];
        check(parent >= 0 && parent < width && id >= 0 && id < model->vocabulary, "a continuation does not exist");
        check(best->scores[found] == log_probs[parent * model->vocabulary + id], "a continuation has another score");
        check(limit != NO_END || id != best->end_id, "a sentence ends where it may not");
        check(limit != END_ALONE || id == best->end_id, "a sentence goes on where it may not");
        int better = 0;
        for (int other = 0; other < width * model->vocabulary; other++) {
            const int is_end = other % model->vocabulary == best->end_id;
            if (limit == ANYTHING || is_end == (limit == END_ALONE)) better += log_probs[other] > best->scores[found];
        }
        check(better <= place, "a continuation is left out");
    }
}

/* Some sentences, and what the encoder makes of them. */
typedef struct {
    int num_sentences, num_tokens, longest;
    int32_t *starts, *lengths;
    int64_t *key_starts, num_keys;
    float *keys, *values;
} memory;

/* Run the encoder on the sentences `first` to `last` - 1. */
static memory read_sentences(const transformer *model, const search *task, int first, int last) {
    const size_t sentences = (size_t)(last - first), num_layers = (size_t)model->num_decoder_layers;
    memory found = {.num_sentences = last - first, .starts = allocate((sentences + 1) * 4), .lengths = allocate(sentences * 4),
                    .key_starts = allocate((sentences + 1) * 8)};
    found.starts[0] = 0;
    found.key_starts[0] = 0;
    for (int sentence = 0; sentence < found.num_sentences; sentence++) {
        const int length = found.lengths[sentence] = task->lengths[first + sentence];
        found.starts[sentence + 1] = found.num_tokens += length;
        found.num_keys += round_up(length, panel() / 2) * model->num_heads * model->d_k;
        found.key_starts[sentence + 1] = found.num_keys;
        found.longest = length > found.longest ? length : found.longest;
    }
    int32_t *ids = allocate((size_t)found.num_tokens * 4), *positions = allocate((size_t)found.num_tokens * 4);
    for (int sentence = 0; sentence < found.num_sentences; sentence++)
        for (int place = 0; place < found.lengths[sentence]; place++) {
            ids[found.starts[sentence] + place] = task->ids[first + sentence][place];
            positions[found.starts[sentence] + place] = place;
        }
    found.keys = allocate_floats(num_layers * (size_t)found.num_keys);
    found.values = allocate_floats(num_layers * (size_t)found.num_tokens * (size_t)model->value_width);
    const uint64_t room = count_workspace(model, (uint64_t)found.num_tokens, (uint64_t)found.longest, 0);
    const encoder_task source = {found.num_sentences, ids, found.starts, task->positions, positions, found.key_starts,
                                 found.keys, found.values, allocate(room), room};
    check(encode(model, &source) == DONE, "the encoder fails");
    return found;
}

/* The decoder's task before its first step, without memory. */
static decoder_task begin_decoder(const memory *source) {
    return (decoder_task){.num_sentences = source->num_sentences, .source_starts = source->starts,
                          .source_lengths = source->lengths, .key_starts = source->key_starts,
                          .memory_keys = source->keys, .memory_values = source->values,
                          .num_memory_keys = source->num_keys, .num_memory_tokens = source->num_tokens};
}

/* Log-probabilities [steps, rows, vocabulary] of the sentences `first` to `last` - 1. */
static float *run(const transformer *model, const search *task, int first, int last) {
    const memory source = read_sentences(model, task, first, last);
    const int num_sentences = last - first, longest = source.longest > STEPS ? source.longest : STEPS;
    const size_t num_layers = (size_t)model->num_decoder_layers;
    int num_slots = 0, num_rows = 0;
    for (int step = 0; step < STEPS; step++) {
        num_slots += task->widths[step] * num_sentences;
        num_rows = task->widths[step] * num_sentences > num_rows ? task->widths[step] * num_sentences : num_rows;
    }
    const uint64_t room = count_workspace(model, (uint64_t)num_rows, (uint64_t)longest, (uint64_t)task->num_best);
    int32_t *tables[2] = {allocate((size_t)num_rows * STEPS * 4), allocate((size_t)num_rows * STEPS * 4)};
    decoder_task target = begin_decoder(&source);
    target.num_slots = num_slots;
    target.past_keys = allocate_floats(num_layers * (size_t)num_slots * (size_t)model->query_width);
    target.past_values = allocate_floats(num_layers * (size_t)num_slots * (size_t)model->value_width);
    target.ancestor_stride = STEPS;
    target.max_keys = longest;
    target.workspace = allocate(room);
    target.workspace_bytes = room;
    float *found = allocate_floats((size_t)num_slots * (size_t)model->vocabulary), *next = found;
    for (int step = 0; step < STEPS; step++) {
        const int width = task->widths[step], rows = num_sentences * width;
        int32_t *last_ids = allocate((size_t)rows * 4), *parents = allocate((size_t)rows * 4);
        float *sums = allocate_floats((size_t)rows);
        uint8_t *limits = allocate((size_t)num_sentences);
        for (int row = 0; row < rows; row++) {
            const int sentence = row / width;
            last_ids[row] = task->last_ids[step][first + sentence][row % width];
            parents[row] = (step == 0 ? sentence : sentence * task->widths[step - 1]) +
                           task->parents[step][first + sentence][row % width];
            sums[row] = 0.0f;
            limits[sentence] = (uint8_t)task->limits[first + sentence];
        }
        target.width = width;
        target.length = step;
        target.last_ids = last_ids;
        target.parents = parents;
        target.position = task->positions + (size_t)step * (size_t)model->d_model;
        target.ancestors = tables[step % 2];
        target.next_ancestors = tables[1 - step % 2];
        check(decode(model, &target, next, NULL) == DONE, "the decoder fails");
        const size_t most = (size_t)num_sentences * (size_t)task->num_best;
        const best_task best = {task->num_best, 1,    sums, limits, allocate_floats(most), allocate(most * 4),
                                allocate(most * 4)};
        check(decode(model, &target, NULL, &best) == DONE, "the choice of continuations fails");
        for (int sentence = 0; sentence < num_sentences; sentence++)
            check_best(model, next + (size_t)(sentence * width) * (size_t)model->vocabulary, width, limits[sentence], &best,
                       sentence);
        target.used += rows;
        next += (size_t)rows * (size_t)model->vocabulary;
    }
    return found;
}

/* New memory for `count` parts of `size` bytes, with as much of each as there was. */
static void *enlarge(const void *from, size_t count, size_t size_before, size_t size) {
    char *to = allocate(count * size);
    for (size_t part = 0; part < count && size_before > 0; part++)
        memcpy(to + part * size, (const char *)from + part * size_before, size_before);
    return to;
}

/* What a search finds. */
typedef struct {
    int32_t *num_found, *lengths, *ids, pause;
    double *scores;
    float *token_scores;
} hypotheses;

/* Search the sentences `first` to `last` - 1, with new and larger memory every `pauses` steps. */
static hypotheses find_hypotheses(const transformer *model, const search *task, int first, int last) {
    const memory source = read_sentences(model, task, first, last);
    const int num_best = task->num_best < 2 * task->beam ? task->num_best : 2 * task->beam;
    const size_t sentences = (size_t)(last - first), beam = (size_t)task->beam, rows = sentences * beam;
    const size_t num_layers = (size_t)model->num_decoder_layers, found = sentences * (size_t)num_best;
    const size_t query_bytes = (size_t)model->query_width * 4, value_bytes = (size_t)model->value_width * 4;
    decoder_task step = begin_decoder(&source);
    step.width = 1;
    int32_t *limits = allocate(sentences * 4);
    double *greatest = allocate(sentences * 8);
    for (size_t sentence = 0; sentence < sentences; sentence++) {
        limits[sentence] = task->max_lengths[(size_t)first + sentence];
        greatest[sentence] = 1.0 + limits[sentence];
    }
    const uint64_t room = count_search_workspace(sentences, beam);
    search_task own = {.step = &step, .position_table = task->positions, .num_sentences = last - first,
                       .start_id = model->vocabulary - 1, .end_id = 1, .beam = task->beam, .num_best = num_best,
                       .min_length = task->min_length, .no_repeat_ngram = task->no_repeat_ngram,
                       .limits = limits, .greatest_penalties = greatest,
                       .workspace = allocate(room), .workspace_bytes = room, .num_found = allocate(sentences * 4),
                       .scores = allocate(found * 8), .lengths = allocate(found * 4)};
    int result = UNFINISHED;
    while (result == UNFINISHED) {
        const size_t pause = (size_t)(own.pause += task->pauses), stride = pause * 4;
        const size_t before = (size_t)step.num_slots, num_slots = (size_t)step.used + (size_t)task->pauses * rows;
        step.ancestors = enlarge(step.ancestors, rows, (size_t)step.ancestor_stride * 4, stride);
        step.next_ancestors = allocate(rows * stride);
        if (num_slots > before) {
            step.past_keys = enlarge(step.past_keys, num_layers, before * query_bytes, num_slots * query_bytes);
            step.past_values = enlarge(step.past_values, num_layers, before * value_bytes, num_slots * value_bytes);
            own.tokens = enlarge(own.tokens, 1, before * sizeof(slot_token), num_slots * sizeof(slot_token));
            step.num_slots = (int64_t)num_slots;
        }
        step.ancestor_stride = own.pause;
        step.max_keys = source.longest > own.pause ? source.longest : own.pause;
        step.workspace_bytes = count_workspace(model, rows, (uint64_t)step.max_keys, 2 * beam);
        step.workspace = allocate(step.workspace_bytes);
        double *penalties = allocate((pause + 1) * 8);
        for (size_t length = 0; length <= pause; length++) penalties[length] = 1.0 + (double)length;
        own.penalties = penalties;
        own.position_table = enlarge(task->positions, pause < MAX_LENGTH ? pause : MAX_LENGTH, (size_t)model->d_model * 4,
                                (size_t)model->d_model * 4);
        own.ids = allocate(found * stride);
        own.token_scores = allocate(found * stride);
        result = search_batch(model, &own);
    }
    check(result == DONE, "the search fails");
    return (hypotheses){own.num_found, own.lengths, own.ids, own.pause, own.scores, own.token_scores};
}

/* Whether an n-gram occurs twice. */
static int has_repetition(const int32_t *ids, size_t length, size_t n) {
    for (size_t place = n; n > 0 && place <= length; place++)
        for (size_t before = n; before < place; before++)
            if (memcmp(ids + before - n, ids + place - n, n * sizeof(int32_t)) == 0) return 1;
    return 0;
}

/* Compare what is found for a sentence in a batch with what is found for it alone, and with what it has to be. */
static void check_hypotheses(const search *task, int sentence, const hypotheses *batch, const hypotheses *alone) {
    const size_t num_best = (size_t)(task->num_best < 2 * task->beam ? task->num_best : 2 * task->beam);
    const int count = alone->num_found[0], limit = task->max_lengths[sentence];
    check(count > 0 && count == batch->num_found[sentence], "a sentence alone gets more or fewer hypotheses");
    for (size_t rank = 0; rank < (size_t)count; rank++) {
        const size_t place = (size_t)sentence * num_best + rank, length = (size_t)alone->lengths[rank];
        const int32_t *ids = alone->ids + rank * (size_t)alone->pause;
        const float *scores = alone->token_scores + rank * (size_t)alone->pause;
        check(batch->lengths[place] == (int)length && batch->scores[place] == alone->scores[rank] &&
                  memcmp(batch->ids + place * (size_t)batch->pause, ids, length * 4) == 0 &&
                  memcmp(batch->token_scores + place * (size_t)batch->pause, scores, length * 4) == 0,
              "a sentence alone gets another hypothesis than in a batch");
        double sum = 0.0;
        for (size_t token = 0; token < length; token++) {
            check((ids[token] == 1) == (token + 1 == length), "a hypothesis does not end where it ends");
            sum += (double)scores[token];
        }
        check(sum / (1.0 + (double)length) == alone->scores[rank], "a hypothesis has another score than its tokens");
        check((int)length <= limit && (sum == -INFINITY || (int)length >= (limit < task->min_length ? limit : task->min_length)),
              "a hypothesis is too short or too long");
        check(!has_repetition(ids, length, (size_t)task->no_repeat_ngram), "a hypothesis repeats what it may not");
        check(rank == 0 || alone->scores[rank] <= alone->scores[rank - 1], "hypotheses are not in order");
    }
}

/* Random numbers as float32 or bfloat16. */
static void *make_numbers(size_t count, int is_bfloat16) {
    if (!is_bfloat16) return make_table(1, (int)count);
    uint16_t *numbers = allocate(count * sizeof(uint16_t));
    for (size_t place = 0; place < count; place++) {
        const float number = draw_weight(1.0f);
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        numbers[place] = (uint16_t)(bits >> 16);
    }
    return numbers;
}

static void *make_room(size_t count, int is_bfloat16) { return allocate(count * (is_bfloat16 ? 2 : sizeof(float))); }

static void print_numbers(int seed, const void *numbers, size_t count, int is_bfloat16) {
    printf("%d", seed);
    for (size_t place = 0; place < count; place++) printf(" %.9g", (double)read_number(numbers, place, is_bfloat16));
    printf("\n");
}

/* Dropout, bias, layer normalisation and softmax of random rows; what comes out is printed with the number of the seed. */
static void run_rows(int seed, int is_bfloat16) {
    const size_t rows = (size_t)draw_from(1, 9), width = 16 * (size_t)draw_from(1, 5), count = rows * width;
    const size_t dropped = (size_t)draw_from(1, 1000);
    void *kept = make_numbers(dropped, is_bfloat16), *outputs = make_room(dropped, is_bfloat16);
    drop_numbers_of(kept, outputs, dropped, (uint32_t)draw_from(1, 65535), (uint64_t)seed, is_bfloat16);
    print_numbers(seed, outputs, dropped, is_bfloat16);
    const void *before_relu = draw(2) ? make_numbers(count, is_bfloat16) : NULL;
    const bias_task bias_of = {.output_gradient = make_numbers(count, is_bfloat16), .outputs = before_relu,
                               .inputs_gradient = before_relu ? make_room(count, is_bfloat16) : NULL,
                               .bias_gradient = allocate_floats(width), .num_rows = rows, .width = (int32_t)width,
                               .is_bfloat16 = is_bfloat16};
    differentiate_bias_of(&bias_of);
    add_numbers_of(bias_of.bias_gradient, before_relu ? bias_of.inputs_gradient : bias_of.output_gradient, width,
                   is_bfloat16);
    print_numbers(seed, bias_of.bias_gradient, width, 0);
    void *normalized = make_room(count, 1), *gradient = make_room(count, 1);
    float *gain = make_table(1, (int)width), *bias = make_table(1, (int)width);
    const normalization_task norm = {.inputs = make_numbers(count, 1), .gain = gain, .bias = bias, .outputs = normalized,
                                     .statistics = allocate_floats(2 * rows), .output_gradient = make_numbers(count, 1),
                                     .inputs_gradient = gradient, .gain_gradient = allocate_floats(width),
                                     .bias_gradient = allocate_floats(width), .num_rows = rows, .width = (int32_t)width,
                                     .epsilon = 1e-5f};
    normalize_rows_of(&norm);
    differentiate_rows(&norm);
    /* An odd number says that these are bfloat16, which a rounding may move by a whole step. */
    print_numbers(2 * seed + 1, normalized, count, 1);
    print_numbers(2 * seed + 1, gradient, count, 1);
    print_numbers(seed, norm.gain_gradient, width, 0);
    print_numbers(seed, norm.bias_gradient, width, 0);
    const size_t vocabulary = (size_t)draw_from(1, 100);
    int64_t *targets = allocate(rows * sizeof(int64_t));
    for (size_t row = 0; row < rows; row++) targets[row] = draw((int)vocabulary);
    const softmax_task softmax = {make_numbers(rows * vocabulary, is_bfloat16), targets, allocate_floats(rows),
                                  allocate_floats(rows), allocate_floats(rows), rows, (int32_t)vocabulary, is_bfloat16};
    compute_softmax(&softmax, allocate_floats((vocabulary + 15) / 16 * 16));
    print_numbers(seed, softmax.logits, rows * vocabulary, is_bfloat16);
    print_numbers(seed, softmax.log_totals, rows, 0);
}

static head_array make_heads(int sentences, int heads, int positions, int width, int is_random, int is_bfloat16) {
    const size_t count = (size_t)(sentences * heads * positions * width);
    void *numbers = is_random ? make_numbers(count, is_bfloat16) : make_room(count, is_bfloat16);
    return (head_array){numbers, (int64_t)positions * heads * width, width, (int64_t)heads * width};
}

/* Attention of random heads, forward and backward. */
static void run_heads(int seed, int is_bfloat16) {
    const int sentences = draw_from(1, 3), heads = draw_from(1, 3), queries = draw_from(1, 40), is_causal = draw(2);
    const int keys = is_causal ? queries : draw_from(1, 40), d_k = 16 * draw_from(1, 4), d_v = 16 * draw_from(1, 4);
    uint8_t *mask = allocate((size_t)(is_causal ? queries : sentences) * (size_t)keys);
    for (int row = 0; row < (is_causal ? queries : sentences); row++) {
        const int visible = is_causal ? row + 1 : draw_from(1, keys);
        for (int key = 0; key < keys; key++) mask[row * keys + key] = key < visible;
    }
    const size_t padded = (size_t)round_up(keys, KEY_ALIGNMENT);
    attention_task task = {
        .queries = make_heads(sentences, heads, queries, d_k, 1, is_bfloat16),
        .keys = make_heads(sentences, heads, keys, d_k, 1, is_bfloat16),
        .values = make_heads(sentences, heads, keys, d_v, 1, is_bfloat16),
        .attended = make_heads(sentences, heads, queries, d_v, 0, is_bfloat16),
        .mask = mask, .mask_sentence_stride = is_causal ? 0 : keys, .mask_query_stride = is_causal ? keys : 0,
        .weights = make_room((size_t)(sentences * heads * queries) * padded, is_bfloat16),
        .output_gradient = make_heads(sentences, heads, queries, d_v, 1, is_bfloat16),
        .queries_gradient = make_heads(sentences, heads, queries, d_k, 0, is_bfloat16),
        .keys_gradient = make_heads(sentences, heads, keys, d_k, 0, is_bfloat16),
        .values_gradient = make_heads(sentences, heads, keys, d_v, 0, is_bfloat16),
        .num_sentences = sentences, .num_heads = heads, .num_queries = queries, .num_keys = keys, .d_k = d_k, .d_v = d_v,
        .is_bfloat16 = is_bfloat16, .scale = 0.2f};
    float *workspace = allocate_floats(count_heads_workspace(&task));
    attend_all(&task, workspace);
    differentiate_attention(&task, workspace);
    const size_t rows = (size_t)(sentences * heads);
    print_numbers(seed, task.attended.numbers, rows * (size_t)queries * (size_t)d_v, is_bfloat16);
    print_numbers(seed, task.queries_gradient.numbers, rows * (size_t)queries * (size_t)d_k, is_bfloat16);
    print_numbers(seed, task.keys_gradient.numbers, rows * (size_t)keys * (size_t)d_k, is_bfloat16);
    print_numbers(seed, task.values_gradient.numbers, rows * (size_t)keys * (size_t)d_v, is_bfloat16);
}

/* A random model, all sentences of a random batch together, and each of them alone. */
static void run_seed(int seed) {
    state = 0x9E3779B97F4A7C15u * (uint64_t)(seed + 1);
    const transformer model = make_model(seed % 2);
    const search task = draw_search(&model);
    const size_t vocabulary = (size_t)model.vocabulary;
    const float *together = run(&model, &task, 0, task.num_sentences);
    for (int sentence = 0; sentence < task.num_sentences; sentence++) {
        const float *alone = run(&model, &task, sentence, sentence + 1), *batch = together;
        for (int step = 0; step < STEPS; step++) {
            const size_t numbers = (size_t)task.widths[step] * vocabulary;
            check(memcmp(alone, batch + (size_t)sentence * numbers, numbers * sizeof(float)) == 0,
                  "a sentence alone gets other bits than in a batch");
            alone += numbers;
            batch += (size_t)task.num_sentences * numbers;
        }
    }
    const hypotheses batch = find_hypotheses(&model, &task, 0, task.num_sentences);
    for (int sentence = 0; sentence < task.num_sentences; sentence++) {
        const hypotheses alone = find_hypotheses(&model, &task, sentence, sentence + 1);
        check_hypotheses(&task, sentence, &batch, &alone);
    }
    for (int step = 0; step < STEPS; step++)
        for (int row = 0; row < task.num_sentences * task.widths[step]; row++) {
            printf("%d", seed);
            for (size_t id = 0; id < vocabulary; id++) printf(" %.9g", (double)*together++);
            printf("\n");
        }
    release();
    run_rows(seed, seed % 2);
    run_heads(seed, seed % 2);
    release();
}

int main(int num_words, char **words) {
    if (num_words != 5) return 2;
    void *library = dlopen(words[1], RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    int32_t (*supported_levels)(void);
    *(void **)&supported_levels = dlsym(library, "transduce_supported_levels");
    fprintf(stderr, "levels: %d\n", supported_levels());
    *(void **)&panel = find(library, words[2], "panel");
    *(void **)&group_inputs = find(library, words[2], "group");
    *(void **)&offset = find(library, words[2], "offset");
    *(void **)&count_workspace = find(library, words[2], "count_workspace");
    *(void **)&encode = find(library, words[2], "run_encoder");
    *(void **)&decode = find(library, words[2], "run_decoder");
    *(void **)&count_search_workspace = find(library, words[2], "count_search_workspace");
    *(void **)&search_batch = find(library, words[2], "run_search");
    *(void **)&drop_numbers_of = find(library, words[2], "drop");
    *(void **)&differentiate_bias_of = find(library, words[2], "differentiate_bias");
    *(void **)&add_numbers_of = find(library, words[2], "add_numbers");
    *(void **)&normalize_rows_of = find(library, words[2], "normalize");
    *(void **)&differentiate_rows = find(library, words[2], "differentiate_normalization");
    *(void **)&count_heads_workspace = find(library, words[2], "count_attention_workspace");
    *(void **)&attend_all = find(library, words[2], "attend_heads");
    *(void **)&differentiate_attention = find(library, words[2], "differentiate_heads");
    *(void **)&compute_softmax = find(library, words[2], "softmax_rows");
    for (int seed = atoi(words[3]); seed < atoi(words[3]) + atoi(words[4]); seed++) run_seed(seed);
    return 0;
}
