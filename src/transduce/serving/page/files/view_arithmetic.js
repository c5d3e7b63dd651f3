// 3: one head and one query, number by number, computed again in the browser and compared with the model.

import { TOLERANCE, compute, differences, isMasked } from "transduce/arithmetic";
import { bars } from "transduce/bars";
import { h } from "transduce/dom";
import { explanation } from "transduce/explanation";
import { bold, d_k, display, formula, fraction, group, root, sub, sumOver, sup } from "transduce/formula";
import { headName, headPicker } from "transduce/heads";
import { thumbnail } from "transduce/heatmap";
import { figure, fixed, largest, percent, power, row } from "transduce/numbers";
import { awaited, bar, legend, note } from "transduce/parts";
import { units } from "transduce/pieces";
import { chosenCell, choosing } from "transduce/state";

/** @typedef {import("./types.js").Context} Context */

/** @param {Context} context */
export function arithmeticView(context) {
  const { inspection } = context;
  return [
    explanation({
      number: 3, title: "Arithmetic", topics: ["scaled_dot_product", "softmax", "multi_head"],
      text: ["One query ", formula(bold("q")), " of one head, compared with every key ", formula(bold("k")), ": each number below is the model’s own, or computed from those by your browser in double precision. ",
        "At the end both are compared, for every query and key of this head."],
      formula: display(sub(bold("a"), "t"), "=", sumOver("s"), "softmax", "(", fraction(group(sub(bold("q"), "t"), "·", sub(bold("k"), "s")), root(d_k())), ")", sub(bold("v"), "s"), sup("W", "O")),
    }, inspection),
    h("section", { class: "card controls" }, headPicker(context, "arithmetic"), cellPicker(context)),
    body(context),
  ];
}

function body(context) {
  const { inspection, documents, state } = context;
  const score = inspection.model.config.attention_score;
  if (!["scaled_dot", "dot"].includes(score)) {
    const how = score === "additive" ? "a small network with one hidden layer, v·tanh(Wq + Uk) (Bahdanau et al. 2015)" : `the score “${score}”`;
    return note(`This model compares queries and keys by ${how}, and not by a product: there is no q·k to follow here. Its weights are in the view Attention.`);
  }
  const known = documents.arithmeticAtHand(inspection, state);
  if (known) return walk(context, known);
  return awaited(documents.arithmetic(inspection, { attention: state.attention, layer: state.layer, head: state.head }),
    (head) => (head ? walk(context, head) : notKept(context)), "Asking the model for q, k and v of this head.");
}

function notKept({ inspection, state, set }) {
  const kept = inspection.arithmetic ?? [];
  if (!kept.length) return note("This file holds no q, k and v.");
  const buttons = kept.slice(0, 24).map((one) => h("button", {
    type: "button", class: "plain", onclick: () => set({ attention: one.attention, layer: one.layer, head: one.head }),
  }, headName(one)));
  return h("div", { class: "note" }, h("p", {}, `The q, k and v of ${headName(state)} are not in this file, so as to keep it small. These are:`), h("div", { class: "offers" }, buttons));
}

/** The query and the key: the two pieces that the walk is about. */
function cellPicker({ inspection, state, set }) {
  const { queries, keys } = units(inspection, state.attention, "piece");
  const { query, key } = chosenCell(state);
  const select = (id, name, list, value, choose) => h("label", { class: "selection" }, h("span", {}, name),
    h("select", { id, class: list[value].side, onchange: (event) => choose(event.target.selectedIndex) },
      list.map((unit, i) => h("option", { selected: i === value }, `${i + 1} ${unit.label}`))));
  return h("div", { class: "picker" },
    select("query", "Query", queries, query, (i) => set(choosing(state, i, key))),
    select("key", "Key", keys, key, (i) => set(choosing(state, query, i))));
}

/** @param {Context} context @param {import("./types.js").Arithmetic} head */
function walk(context, head) {
  const { inspection, state } = context;
  const { queries, keys } = units(inspection, state.attention, "piece");
  const cell = chosenCell(state);
  const walked = {
    ...context, head, ...cell, keys, computed: compute(head, cell.query),
    queryUnit: queries[cell.query], keyUnit: keys[cell.key],
  };
  return h("div", { class: "walk" }, verdict(head), h("ol", { class: "steps" },
    product(walked), division(walked), softmax(walked), weightedValues(walked), contribution(walked), comparison(walked)));
}

function step(title, explained, ...figure) {
  return h("li", { class: "card step" }, h("div", { class: "step-words" }, h("h2", {}, title), explained), h("div", { class: "step-figure" }, figure));
}

function product({ head, query, key, queryUnit, keyUnit, computed }) {
  const q = row(head.query, query);
  const k = row(head.keys, key);
  const products = Array.from(q, (one, i) => one * k[i]);
  return step("Compare", h("p", {}, "The query of ", named(queryUnit), " meets the key of ", named(keyUnit), ". They agree in a dimension where both bars point the same way; all ", formula(d_k(), "=", String(head.d_k)), " products are summed."),
    bars({
      label: `Query of ${queryUnit.aria}, key of ${keyUnit.aria} and their products`,
      rows: [
        { name: formula(bold("q")), values: q, kind: queryUnit.side },
        { name: formula(bold("k")), values: k, kind: keyUnit.side },
        { name: formula(sub("q", "i"), sub("k", "i")), values: products, kind: "signed" },
      ],
      describe: (i) => `dimension ${i + 1}: ${fixed(q[i], 3)} × ${fixed(k[i], 3)} = ${fixed(products[i], 3)}`,
    }),
    equation(bold("q"), "·", bold("k"), "=", sumOver("i"), sub("q", "i"), sub("k", "i"), "=", result(computed.dots[key], 4)));
}

const named = (unit) => h("b", { class: unit.side }, unit.label);

const equation = (...parts) => h("div", { class: "equation" }, display(...parts));

const result = (value, digits) => fixed(value, digits);

function division({ head, key, query, computed }) {
  const scaled = Math.abs(head.scale - 1) > 1e-9;
  const masked = isMasked(head, query, key);
  return step("Divide", h("p", {}, scaled
    ? ["For components of mean 0 and variance 1 the sum has variance ", formula(d_k()), "; the division brings it back to 1, where the softmax still has a slope."]
    : "This model does not divide: its products go into the softmax as they are."),
    scaled && equation(fraction(group(bold("q"), "·", bold("k")), root(d_k())), "=", fraction(result(computed.dots[key], 4), root(String(head.d_k))), "=", result(computed.dots[key] * head.scale, 4)),
    masked && h("p", { class: "note" }, "The mask then sets it to −∞: this key stands behind the query in the target, and is not written yet."));
}

function softmax(walked) {
  const { head, query, key, keys, computed, state, set } = walked;
  const rows = keys.map((unit, i) => h("tr", { class: i === key ? "chosen" : computed.scores[i] === -Infinity ? "masked" : "" },
    h("th", { scope: "row" }, h("button", { type: "button", id: `key-row-${i}`, class: `plain ${unit.side}`, "aria-pressed": String(i === key), onclick: () => set(choosing(state, query, i)) }, unit.label)),
    h("td", {}, fixed(computed.dots[i], 3)), h("td", {}, fixed(computed.scores[i], 3)),
    h("td", {}, figure(computed.exponentials[i], 4)), h("td", { class: "weight" }, bar(computed.weights[i], figure(computed.weights[i], 4), head.attention))));
  return step("Mask and softmax", [
    h("p", {}, state.attention === "decoder" ? "Keys behind the query are masked: their score becomes −∞ and their weight 0. " : "No key is masked here: all of the source may be looked at. ",
      "Each score is raised to the power of e and divided by the sum, so that the weights sum to 1."),
    equation(sub("α", "s"), "=", fraction(sup("e", group(sub("z", "s"), "−", "max", "z")), group(sumOver("r"), sup("e", group(sub("z", "r"), "−", "max", "z"))))),
    h("p", { class: "quiet" }, formula("max", "z"), ` = ${fixed(computed.most, 3)}, the sum of the powers is ${fixed(computed.total, 4)}.`),
  ], h("div", { class: "wide scores", id: "scores", tabindex: 0, role: "region", "aria-label": "Scores and weights of every key" }, h("table", { class: "numbers" },
    h("caption", { class: "unseen" }, "Scores and weights of every key"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "key"), h("th", { scope: "col" }, "product ", formula(bold("q"), "·", bold("k"))), h("th", { scope: "col" }, "score ", formula("z")),
      h("th", { scope: "col" }, "power ", formula(sup("e", group("z", "−", "max")))), h("th", { scope: "col" }, "weight ", formula("α")))),
    h("tbody", {}, rows))));
}

function weightedValues({ head, keys, key, computed }) {
  const most = largest(computed.weighted.flat().map(Math.abs)) || 1;
  const strip = (numbers, name, kind) => h("div", { class: `vector ${kind}` }, h("span", { class: "vector-name" }, name), thumbnail(numbers, numbers.length, most, "signed"));
  return step("Sum the values", [
    h("p", {}, "Every key brings a value of ", formula(sub("d", "v"), "=", String(head.d_v)), " numbers, and its weight says how much of it counts. The sum is what this head has gathered for the query."),
    equation(bold("u"), "=", sumOver("s"), sub("α", "s"), sub(bold("v"), "s")),
  ], h("div", { class: "vectors", role: "img", "aria-label": `Weighted values of ${keys.length} keys, and their sum` },
    keys.map((unit, i) => strip(computed.weighted[i], h("span", { class: unit.side }, unit.label), i === key ? "chosen" : "")),
    strip(computed.attended, formula(bold("u")), "sum")), legend("signed", fixed(-most), fixed(most), ""), vectorTable(computed));
}

function vectorTable(computed) {
  return h("details", { id: "attended-numbers" }, h("summary", {}, "The sum, number by number"),
    h("p", { class: "all-numbers" }, computed.attended.map((one) => h("span", {}, fixed(one, 4)))));
}

function contribution({ head, keys, computed }) {
  const most = largest(computed.contribution.map(Math.abs)) || 1;
  const order = computed.keyNorms.map((one, i) => [one, i]).sort((a, b) => b[0] - a[0]).slice(0, 6);
  return step("Add", [
    h("p", {}, "The head’s rows of the output projection turn the sum into ", formula(sub("d", "model"), "=", String(head.output.shape[1])), " numbers, which are added to those of the other heads and to the residual stream."),
    equation("‖", bold("u"), sup("W", "O"), "‖", "=", result(computed.contributionNorm, 4)),
  ], h("div", { class: "vectors", role: "img", "aria-label": "What is added, one cell for each dimension" },
    h("div", { class: "vector sum" }, h("span", { class: "vector-name" }, formula(bold("u"), sup("W", "O"))), thumbnail(computed.contribution, computed.contribution.length, most, "signed"))),
  h("h3", {}, "Where it comes from: ", formula("‖", sub("α", "s"), sub(bold("v"), "s"), sup("W", "O"), "‖")),
  h("ul", { class: "origins" }, order.map(([one, i]) => h("li", {}, h("span", { class: keys[i].side }, keys[i].label), bar(one / (order[0][0] || 1), figure(one, 3), head.attention), h("span", { class: "quiet" }, `weight ${percent(computed.weights[i])}`)))));
}

function comparison({ head }) {
  const { weights, attended, norms } = differences(head);
  const line = (name, symbol, value) => h("tr", {}, h("th", { scope: "row" }, name, " ", symbol), h("td", {}, power(value)), h("td", {}, value < TOLERANCE ? "agrees" : "differs"));
  return step("Compare with the model", h("p", {}, `PyTorch computed the same in single precision. Shown is the largest difference over ${head.query.shape[0]} queries and ${head.keys.shape[0]} keys; single precision and another order of summation explain about 10⁻⁶.`),
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Largest differences to the model's numbers" }, h("table", { class: "numbers check" }, h("caption", { class: "unseen" }, "Largest differences to the model's numbers"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "numbers"), h("th", { scope: "col" }, "largest difference"), h("th", { scope: "col" }, "below 10⁻⁴"))),
      h("tbody", {}, line("weights", formula("α"), weights), line("sums", formula(bold("u")), attended), line("norms", formula("‖", bold("u"), sup("W", "O"), "‖"), norms)))));
}

/** Whether the browser and the model agree, in one line. */
function verdict(head) {
  const worst = Math.max(...Object.values(differences(head)));
  return worst < TOLERANCE
    ? h("p", { class: "verdict agrees", id: "verdict", "data-difference": worst }, h("b", {}, "✓ Recomputed in your browser."), ` Every number of this head agrees with the model’s; the largest difference is ${power(worst)}.`)
    : h("p", { class: "verdict differs", id: "verdict", "data-difference": worst, role: "alert" }, h("b", {}, "⚠ Do not trust this head."), ` What your browser computes differs from the model’s numbers by up to ${Number.isFinite(worst) ? power(worst) : "more than any number"}, and should by less than 10⁻⁴.`);
}
