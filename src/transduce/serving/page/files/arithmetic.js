// Equation 1 of the paper, computed again in double precision from the model's own q, k, v and W^O.

import { norm, row, values } from "transduce/numbers";

/** What one head does for one query.
 * @typedef {{products: Float64Array, dots: number[], scores: number[], most: number, exponentials: number[],
 *   total: number, weights: number[], weighted: number[][], attended: number[], contribution: number[],
 *   contributionNorm: number, keyNorms: number[]}} Steps
 *   dots: q·k of each key; scores: divided by sqrt(d_k) and masked; exponentials: of score - most;
 *   weighted: α_s v_s of each key; contribution: what W^O makes of their sum; keyNorms: ‖α_s v_s W^O‖ */

/** Where agreement ends: what float32 and another order of summation cannot explain. */
export const TOLERANCE = 1e-4;

/** @param {import("./types.js").Arithmetic} head
 * @param {number} query
 * @returns {Steps} */
export function compute(head, query) {
  const keys = head.keys.shape[0];
  const q = row(head.query, query);
  const dots = Array.from({ length: keys }, (_, key) => dot(q, row(head.keys, key)));
  const scores = dots.map((one, key) => (isMasked(head, query, key) ? -Infinity : one * head.scale));
  const most = Math.max(...scores);
  const exponentials = scores.map((score) => Math.exp(score - most));
  const total = exponentials.reduce((all, one) => all + one, 0);
  const weights = exponentials.map((one) => one / total);
  const weighted = weights.map((weight, key) => Array.from(row(head.values, key), (one) => weight * one));
  const attended = weighted[0].map((_, i) => weighted.reduce((all, one) => all + one[i], 0));
  const contribution = times(attended, head);
  return {
    dots, scores, most, exponentials, total, weights, weighted, attended, contribution,
    contributionNorm: norm(contribution), keyNorms: weighted.map((one) => norm(times(one, head))),
  };
}

/** A decoder position sees itself and what is before it (paper 3.2.3).
 * @param {import("./types.js").Head} head @param {number} query @param {number} key */
export const isMasked = (head, query, key) => head.attention === "decoder" && key > query;

/** @param {ArrayLike<number>} a @param {ArrayLike<number>} b */
export function dot(a, b) {
  let total = 0;
  for (let i = 0; i < a.length; i++) total += a[i] * b[i];
  return total;
}

/** A value times the head's rows of W^O. @param {ArrayLike<number>} value @param {import("./types.js").Arithmetic} head */
function times(value, head) {
  const [rows, columns] = head.output.shape;
  const output = values(head.output);
  const result = new Array(columns).fill(0);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) result[j] += value[i] * output[i * columns + j];
  return result;
}

/** @type {WeakMap<import("./types.js").Arithmetic, {weights: number, attended: number, norms: number}>} */
const checked = new WeakMap();

/** The largest differences to what the model computed, over every query and key of a head.
 * @param {import("./types.js").Arithmetic} head */
export function differences(head) {
  if (!checked.has(head)) checked.set(head, compared(head));
  return checked.get(head);
}

function compared(head) {
  const worst = { weights: 0, attended: 0, norms: 0 };
  for (let query = 0; query < head.query.shape[0]; query++) {
    const steps = compute(head, query);
    worst.weights = Math.max(worst.weights, furthest(steps.weights, row(head.weights, query)));
    worst.attended = Math.max(worst.attended, furthest(steps.attended, row(head.attended, query)));
    worst.norms = Math.max(worst.norms, furthest([steps.contributionNorm], [head.contribution_norms[query]]));
  }
  return worst;
}

/** The largest difference; a number that is missing or none is infinitely far off. */
function furthest(ours, theirs) {
  return ours.reduce((most, one, i) => {
    const difference = Math.abs(one - theirs[i]);
    return Number.isNaN(difference) ? Infinity : Math.max(most, difference);
  }, 0);
}
