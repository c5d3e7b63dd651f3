// Layers by heads: which attention, which layer and which head is looked at, with a thumbnail of each.

import { h } from "transduce/dom";
import { isDark, rampOf } from "transduce/colour";
import { thumbnail } from "transduce/heatmap";
import { largest, values } from "transduce/numbers";
import { choice, roving, selection } from "transduce/parts";

/** @typedef {import("./types.js").Inspection} Inspection */
/** @typedef {import("./types.js").Attention} Attention */
/** @typedef {import("./types.js").Context} Context */

/** @type {[Attention, string][]} */
export const ATTENTIONS = [["encoder", "Encoder"], ["decoder", "Decoder"], ["encoder_decoder", "Encoder–decoder"]];

/** @param {Attention} attention */
export const attentionName = (attention) => ATTENTIONS.find(([one]) => one === attention)[1];

/** As in "encoder–decoder attention, layer 2, head 5". @param {import("./types.js").Head} head */
export const headName = ({ attention, layer, head }) =>
  `${attentionName(attention).toLowerCase()} attention, layer ${layer + 1}, head ${head + 1}`;

/** The numbers of one head, row after row: weights, or norms of what is added.
 * @param {Inspection} inspection @param {import("./types.js").Head} head @param {"weight"|"norm"} by */
export function headNumbers(inspection, { attention, layer, head }, by) {
  const maps = inspection.attention[attention];
  const size = maps.queries * maps.keys;
  const first = (layer * maps.heads + head) * size;
  return values(by === "norm" ? maps.norms : maps.weights).subarray(first, first + size);
}

/** The number that is drawn strongest: 1 for weights, the largest of all heads for norms.
 * @param {Inspection} inspection @param {Attention} attention @param {"weight"|"norm"} by */
export function mostOf(inspection, attention, by) {
  return by === "weight" ? 1 : largest(values(inspection.attention[attention].norms)) || 1;
}

/** @type {WeakMap<Inspection, Map<string, HTMLCanvasElement>>} */
const drawn = new WeakMap();

/** Drawn once for each head; the same element is put wherever it is shown next. */
function thumbnailOf(inspection, head, by) {
  if (!drawn.has(inspection)) drawn.set(inspection, new Map());
  const known = drawn.get(inspection);
  const name = [head.attention, head.layer, head.head, by, isDark()].join();
  if (!known.has(name)) {
    const { keys } = inspection.attention[head.attention];
    const most = mostOf(inspection, head.attention, by);
    known.set(name, thumbnail(headNumbers(inspection, head, by), keys, most, rampOf(head.attention)));
  }
  return known.get(name);
}

/** The choice between the three attentions. @param {Context} context @param {string} id */
export function attentionChoice({ state, set }, id) {
  return choice({ id, name: "Attention", options: ATTENTIONS, value: state.attention, choose: (attention) => set({ attention }) });
}

/** Every head of an attention in a grid, one row for each layer. @param {Context} context @param {string} id */
export function headGrid({ inspection, state, set }, id) {
  const { layers, heads } = inspection.attention[state.attention];
  const all = Array.from({ length: layers * heads }, (_, i) => ({ attention: state.attention, layer: Math.floor(i / heads), head: i % heads }));
  const grid = roving({
    class: "head-grid", label: "Head", chosen: state.layer * heads + state.head, columns: heads,
    choose: (i) => set({ layer: all[i].layer, head: all[i].head }),
    buttons: all.map((head) => ({
      id: `${id}-${head.layer}-${head.head}`, aria: `Layer ${head.layer + 1}, head ${head.head + 1}`, class: "head",
      content: thumbnailOf(inspection, head, state.by),
    })),
  });
  grid.style.setProperty("--heads", heads);
  const numbers = (count, name) => h("div", { class: name, "aria-hidden": "true" }, Array.from({ length: count }, (_, i) => h("span", {}, String(i + 1))));
  return h("div", { class: "heads", style: { "--heads": heads } },
    h("span", { class: "corner quiet", "aria-hidden": "true" }, "layer\u2009\\\u2009head"),
    numbers(heads, "grid-columns"), numbers(layers, "grid-rows"), grid);
}

/** Attention, layer and head as three choices in a row. @param {Context} context @param {string} id */
export function headPicker(context, id) {
  const { inspection, state, set } = context;
  const { layers, heads } = inspection.attention[state.attention];
  const upTo = (count) => Array.from({ length: count }, (_, i) => [i, String(i + 1)]);
  return h("div", { class: "picker" }, attentionChoice(context, `${id}-attention`),
    selection({ id: `${id}-layer`, name: "Layer", options: upTo(layers), value: state.layer, choose: (layer) => set({ layer }) }),
    selection({ id: `${id}-head`, name: "Head", options: upTo(heads), value: state.head, choose: (head) => set({ head }) }));
}

/** What a head does, in three numbers: how many keys it spreads over (e to the entropy of its rows), how far away they
 * are, and how much goes to the end of the sentence.
 * @param {Inspection} inspection @param {import("./types.js").Head} head */
export function describeHead(inspection, head) {
  const { queries, keys } = inspection.attention[head.attention];
  const weights = headNumbers(inspection, head, "weight");
  const last = head.attention === "decoder" ? -1 : keys - 1;
  let [entropy, distance, end] = [0, 0, 0];
  for (let i = 0; i < queries; i++) {
    for (let j = 0; j < keys; j++) {
      const weight = weights[i * keys + j];
      if (weight > 0) entropy -= weight * Math.log(weight);
      distance += weight * Math.abs(i - j);
      if (j === last) end += weight;
    }
  }
  return { spread: Math.exp(entropy / queries), distance: distance / queries, end: last < 0 ? null : end / queries };
}
