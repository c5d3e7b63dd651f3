// 2: where every head looks: layers by heads, and one of them as a matrix or as lines.

import { rampOf } from "transduce/colour";
import { h } from "transduce/dom";
import { explanation } from "transduce/explanation";
import { bold, d_k, display, formula, fraction, group, root, sub, sup } from "transduce/formula";
import { attentionChoice, attentionName, describeHead, headGrid, headName, headNumbers, mostOf } from "transduce/heads";
import { heatmap } from "transduce/heatmap";
import { lines } from "transduce/lines";
import { fixed, largest, percent, sum } from "transduce/numbers";
import { choice, legend, tableBehind } from "transduce/parts";
import { unitOf, units } from "transduce/pieces";
import { chosenCell, choosing } from "transduce/state";

/** @typedef {import("./types.js").Context} Context */

/** @param {Context} context */
export function attentionView(context) {
  const { inspection } = context;
  return [
    explanation({
      number: 2, title: "Attention", topics: ["scaled_dot_product", "multi_head", "encoder_layer"],
      text: ["For every query a head weighs all keys, ", formula(sub("α", group("t", "s"))), " between 0 and 1, and each row sums to 1. ",
        "What a key really adds is its weighted value behind the output projection, ", formula("‖", sub("α", group("t", "s")), sub(bold("v"), "s"), sup("W", "O"), "‖"), ": a large weight on a small value adds little."],
      formula: display("Attention", "(", bold("Q"), ",", bold("K"), ",", bold("V"), ")", "=", "softmax", "(", fraction(group(bold("Q"), sup(bold("K"), "T")), root(d_k())), ")", bold("V")),
    }, inspection),
    h("div", { class: "with-heads" }, chooser(context), h("section", { class: "card picture" }, picture(context))),
  ];
}

function chooser(context) {
  const { inspection, state, set } = context;
  const { spread, distance, end } = describeHead(inspection, state);
  return h("section", { class: "card" }, attentionChoice(context, "attention"), headGrid(context, "grid"),
    h("dl", { class: "facts" },
      h("div", {}, h("dt", {}, "spreads over"), h("dd", {}, fixed(spread, 1), h("small", {}, " keys"))),
      h("div", {}, h("dt", {}, "distance"), h("dd", {}, fixed(distance, 1), h("small", {}, " places"))),
      end !== null && h("div", {}, h("dt", {}, "to the end </s>"), h("dd", {}, percent(end)))),
    choice({ id: "by", name: "Drawn", options: [["weight", "Weight α"], ["norm", "Norm ‖αvWᴼ‖"]], value: state.by, choose: (by) => set({ by }) }),
    choice({ id: "pool", name: "Heads of the layer", options: [["head", "This one"], ["mean", "Mean"], ["max", "Strongest"]], value: state.pool, choose: (pool) => set({ pool }) }),
    choice({ id: "unit", name: "Rows and columns", options: [["piece", "Pieces"], ["word", "Words"]], value: state.unit, choose: (unit) => set({ unit }) }));
}

function picture(context) {
  const { inspection, state, set } = context;
  const shown = matrix(inspection, state);
  const { rows, columns, value } = shown;
  const cell = chosenCell(state);
  const chosen = { row: unitOf(rows, cell.query), column: unitOf(columns, cell.key) };
  const choose = (row, column) => set(choosing(state, rows[row].members[0], columns[column].members[0]));
  const describe = (row, column) => sentenceAbout(state, rows[row], columns[column], value(row, column));
  const given = {
    id: "weights", label: titleOf(state), rows, columns, value, most: shown.most, ramp: rampOf(state.attention), chosen, choose, describe,
    hidden: state.attention === "decoder" ? (row, column) => columns[column].members[0] > rows[row].members.at(-1) : undefined,
  };
  return [
    h("div", { class: "title-row" }, h("h2", { class: "sentence-case" }, titleOf(state)),
      choice({ id: "picture", name: "Picture", options: [["matrix", "Matrix"], ["lines", "Lines"]], value: state.picture, choose: (one) => set({ picture: one }) })),
    state.picture === "matrix" ? heatmap(given) : lines(given),
    state.by === "weight" ? legend(given.ramp, "0", "1", "weight") : legend(given.ramp, "0", fixed(shown.most), "norm; the most of all heads is the darkest"),
    h("p", { class: "quiet" }, axes(state)),
    tableBehind({
      id: "weights-table", summary: "The same as a table", caption: titleOf(state), head: ["query", ...columns.map((unit) => unit.label)],
      rows: () => rows.map((unit, row) => [unit.label, ...columns.map((_, column) => value(row, column))]),
    }),
  ];
}

const titleOf = (state) => (state.pool === "head" ? headName(state)
  : `${attentionName(state.attention).toLowerCase()} attention, layer ${state.layer + 1}, ${state.pool === "mean" ? "mean of its heads" : "strongest of its heads"}`);

function axes({ attention, unit, picture: kind }) {
  const merged = unit === "word" ? " A word’s row is the mean over its pieces, its column their sum." : "";
  const places = {
    encoder: "Rows: the source piece that asks. Columns: the source piece that is looked at.",
    decoder: "Rows: the piece that is about to be written. Columns: the pieces already written, behind the zero vector that starts the target; dots mark what the mask hides.",
    encoder_decoder: "Rows: the target piece that is about to be written. Columns: the source piece that is looked at.",
  };
  const text = places[attention] + merged;
  return kind === "lines" ? text.replace("Rows:", "Left:").replace("Columns:", "Right:").replace("; dots mark what the mask hides", "") : text;
}

function sentenceAbout({ attention, by }, query, key, value) {
  const verb = attention === "encoder" ? "looks at" : "when written, looked at";
  const amount = by === "weight" ? percent(value) : `adds ${fixed(value, 3)}`;
  return `“${query.label}” ${verb} “${key.label}”: ${amount}`;
}

/** What is drawn: rows, columns, and the value of each cell; pieces or words, one head or a layer's heads together.
 * @param {import("./types.js").Inspection} inspection
 * @param {import("./types.js").State} state */
export function matrix(inspection, state) {
  const { queries: rows, keys: columns } = units(inspection, state.attention, state.unit);
  const { heads, keys } = inspection.attention[state.attention];
  const pooled = state.pool === "head" ? [state.head] : Array.from({ length: heads }, (_, head) => head);
  const numbers = pooled.map((head) => headNumbers(inspection, { ...state, head }, state.by));
  const cells = rows.map((row) => columns.map((column) => {
    // Of each head first: what the strongest ones of several pieces sum to, no head has.
    const ofHeads = numbers.map((one) => {
      let total = 0;
      for (const query of row.members) for (const key of column.members) total += one[query * keys + key];
      return total / row.members.length;
    });
    return state.pool === "max" ? largest(ofHeads) : sum(ofHeads) / ofHeads.length;
  }));
  return { rows, columns, value: (row, column) => cells[row][column], most: mostOf(inspection, state.attention, state.by) };
}
