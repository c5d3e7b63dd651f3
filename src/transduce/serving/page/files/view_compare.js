// 7: two models, two checkpoints or two sentences beside each other.

import { rampOf } from "transduce/colour";
import { marked } from "transduce/difference";
import { h } from "transduce/dom";
import { nameOf } from "transduce/documents";
import { explanation } from "transduce/explanation";
import { both as indexed, display, formula, group, sub } from "transduce/formula";
import { describeHead, headName, headPicker } from "transduce/heads";
import { cellSize, heatmap } from "transduce/heatmap";
import { counted, fixed, percent, sum } from "transduce/numbers";
import { bar, legend, note, selection } from "transduce/parts";
import { label, unitOf } from "transduce/pieces";
import { bounded, chosenCell, choosing } from "transduce/state";
import { matrix } from "transduce/view_attention";

/** @typedef {import("./types.js").Inspection} Inspection */

/** @param {import("./types.js").Context} context */
export function compareView(context) {
  const { inspection, documents, state, set } = context;
  const head = explanation({
    number: 7, title: "Compare", topics: ["output", "multi_head"],
    text: ["Two models, or two checkpoints of one, read the same sentence, and the same head of both is drawn on the same scale. ",
      "What differs in the translation is marked; ", formula("log", "P", "(", "y", "|", "x", ")"), " is each model’s own, and comparable only where both cut text into the same pieces."],
    formula: display("Δ", sub("α", group("t", "s")), "=", sub("α", group("t", "s")), "−", indexed("α", group("t", "s"), "′")),
  }, inspection);
  const { list } = documents;
  if (list.length < 2) return [head, alone(documents)];
  const other = state.other < list.length && state.other !== state.document ? state.other : list.findIndex((_, i) => i !== state.document);
  const options = list.map((one, i) => [i, nameOf(one, list)]);
  const pair = [[state.document, "Left", "document"], [other, "Right", "other"]];
  const both = pair.map(([i]) => list[i]);
  const names = both.map((one) => nameOf(one, list));
  const heads = both.map((one) => headName(bounded(state, one)));
  return [
    head,
    h("section", { class: "card controls" }, pair.map(([value, name, key]) => selection({ id: `compare-${key}`, name, options, value, choose: (i) => set({ [key]: i }) }))),
    h("div", { class: "beside" }, both.map((one, side) => translation(one, both[1 - side], names[side], side))),
    h("section", { class: "card" }, h("h2", {}, "Side by side"), figures(both, names)),
    h("section", { class: "card" }, h("h2", {}, heads[0] === heads[1] ? "The same head of both" : "A head of each"), headPicker(context, "compare"),
      h("div", { class: "beside" }, both.map((one, side) => picture(context, one, `compare-${side}`, names[side]))),
      heads[0] === heads[1] ? apart(context, both) : note(`${names[1]} has no ${heads[0]}. Another head of it is drawn instead, ${heads[1]}, and no difference.`)),
  ];
}

function alone(documents) {
  return note(documents.live
    ? "There is one translation so far. Look inside another sentence, or the same one in another language, with the form above: both can then be chosen here."
    : ["This file holds one model. ", h("code", {}, "transduce inspect MODEL \"sentence\" --compare OTHER --output page.html"), " puts another one, or an earlier checkpoint, beside it."]);
}

/** One translation; what the other one has not is marked where both read the same sentence. */
function translation({ model, source, target }, other, name, side) {
  const same = other.source.text === source.text;
  const rows = target.pieces.map((_, i) => h("li", {}, h("span", { class: "target" }, label(target.pieces, i)), bar(Math.exp(target.log_probabilities[i]), percent(Math.exp(target.log_probabilities[i])), "target")));
  return h("section", { class: "card" }, h("h2", {}, name),
    h("p", { class: "text source", lang: model.source_language }, source.text),
    h("p", { class: "text", lang: model.target_language }, same ? marked(other.target.text, target.text) : target.text),
    h("details", { id: `pieces-${side}` }, h("summary", {}, "Piece by piece"), h("ol", { class: "path" }, rows)));
}

/** What can be counted of both, line by line. @param {Inspection[]} both @param {string[]} names */
function figures(both, names) {
  const total = ({ target }) => sum(target.log_probabilities);
  const lines = [
    ["log P of its translation", (one) => fixed(total(one))],
    ["log P, a piece", (one) => fixed(total(one) / one.target.pieces.length)],
    ["pieces, source and target", (one) => `${one.source.pieces.length} and ${one.target.pieces.length}`],
    ["confidence, calibrated", (one) => (one.confidence ? `${Math.round(one.confidence.sentence)} of 100` : "not measured")],
    ["log P of the reference", (one) => (one.reference ? fixed(total({ target: one.reference })) : "none given")],
    ["parameters", ({ model }) => counted(model.parameters)],
    ["layers, encoder and decoder", ({ model: { config } }) => `${config.num_encoder_layers} and ${config.num_decoder_layers}`],
    ["heads", ({ model: { config } }) => String(config.num_heads)],
    ["d_model", ({ model: { config } }) => String(config.d_model)],
  ];
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Both models in figures", id: "figures" }, h("table", { class: "numbers" },
    h("caption", { class: "unseen" }, "Both models in figures"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "figure"), names.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, lines.map(([name, figure]) => h("tr", {}, h("th", { scope: "row" }, name), both.map((one) => h("td", {}, figure(one))))))));
}

/** The size of a cell where two matrices stand beside each other. */
const narrow = (columns) => cellSize(columns.length, 26, Math.min(innerWidth - 60, 520));

function picture({ state, set }, inspection, id, name) {
  const shown = bounded(state, inspection);
  const { rows, columns, value, most } = matrix(inspection, { ...shown, pool: "head" });
  const cell = chosenCell(shown);
  return h("div", { class: "half" }, h("h3", {}, `${name}: ${headName(shown)}`), heatmap({
    id, label: `${name}: ${headName(shown)}`, rows, columns, value, most, ramp: rampOf(shown.attention), size: narrow(columns),
    chosen: { row: unitOf(rows, cell.query), column: unitOf(columns, cell.key) },
    choose: (row, column) => set(choosing(shown, rows[row].members[0], columns[column].members[0])),
    describe: (row, column) => `“${rows[row].label}” to “${columns[column].label}”: ${shown.by === "weight" ? percent(value(row, column)) : fixed(value(row, column), 3)}`,
  }), h("p", { class: "quiet" }, `Spreads over ${fixed(describeHead(inspection, shown).spread, 1)} keys.`));
}

/** Left minus right of the same head, where both have the same pieces. */
function apart({ state, set }, both) {
  const pieces = ({ source, target }) => [...source.pieces, ...target.pieces].join(" ");
  if (pieces(both[0]) !== pieces(both[1])) return note("The difference of both is drawn where they read and write the same pieces.");
  const shown = both.map((one) => bounded(state, one));
  const [left, right] = both.map((one, i) => matrix(one, { ...shown[i], pool: "head" }));
  const difference = (row, column) => left.value(row, column) - right.value(row, column);
  const cell = chosenCell(shown[0]);
  const most = state.by === "weight" ? 1 : Math.max(left.most, right.most);
  return h("div", { class: "half" }, h("h3", {}, "Left minus right"), heatmap({
    id: "compare-difference", label: "Left minus right", rows: left.rows, columns: left.columns, value: difference, most, ramp: "signed", size: narrow(left.columns),
    chosen: { row: unitOf(left.rows, cell.query), column: unitOf(left.columns, cell.key) },
    choose: (row, column) => set(choosing(shown[0], left.rows[row].members[0], left.columns[column].members[0])),
    describe: (row, column) => `“${left.rows[row].label}” to “${left.columns[column].label}”: ${difference(row, column) < 0 ? "" : "+"}${fixed(difference(row, column), 3)}`,
  }), legend("signed", `−${fixed(most, 1)}`, `+${fixed(most, 1)}`, "more on the right, or more on the left"));
}
