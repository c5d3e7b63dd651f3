// What is worth a look first, where nothing has been chosen yet.

import { describeHead, headNumbers } from "transduce/heads";
import { place } from "transduce/numbers";
import { END } from "transduce/pieces";

/** @typedef {import("./types.js").Inspection} Inspection */
/** @typedef {import("./types.js").State} State */

/** @type {WeakMap<Inspection, {target: number, source: number, heads: Map<string, {layer: number, head: number}>}>} */
const found = new WeakMap();

/** A state in which everything is chosen: the sharpest head, the least certain piece, and where that head looks for it.
 * @param {State} state @param {Inspection} inspection @returns {State} */
export function begun(state, inspection) {
  const first = firstLook(inspection, state.attention);
  const head = state.layer < 0 || state.head < 0 ? first.head : state;
  return {
    ...state, layer: head.layer, head: head.head,
    source: state.source < 0 ? first.source : state.source, target: state.target < 0 ? first.target : state.target,
  };
}

function firstLook(inspection, attention) {
  if (!found.has(inspection)) found.set(inspection, { ...firstPieces(inspection), heads: new Map() });
  const { source, target, heads } = found.get(inspection);
  if (!heads.has(attention)) heads.set(attention, sharpest(inspection, attention));
  return { source, target, head: heads.get(attention) };
}

function firstPieces(inspection) {
  const { pieces, log_probabilities: scores } = inspection.target;
  const target = place(scores.map((score, i) => (pieces[i] === END ? -Infinity : -score)));
  const { keys } = inspection.attention.encoder_decoder;
  const weights = headNumbers(inspection, sharpest(inspection, "encoder_decoder"), "weight");
  return { target, source: place(weights.subarray(target * keys, (target + 1) * keys)) };
}

/** The head that spreads over the fewest keys; among those whose arithmetic is at hand, where a file holds only some. */
function sharpest(inspection, attention) {
  const { layers, heads } = inspection.attention[attention];
  const held = inspection.arithmetic.filter((one) => one.attention === attention);
  const all = held.length ? held : Array.from({ length: layers * heads }, (_, i) => ({ attention, layer: Math.floor(i / heads), head: i % heads }));
  return all[place(all.map((head) => -describeHead(inspection, head).spread))];
}
