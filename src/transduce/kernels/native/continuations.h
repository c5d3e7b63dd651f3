/* From logits to log-probabilities, and to the best continuations of the hypotheses of a sentence. */
#ifndef TRANSDUCE_CONTINUATIONS_H
#define TRANSDUCE_CONTINUATIONS_H

#include "vectors.h"

/* What a row's log-probabilities are made of: log p = (logit - greatest) - log_sum. */
typedef struct {
    float greatest, log_sum;
} row_normalizer;

/* The normaliser of a row of logits; `count` is a multiple of LANES, and what fills up is -inf. */
static row_normalizer normalize_logits(const float *logits, int count) {
    floats greatest = load(logits), sum = {0}, more = {0};
    for (int index = LANES; index < count; index += LANES) greatest = maximum(load(logits + index), greatest);
    const float most = greatest_lane(greatest);
    for (int index = 0; index + 2 * LANES <= count; index += 2 * LANES) {
        sum = sum + exponential(load(logits + index) - broadcast(most));
        more = more + exponential(load(logits + index + LANES) - broadcast(most));
    }
    return (row_normalizer){most, logf(sum_lanes(sum + more))};
}

/* The log-probabilities of the first `count` logits. */
static void write_log_probabilities(const float *logits, int count, row_normalizer normalizer, float *to) {
    const floats greatest = broadcast(normalizer.greatest), log_sum = broadcast(normalizer.log_sum);
    int index = 0;
    for (; index + LANES <= count; index += LANES) store(to + index, (load(logits + index) - greatest) - log_sum);
    for (; index < count; index++) to[index] = (logits[index] - normalizer.greatest) - normalizer.log_sum;
}

/* The best continuations of a sentence so far, best first; of equal ones, those that came first. NaN is above all. */
typedef struct {
    float *totals;   /* [count]: what they are ordered by */
    float *scores;   /* [count]: log-probabilities */
    int32_t *parents, *ids;
    int count;
} best_list;

static void clear_best(best_list *best) {
    for (int index = 0; index < best->count; index++) {
        best->totals[index] = best->scores[index] = -INFINITY;
        best->parents[index] = best->ids[index] = 0;
    }
}

/* Insert a continuation whose total is above that of the last, or is NaN. */
static void insert_best(best_list *best, float total, float score, int32_t parent, int32_t id) {
    if (isnan(total)) total = INFINITY;
    if (!(total > best->totals[best->count - 1])) return;
    int index = best->count - 1;
    for (; index > 0 && best->totals[index - 1] < total; index--) {
        best->totals[index] = best->totals[index - 1];
        best->scores[index] = best->scores[index - 1];
        best->parents[index] = best->parents[index - 1];
        best->ids[index] = best->ids[index - 1];
    }
    best->totals[index] = total;
    best->scores[index] = score;
    best->parents[index] = parent;
    best->ids[index] = id;
}

/* A logit that is not above this has a total that is not above `least`, however the total is rounded. */
static float find_least_logit(float least, row_normalizer normalizer, float so_far) {
    const float size = fabsf(least) + fabsf(so_far) + fabsf(normalizer.greatest) + fabsf(normalizer.log_sum);
    return (least - so_far + normalizer.log_sum + normalizer.greatest) - 4e-6f * size;
}

/* Insert the continuations of one hypothesis, whose log-probabilities so far have the sum `so_far`, by any of `count` ids. */
static void insert_row(best_list *best, const float *logits, int count, row_normalizer normalizer, float so_far,
                       int32_t parent) {
    const floats greatest = broadcast(normalizer.greatest), log_sum = broadcast(normalizer.log_sum);
    floats least = broadcast(find_least_logit(best->totals[best->count - 1], normalizer, so_far));
    for (int index = 0; index < count; index += LANES) {
        const floats values = load(logits + index);
        uint32_t above = lanes_above(values, least);
        if (above == 0) continue;
        const floats scores = (values - greatest) - log_sum;
        for (; above != 0; above &= above - 1) {
            const int lane = __builtin_ctz(above);
            insert_best(best, so_far + scores[lane], scores[lane], parent, index + lane);
        }
        least = broadcast(find_least_logit(best->totals[best->count - 1], normalizer, so_far));
    }
}

#endif
