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
    for (int place = LANES; place < count; place += LANES) greatest = maximum(load(logits + place), greatest);
    const float most = greatest_lane(greatest);
    for (int place = 0; place + 2 * LANES <= count; place += 2 * LANES) {
        sum = sum + exponential(load(logits + place) - broadcast(most));
        more = more + exponential(load(logits + place + LANES) - broadcast(most));
    }
    return (row_normalizer){most, logf(sum_lanes(sum + more))};
}

/* The log-probabilities of the first `count` logits. */
static void write_log_probabilities(const float *logits, int count, row_normalizer normalizer, float *to) {
    const floats greatest = broadcast(normalizer.greatest), log_sum = broadcast(normalizer.log_sum);
    int place = 0;
    for (; place + LANES <= count; place += LANES) store(to + place, (load(logits + place) - greatest) - log_sum);
    for (; place < count; place++) to[place] = (logits[place] - normalizer.greatest) - normalizer.log_sum;
}

/* The best continuations of a sentence so far, best first; of equal ones, those that came first. NaN is above all. */
typedef struct {
    float *totals;   /* [count]: what they are ordered by */
    float *scores;   /* [count]: log-probabilities */
    int32_t *parents, *ids;
    int count;
} best_list;

static void clear_best(best_list *best) {
    for (int place = 0; place < best->count; place++) {
        best->totals[place] = best->scores[place] = -INFINITY;
        best->parents[place] = best->ids[place] = 0;
    }
}

/* Insert a continuation whose total is above that of the last, or is NaN. */
static void insert_best(best_list *best, float total, float score, int32_t parent, int32_t id) {
    if (isnan(total)) total = INFINITY;
    if (!(total > best->totals[best->count - 1])) return;
    int place = best->count - 1;
    for (; place > 0 && best->totals[place - 1] < total; place--) {
        best->totals[place] = best->totals[place - 1];
        best->scores[place] = best->scores[place - 1];
        best->parents[place] = best->parents[place - 1];
        best->ids[place] = best->ids[place - 1];
    }
    best->totals[place] = total;
    best->scores[place] = score;
    best->parents[place] = parent;
    best->ids[place] = id;
}

/* Insert the continuations of one hypothesis, whose log-probabilities so far have the sum `so_far`, by any of `count` ids. */
static void insert_row(best_list *best, const float *logits, int count, row_normalizer normalizer, float so_far,
                       int32_t parent) {
    const floats greatest = broadcast(normalizer.greatest), log_sum = broadcast(normalizer.log_sum);
    const floats sum = broadcast(so_far);
    floats least = broadcast(best->totals[best->count - 1]);
    for (int place = 0; place < count; place += LANES) {
        const floats scores = (load(logits + place) - greatest) - log_sum;
        const floats totals = sum + scores;
        uint32_t above = lanes_above(totals, least);
        if (above == 0) continue;
        for (; above != 0; above &= above - 1) {
            const int lane = __builtin_ctz(above);
            insert_best(best, totals[lane], scores[lane], parent, place + lane);
        }
        least = broadcast(best->totals[best->count - 1]);
    }
}

#endif
