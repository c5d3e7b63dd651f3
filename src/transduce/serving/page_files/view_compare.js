// 7: two models, two checkpoints or two sentences beside each other.

import { rampOf } from "transduce/colour";
import { marked } from "transduce/difference";
import { h } from "transduce/dom";
import { nameOf } from "transduce/documents";
import { explanation } from "transduce/explanation";
import { display, formula, group, sub } from "transduce/formula";
import { habits, headName, headPicker } from "transduce/heads";
import { cellSize, heatmap } from "transduce/heatmap";
import { counted, fixed, percent, sum } from "transduce/numbers";
import { bar, legend, note, selection } from "transduce/parts";
import { label, unitOf } from "transduce/pieces";
import { bounded, chosenCell, choosing } from "transduce/state";
import { matrix } from "transduce/view_attention";

/** @param {import("./types.js").Context} context */
export function compareView(context) {
  const { inspection, documents, state, set } = context;
  const head = explanation({
    number: 7, title: "Compare", topics: ["output"],
    text: ["Two models, or two checkpoints of one, read the same sentence, and the same head of both is drawn with the same scale. ",
      "What differs in the translation is marked; ", formula("log", "P", "(", "y", "|", "x", ")"), " is each model’s own, and comparable only where both cut text into the same pieces."],
  }, inspection);
  const { list } = documents;
  if (list.length < 2) return [head, alone(documents)];
  const other = state.other < list.length && state.other !== state.document ? state.other : list.findIndex((_, i) => i !== state.document);
  const options = list.map((one, i) => [i, nameOf(one, list)]);
  const pair = [[state.document, "Left", "document"], [other, "Right", "other"]];
  return [
    head,
    h("section", { class: "card controls" }, pair.map(([value, name, key]) => selection({ id: `compare-${key}`, name, options, value, choose: (i) => set({ [key]: i }) }))),
    h("div", { class: "beside" }, pair.map(([i], side) => facts(list[i], list[pair[1 - side][0]], nameOf(list[i], list)))),
    h("section", { class: "card" }, h("h2", {}, "The same head of both"), headPicker(context, "compare"),
      h("div", { class: "beside" }, pair.map(([i], side) => picture(context, list[i], `compare-${side}`, nameOf(list[i], list))))),
  ];
}

function alone(documents) {
  return note(documents.live
    ? "There is one translation so far. Look inside another sentence, or the same one in another language, with the form above: both can then be chosen here."
    : ["This file holds one model. ", h("code", {}, "transduce inspect MODEL \"sentence\" --compare OTHER --output page.html"), " puts another one, or an earlier checkpoint, beside it."]);
}

function facts(inspection, other, name) {
  const { model, source, target, confidence } = inspection;
  const { config } = model;
  const total = sum(target.log_probabilities);
  const fact = (term, value) => h("div", {}, h("dt", {}, term), h("dd", {}, value));
  const rows = target.pieces.map((_, i) => h("li", {}, h("span", { class: "target" }, label(target.pieces, i)), bar(Math.exp(target.log_probabilities[i]), percent(Math.exp(target.log_probabilities[i])), "target")));
  return h("section", { class: "card" }, h("h2", {}, name),
    h("p", { class: "text source" }, source.text),
    h("p", { class: "text", lang: model.target_language }, marked(other.target.text, target.text)),
    h("dl", { class: "facts" }, fact("log P", fixed(total)), fact("a piece", fixed(total / target.pieces.length)), fact("pieces", String(target.pieces.length)),
      confidence && fact("confidence", `${Math.round(confidence.sentence)} of 100`), fact("parameters", counted(model.parameters)), fact("layers", `${config.num_encoder_layers} + ${config.num_decoder_layers}`), fact("heads", String(config.num_heads)), fact("width", String(config.d_model))),
    h("details", { id: `pieces-${name}` }, h("summary", {}, "Piece by piece"), h("ol", { class: "path" }, rows)));
}

function picture({ state, set }, inspection, id, name) {
  const shown = bounded(state, inspection);
  const { rows, columns, value, most } = matrix(inspection, { ...shown, pool: "head" });
  const cell = chosenCell(shown);
  const { spread } = habits(inspection, shown);
  const title = `${name}: ${headName(shown)}`;
  return h("div", {}, h("h3", {}, name), heatmap({
    id, label: title, rows, columns, value, most: shown.by === "weight" ? 1 : most, ramp: rampOf(shown.attention), size: cellSize(columns.length, 26, Math.min(innerWidth - 60, 520)),
    chosen: { row: unitOf(rows, cell.query), column: unitOf(columns, cell.key) },
    choose: (row, column) => set(choosing(shown, rows[row].members[0], columns[column].members[0])),
    describe: (row, column) => `“${rows[row].label}” to “${columns[column].label}”: ${shown.by === "weight" ? percent(value(row, column)) : fixed(value(row, column), 3)}`,
  }), h("p", { class: "quiet" }, `Spreads over ${fixed(spread, 1)} keys.`));
}
