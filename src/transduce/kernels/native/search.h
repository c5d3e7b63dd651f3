/* Beam search of a batch, from the encoder's result to finished hypotheses.
 *
 * It is what `beam_search` in search/beam.py does without constraints, to the last bit, repeated n-grams forbidden or not:
 * sums are of type double, as Python's floats are, and every order is stable. The caller gives the memory, and more of it
 * when asked: UNFINISHED.
 *
 * A hypothesis is a row of the decoder, and its last token has a slot of the cache, as its key and value do. Slots are never
 * moved, so that a slot and those before it stay a hypothesis for as long as it is of use, whatever becomes of its row.
 */
#ifndef TRANSDUCE_SEARCH_H
#define TRANSDUCE_SEARCH_H

#include "transformer.h"

/* A search, and how far it has come. */
typedef struct {
    decoder_task *step;     /* before the first step: one row for each sentence */
    const float *position_table; /* [pause, d_model] */
    int32_t num_sentences;  /* of the batch, of which `step` has those that are not done */
    int32_t start_id, end_id; /* the id before the first token, and the one that ends a hypothesis */
    int32_t beam, num_best;   /* num_best: at most 2 * beam */
    int32_t min_length;
    int32_t no_repeat_ngram; /* the length of n-grams that a hypothesis may not have twice; 0: any */
    int32_t pause; /* hypotheses of this length are left to the next call; at most `ancestor_stride` */
    const int32_t *limits;            /* [sentences]: the greatest length, which counts the end */
    const double *penalties;          /* [pause + 1]: the length penalty of each length */
    const double *greatest_penalties; /* [sentences]: those of the limits */
    slot_token *tokens;               /* [slots] */
    int64_t parents_start;            /* the first slot of the step before: kept from call to call */
    void *workspace;                  /* its contents, too */
    uint64_t workspace_bytes;
    int32_t *num_found;  /* [sentences]: hypotheses of each, best first; this and what follows is written when all is DONE */
    double *scores;      /* [sentences, num_best]: their sums divided by the length penalty */
    int32_t *lengths;    /* [sentences, num_best] */
    int32_t *ids;        /* [sentences, num_best, pause] */
    float *token_scores; /* [sentences, num_best, pause]: log-probabilities */
} search_task;

/* A hypothesis that has come to its end. */
typedef struct {
    double score;
    int32_t length, last; /* tokens with the end, and the slot of the token before it */
    float end_score;
} finished_hypothesis;

/* What a search keeps in its workspace. */
typedef struct {
    int32_t *sentences;            /* [sentences of `step`]: their indices in the batch */
    int32_t *num_finished;         /* [sentences of the batch] */
    finished_hypothesis *finished; /* [sentences of the batch, 2 * beam], best first */
    int32_t *source_starts, *source_lengths;
    int64_t *key_starts;
    int32_t *last_ids, *parents; /* [rows], of the next step */
    float *last_scores;          /* [rows] */
    double *sums, *next_sums;    /* [rows]; -inf: the row only fills the beam */
    float *relative_sums;        /* [rows]: small enough for float32 */
    uint8_t *limits;             /* [sentences of `step`] */
    float *scores;               /* [sentences of `step`, 2 * beam]: continuations, best first */
    int32_t *best_parents, *best_ids;
} search_state;

/* Take it all out of an arena; see `take_buffers`. */
static search_state take_search_state(size_t sentences, size_t beam, size_t length, arena *workspace) {
    const size_t rows = sentences * beam, found = 2 * rows;
    search_state taken;
    taken.sentences = take(workspace, sentences * sizeof(int32_t));
    taken.num_finished = take(workspace, sentences * sizeof(int32_t));
    taken.finished = take(workspace, found * sizeof(finished_hypothesis));
    taken.source_starts = take(workspace, sentences * sizeof(int32_t));
    taken.source_lengths = take(workspace, sentences * sizeof(int32_t));
    taken.key_starts = take(workspace, sentences * sizeof(int64_t));
    taken.last_ids = take(workspace, rows * sizeof(int32_t));
    taken.parents = take(workspace, rows * sizeof(int32_t));
    taken.last_scores = take_floats(workspace, rows);
    double *sums[2] = {take(workspace, rows * sizeof(double)), take(workspace, rows * sizeof(double))};
    taken.sums = sums[length % 2]; /* each step writes those of the next */
    taken.next_sums = sums[1 - length % 2];
    taken.relative_sums = take_floats(workspace, rows);
    taken.limits = take(workspace, sentences);
    taken.scores = take_floats(workspace, found);
    taken.best_parents = take(workspace, found * sizeof(int32_t));
    taken.best_ids = take(workspace, found * sizeof(int32_t));
    return taken;
}

/* One empty hypothesis for each sentence. */
static void begin_search(search_task *task, search_state *state) {
    decoder_task *step = task->step;
    const size_t sentences = (size_t)task->num_sentences;
    memcpy(state->source_starts, step->source_starts, sentences * sizeof(int32_t));
    memcpy(state->source_lengths, step->source_lengths, sentences * sizeof(int32_t));
    memcpy(state->key_starts, step->key_starts, sentences * sizeof(int64_t));
    for (int sentence = 0; sentence < task->num_sentences; sentence++) {
        state->sentences[sentence] = state->parents[sentence] = sentence;
        state->num_finished[sentence] = 0;
        state->last_ids[sentence] = task->start_id;
        state->last_scores[sentence] = 0.0f;
        state->sums[sentence] = 0.0;
    }
    task->parents_start = 0;
}

/* What may come next in each sentence, and the sums of its hypotheses without that of the best. */
static void begin_step(const search_task *task, search_state *state) {
    const decoder_task *step = task->step;
    for (int index = 0; index < step->num_sentences; index++) {
        const int is_at_limit = step->length + 1 == task->limits[state->sentences[index]];
        state->limits[index] = is_at_limit ? END_ALONE : step->length + 1 < task->min_length ? NO_END : ANYTHING;
        const double *sums = state->sums + (size_t)index * (size_t)step->width;
        float *relative = state->relative_sums + (size_t)index * (size_t)step->width;
        for (int row = 0; row < step->width; row++) relative[row] = (float)(sums[row] - sums[0]);
    }
    const size_t rows = (size_t)step->num_sentences * (size_t)step->width;
    for (size_t row = 0; row < rows; row++)
        task->tokens[(size_t)step->used + row] = (slot_token){
            state->last_ids[row], (int32_t)(task->parents_start + state->parents[row]), state->last_scores[row]};
}

/* A hypothesis ends: it goes behind those with the same score; of more than 2 * beam, the best are kept. */
static void finish(const search_task *task, search_state *state, int sentence, size_t parent_row, double sum, float score) {
    const int32_t length = task->step->length + 1;
    finished_hypothesis *finished = state->finished + (size_t)sentence * 2 * (size_t)task->beam;
    const finished_hypothesis own = {sum / task->penalties[length], length,
                                     (int32_t)((size_t)task->step->used + parent_row), score};
    int index = state->num_finished[sentence];
    if (index < 2 * task->beam)
        state->num_finished[sentence]++;
    else if (finished[--index].score >= own.score)
        return;
    for (; index > 0 && finished[index - 1].score < own.score; index--) finished[index] = finished[index - 1];
    finished[index] = own;
}

/* Whether a sentence is done that has `num_live` hypotheses, of which the best has the sum `best`: as
 * `SentenceSearch._is_finished`. */
static int is_done(const search_task *task, const search_state *state, int sentence, int num_live, double best) {
    const int num_finished = state->num_finished[sentence];
    const finished_hypothesis *finished = state->finished + (size_t)sentence * 2 * (size_t)task->beam;
    if (num_live == 0) return 1;
    if (num_finished >= task->beam) {
        const int worst = task->num_best < task->beam ? task->num_best : task->beam;
        return finished[worst - 1].score >= best / task->penalties[task->step->length + 1];
    }
    if (num_finished < task->num_best) return 0;
    return finished[task->num_best - 1].score >= best / task->greatest_penalties[sentence];
}

/* Finish or keep the best continuations of the sentence at `index`, whose hypotheses of the next step begin at `next_index`;
 * `should_go_on` is set where there are any. As `SentenceSearch.advance`. */
static int advance_sentence(const search_task *task, search_state *state, int index, int next_index, int *should_go_on) {
    const decoder_task *step = task->step;
    const int sentence = state->sentences[index], beam = task->beam;
    const size_t first_row = (size_t)index * (size_t)step->width, next_row = (size_t)next_index * (size_t)beam;
    const size_t first = (size_t)index * 2 * (size_t)beam;
    double *sums = state->next_sums + next_row;
    int32_t *ids = state->last_ids + next_row, *parents = state->parents + next_row;
    float *scores = state->last_scores + next_row;
    int num_live = 0;
    for (int rank = 0; rank < 2 * beam; rank++) {
        const float score = state->scores[first + (size_t)rank];
        if (isnan(score)) return NOT_A_NUMBER;
        const size_t parent_row = first_row + (size_t)state->best_parents[first + (size_t)rank];
        const double sum = state->sums[parent_row] + (double)score;
        const int32_t id = state->best_ids[first + (size_t)rank];
        if (sum == -INFINITY) continue;
        if (id == task->end_id) {
            if (rank < beam) finish(task, state, sentence, parent_row, sum, score);
            continue;
        }
        if (num_live == beam) break;
        int live = num_live++; /* the decoder ranked sums in float32 */
        for (; live > 0 && sums[live - 1] < sum; live--) {
            sums[live] = sums[live - 1];
            ids[live] = ids[live - 1];
            parents[live] = parents[live - 1];
            scores[live] = scores[live - 1];
        }
        sums[live] = sum;
        ids[live] = id;
        parents[live] = (int32_t)parent_row;
        scores[live] = score;
    }
    if (num_live == 0 && state->num_finished[sentence] == 0) /* every way is forbidden */
        finish(task, state, sentence, first_row, -INFINITY, -INFINITY);
    *should_go_on = !is_done(task, state, sentence, num_live, num_live == 0 ? -INFINITY : sums[0]);
    for (; num_live < beam; num_live++) {
        sums[num_live] = -INFINITY;
        ids[num_live] = task->end_id; /* a valid one */
        parents[num_live] = (int32_t)first_row;
        scores[num_live] = -INFINITY;
    }
    return DONE;
}

/* Advance all sentences, and leave out those that are done. */
static int advance(search_task *task, search_state *state) {
    decoder_task *step = task->step;
    int num_left = 0;
    for (int index = 0; index < step->num_sentences; index++) {
        int should_go_on = 0;
        const int problem = advance_sentence(task, state, index, num_left, &should_go_on);
        if (problem != DONE) return problem;
        if (!should_go_on) continue;
        state->sentences[num_left] = state->sentences[index];
        state->source_starts[num_left] = state->source_starts[index];
        state->source_lengths[num_left] = state->source_lengths[index];
        state->key_starts[num_left] = state->key_starts[index];
        num_left++;
    }
    task->parents_start = step->used;
    step->used += (int64_t)step->num_sentences * step->width;
    step->num_sentences = num_left;
    step->width = task->beam;
    step->length++;
    int32_t *ancestors = step->next_ancestors;
    step->next_ancestors = step->ancestors;
    step->ancestors = ancestors;
    double *sums = state->next_sums;
    state->next_sums = state->sums;
    state->sums = sums;
    return DONE;
}

/* The best hypotheses of every sentence, with their tokens. */
static void write_hypotheses(const search_task *task, const search_state *state) {
    for (int sentence = 0; sentence < task->num_sentences; sentence++) {
        const int num_finished = state->num_finished[sentence];
        const int count = task->num_found[sentence] = num_finished < task->num_best ? num_finished : task->num_best;
        for (int rank = 0; rank < count; rank++) {
            const finished_hypothesis *own = state->finished + (size_t)sentence * 2 * (size_t)task->beam + rank;
            const size_t index = (size_t)sentence * (size_t)task->num_best + (size_t)rank;
            int32_t *ids = task->ids + index * (size_t)task->pause;
            float *scores = task->token_scores + index * (size_t)task->pause;
            task->scores[index] = own->score;
            task->lengths[index] = own->length;
            ids[own->length - 1] = task->end_id;
            scores[own->length - 1] = own->end_score;
            int32_t slot = own->last;
            for (int token = own->length - 2; token >= 0; token--, slot = task->tokens[slot].previous) {
                ids[token] = task->tokens[slot].id;
                scores[token] = task->tokens[slot].score;
            }
        }
    }
}

/* Search until all sentences are done, or until hypotheses are as long as `pause`, or slots are used up: UNFINISHED. */
static int run_search(const transformer *model, search_task *task) {
    decoder_task *step = task->step;
    arena workspace = {task->workspace, task->workspace_bytes, 0};
    search_state state = take_search_state((size_t)task->num_sentences, (size_t)task->beam, (size_t)step->length, &workspace);
    if (workspace.is_exhausted) return WORKSPACE_TOO_SMALL;
    if (step->length == 0) begin_search(task, &state);
    step->last_ids = state.last_ids;
    step->parents = state.parents;
    step->source_starts = state.source_starts;
    step->source_lengths = state.source_lengths;
    step->key_starts = state.key_starts;
    const best_task best = {2 * task->beam, task->end_id,       state.relative_sums, state.limits,
                            state.scores,   state.best_parents, state.best_ids,        task->no_repeat_ngram,
                            task->tokens};
    while (step->num_sentences > 0) {
        const int64_t rows = (int64_t)step->num_sentences * step->width;
        if (step->length >= task->pause || step->used + rows > step->num_slots) return UNFINISHED;
        begin_step(task, &state);
        step->position = task->position_table + (size_t)step->length * (size_t)model->d_model;
        int problem = run_decoder(model, step, NULL, &best);
        if (problem == DONE) problem = advance(task, &state);
        if (problem != DONE) return problem;
    }
    write_hypotheses(task, &state);
    return DONE;
}

#endif
