/* What the library offers, for one level of instruction sets: this file is compiled once for each of them.
 *
 * The compiler is given LEVEL, as in -DLEVEL=avx2, which becomes a part of every name: transduce_avx2_run_encoder.
 * EXPORTED is what makes a function visible outside of the library. Everything else is static. Numbers that describe the
 * layout of packed weights are functions, as ctypes finds these alike on every system.
 */
#include "search.h"
#include "training.h"

#define JOIN_NAMES(level, name) transduce_##level##_##name
#define JOIN(level, name) JOIN_NAMES(level, name)
#define OFFERED(type, name) EXPORTED type JOIN(LEVEL, name)

OFFERED(int32_t, panel)(void) { return PANEL; }
OFFERED(int32_t, group)(void) { return GROUP; }
OFFERED(int32_t, offset)(void) { return OFFSET; }

/* Bytes of workspace for `run_encoder` or `run_decoder` with so many rows, keys, and continuations (0: for the encoder). */
OFFERED(uint64_t, count_workspace)(const transformer *model, uint64_t rows, uint64_t keys, uint64_t count) {
    arena workspace = {NULL, SIZE_MAX, 0};
    take_buffers(model, rows, keys, count, &workspace);
    return SIZE_MAX - workspace.left;
}

OFFERED(int32_t, group_rows)(void) { return GROUP_ROWS; }

/* Call a function whose products may be computed by AMX. */
#define WITH_AMX(call)                     \
    const amx_shapes before = begin_amx(); \
    const int32_t result = call;           \
    end_amx(&before);                      \
    return result

OFFERED(int32_t, run_encoder)(const transformer *model, const encoder_task *task) {
    WITH_AMX(run_encoder(model, task));
}

OFFERED(int32_t, run_decoder)
(const transformer *model, const decoder_task *task, float *log_probabilities, const best_task *best) {
    WITH_AMX(run_decoder(model, task, log_probabilities, best));
}

/* Bytes of workspace for `run_search`. */
OFFERED(uint64_t, count_search_workspace)(uint64_t num_sentences, uint64_t beam) {
    arena workspace = {NULL, SIZE_MAX, 0};
    take_search_state(num_sentences, beam, 0, &workspace);
    return SIZE_MAX - workspace.left;
}

OFFERED(int32_t, run_search)(const transformer *model, search_task *task) {
    WITH_AMX(run_search(model, task));
}

/* Operations in training. */

OFFERED(int32_t, key_alignment)(void) { return KEY_ALIGNMENT; }

OFFERED(void, drop)
(const void *inputs, void *outputs, uint64_t count, uint32_t kept, uint64_t seed, int32_t is_bfloat16) {
    drop(inputs, outputs, count, kept, seed, is_bfloat16);
}

OFFERED(void, differentiate_bias)(const bias_task *task) { differentiate_bias(task); }

OFFERED(void, add_numbers)(float *sums, const void *numbers, uint64_t count, int32_t is_bfloat16) {
    add_numbers(sums, numbers, count, is_bfloat16);
}

OFFERED(void, normalize)(const normalization_task *task) { normalize(task); }

OFFERED(void, differentiate_normalization)(const normalization_task *task) { differentiate_normalization(task); }

OFFERED(uint64_t, count_attention_workspace)(const attention_task *task) { return count_attention_workspace(task); }

OFFERED(void, attend_heads)(const attention_task *task, float *workspace) { attend_heads(task, workspace); }

OFFERED(void, differentiate_heads)(const attention_task *task, float *workspace) { differentiate_heads(task, workspace); }

OFFERED(void, softmax_rows)(const softmax_task *task, float *workspace) { softmax_rows(task, workspace); }

/* The kernels that these are made of, each by itself. */

OFFERED(void, apply_linear)
(const linear_layer *layer, const float *inputs, uint64_t num_rows, float *outputs, const float *residual,
 int32_t activation, void *quantized_inputs, float *row_scales) {
    const quantized_rows quantized = {quantized_inputs, row_scales};
    const amx_shapes before = begin_amx();
    apply_linear(layer, inputs, (size_t)layer->inputs, num_rows, outputs, (size_t)layer->outputs, residual, activation,
                 quantized);
    end_amx(&before);
}

OFFERED(void, normalize_rows)
(const normalization *norm, const float *inputs, uint64_t num_rows, int32_t width, uint64_t stride, float *outputs) {
    normalize_rows(norm, inputs, num_rows, width, stride, outputs);
}

/* Attention of `num_queries` queries [., d_k] to keys [., d_k] and values [., d_v]; `workspace` is for packed keys and
 * scores. */
OFFERED(void, attend)
(const float *queries, int32_t num_queries, const float *keys, const float *values, int32_t num_keys, int32_t d_k,
 int32_t d_v, float scale, float *workspace, float *outputs) {
    pack_keys(keys, (size_t)d_k, num_keys, d_k, workspace);
    attend(queries, (size_t)d_k, num_queries, workspace, values, (size_t)d_v, num_keys, d_k, d_v, scale,
           workspace + count_packed_keys(num_keys, d_k), outputs, (size_t)d_v);
}

/* The same, for one query in some heads, where a table says which keys and values it sees, in which order. */
OFFERED(void, attend_to_slots)
(const float *query, const float *keys, const float *values, const int32_t *slots, int32_t num_slots, int32_t num_heads,
 int32_t d_k, int32_t d_v, float scale, float *workspace, float *outputs) {
    attend_to_slots(query, keys, (size_t)(num_heads * d_k), values, (size_t)(num_heads * d_v), slots, num_slots, num_heads,
                    d_k, d_v, scale, workspace, outputs);
}

/* Log-probabilities of `count` logits, a multiple of ROW_ALIGNMENT. */
OFFERED(void, log_softmax)(const float *logits, int32_t count, float *outputs) {
    write_log_probabilities(logits, count, normalize_logits(logits, count), outputs);
}

/* The best continuations of one sentence with `width` rows of logits. */
OFFERED(void, find_best)
(float *logits, int32_t width, int32_t logit_width, const best_task *best, float *totals) {
    transformer model = {0};
    model.logit_width = logit_width;
    best_list list = {totals, best->scores, best->parents, best->ids, best->count};
    clear_best(&list);
    for (int32_t row = 0; row < width; row++) {
        float *own = logits + (size_t)row * (size_t)logit_width;
        find_best_of_row(&model, best, &list, best->limits[0], own, normalize_logits(own, logit_width), best->sums[row],
                         row);
    }
}
