// 4: what tells the positions apart: the whole table as a heat map, and one pair of dimensions as clock hands.

import { h, replace, s } from "transduce/dom";
import { explanation } from "transduce/explanation";
import { d_k, d_model, display, formula, fraction, group, sub, sup } from "transduce/formula";
import { thumbnail } from "transduce/heatmap";
import { fixed, largest, power, row, values } from "transduce/numbers";
import { legend, note, tableBehind } from "transduce/parts";
import { END, label } from "transduce/pieces";
import { dot } from "transduce/arithmetic";

/** @param {import("./types.js").Context} context */
export function positionsView(context) {
  const { inspection } = context;
  const { kind, table } = inspection.positions;
  if (kind === "rotary") return [rotary(inspection)];
  const head = explanation({
    number: 4, title: "Positions", topics: ["positions", "embedding"],
    text: ["Attention alone sees a set and no order, so ", formula("PE", "(", "pos", ")"), " is added to every embedding. ",
      "Each pair of dimensions is the hand of a clock that turns at its own speed: however far two positions are in, the same distance is always the same turn."],
    formula: [display(sub("PE", group("pos", ",", "2i")), "=", "sin", "(", fraction("pos", sup("10000", group("2i", "/", d_model()))), ")"), display(sub("PE", group("pos", ",", "2i+1")), "=", "cos", "(", fraction("pos", sup("10000", group("2i", "/", d_model()))), ")")],
  }, inspection);
  if (!table) return [head, note("This model has no positions: nothing marks the order, and a sentence is a set of pieces to its encoder.")];
  const learned = kind === "learned" ? note("The positions of this model were learned (Table 3, row E): nothing makes its pairs of dimensions clock hands, but their similarity may still fall with distance.") : null;
  return [head, learned, heat(kind === "sinusoidal" ? sinusoids(table) : asTable(table), context), kind === "sinusoidal" ? clocks(context, table) : null, similarity(context, kind === "sinusoidal" ? sinusoids(table) : asTable(table))];
}

/** Of a model that adds nothing to its embeddings, but turns queries and keys.
 * @param {import("./types.js").Inspection} inspection */
function rotary(inspection) {
  return explanation({
    number: 4, title: "Positions", topics: ["positions", "embedding"],
    text: ["Attention alone sees a set and no order. This model has rotary positions: nothing is added to an embedding. Instead, self-attention turns each pair ",
      formula("i"), " of the components of a query or a key, like the hand of a clock, by an angle that grows with its position ", formula("pos"),
      ". The product of a turned query and a turned key, which decides the attention between them, then depends on the distance of their positions only (Su et al. 2021)."],
    formula: [display("angle", "=", fraction("pos", sup("10000", group("2i", "/", d_k()))))],
  }, inspection);
}

/** @typedef {{length: number, width: number, numbers: Float32Array|Float64Array, known: number, difference: ?number}} Table
 *  `known`: so many rows are the model's own; `difference`: the largest one between those and the formula */

/** At least so many positions are drawn: a short sentence shows too little of a wave. */
const FEWEST = 64;

/** @param {import("./types.js").Packed} packed @returns {Table} */
function asTable(packed) {
  const [length, width] = packed.shape;
  return { length, width, numbers: values(packed), known: length, difference: null };
}

/** The model's rows, gone on with by the formula, which is first held against them.
 * @param {import("./types.js").Packed} packed @returns {Table} */
function sinusoids(packed) {
  const [known, width] = packed.shape;
  const length = Math.max(FEWEST, known);
  const numbers = new Float64Array(length * width);
  let difference = 0;
  for (let i = 0; i < numbers.length; i++) {
    const [position, dimension] = [Math.floor(i / width), i % width];
    const angle = position / 10000 ** ((dimension - (dimension % 2)) / width);
    numbers[i] = dimension % 2 ? Math.cos(angle) : Math.sin(angle);
    if (position >= known) continue;
    const own = values(packed)[i];
    difference = Math.max(difference, Math.abs(numbers[i] - own));
    numbers[i] = own;
  }
  return { length, width, numbers, known, difference };
}

function heat({ length, width, numbers, known, difference }, { state, set }) {
  const most = largest(Array.from(numbers, Math.abs)) || 1;
  const whole = `${length} positions of ${width} dimensions`;
  const readout = h("p", { class: "readout" }, whole);
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const within = (value, count) => Math.max(0, Math.min(count - 1, Math.floor(value * count)));
    return [within((event.clientY - box.top) / box.height, length), within((event.clientX - box.left) / box.width, width)];
  };
  const picture = thumbnail(numbers, width, most, "signed");
  picture.classList.add("wide-heat");
  picture.style.height = `${Math.min(440, Math.max(150, length * 5))}px`;
  picture.addEventListener("pointermove", (event) => {
    const [position, dimension] = at(event);
    readout.textContent = `position ${position}, dimension ${dimension}: ${fixed(numbers[position * width + dimension], 4)}`;
  });
  picture.addEventListener("pointerleave", () => { readout.textContent = whole; });
  picture.addEventListener("click", (event) => set({ pair: Math.floor(at(event)[1] / 2) }));
  const mark = h("span", { class: "pair-mark", id: "pair-mark", style: { left: `${(200 * state.pair) / width}%`, width: `${200 / width}%` } });
  return h("section", { class: "card" }, h("h2", {}, "The table"), readout,
    h("div", { class: "heat-frame", role: "img", "aria-label": `Heat map of ${length} positions by ${width} dimensions` }, picture, mark, known < length && h("span", { class: "known-mark", style: { height: `${(100 * known) / length}%` } }, h("small", {}, "this sentence"))),
    h("p", { class: "axis quiet" }, h("span", {}, "↓ position"), h("span", {}, "dimension →")),
    legend("signed", fixed(-most, 1), fixed(most, 1), ""),
    difference !== null && h("p", { class: "quiet" }, `The rows of this sentence are the model’s own, the others your browser’s by the formula above; where both are known they differ by at most ${power(difference)}.`),
    tableBehind({
      id: "positions-table", summary: "The same as a table", caption: "Encodings of the positions, first 16 dimensions", head: ["position", ...Array.from({ length: Math.min(16, width) }, (_, i) => String(i))],
      rows: () => Array.from({ length }, (_, position) => [String(position), ...numbers.subarray(position * width, position * width + Math.min(16, width))]),
    }));
}

/** One clock for each position; the slider chooses the pair of dimensions, and with it the speed. */
function clocks({ inspection, state, set }, table) {
  const width = table.shape[1];
  const place = h("div", { class: "clocks" });
  const words = h("p", { class: "readout", "aria-live": "polite" });
  const draw = (pair) => {
    const wavelength = 2 * Math.PI * 10000 ** ((2 * pair) / width);
    words.textContent = `dimensions ${2 * pair} and ${2 * pair + 1}: once around in ${wavelength < 1000 ? fixed(wavelength, 1) : Math.round(wavelength).toLocaleString("en")} positions`;
    replace(place, inspection.source.pieces.slice(0, table.shape[0]).map((piece, position) => clock(row(table, position), pair, piece === END ? END : label(inspection.source.pieces, position), position)));
    const mark = document.getElementById("pair-mark");
    if (mark) mark.style.left = `${(200 * pair) / width}%`;
  };
  const slider = h("input", {
    type: "range", id: "pair", min: 0, max: width / 2 - 1, value: state.pair,
    oninput: () => {
      draw(Number(slider.value));
      set({ pair: Number(slider.value) }, true);
    },
  });
  draw(state.pair);
  return h("section", { class: "card" }, h("h2", {}, "One pair as clock hands"),
    h("label", { class: "slider" }, h("span", {}, "Pair ", formula("i")), slider), words, place,
    h("p", { class: "quiet" }, "The hand’s height is the sine, its reach to the right the cosine. The first pairs tell neighbours apart, the last ones the beginning of a long text from its end."));
}

function clock(encoding, pair, name, position) {
  const [sine, cosine] = [encoding[2 * pair], encoding[2 * pair + 1]];
  return h("figure", { class: "clock" },
    s("svg", { viewBox: "-1.2 -1.2 2.4 2.4", role: "img", "aria-label": `position ${position}: sine ${fixed(sine, 3)}, cosine ${fixed(cosine, 3)}` },
      s("circle", { r: 1, class: "face" }), s("path", { d: "M-1 0H1M0 -1V1", class: "cross" }),
      s("path", { d: `M${cosine} 0V${-sine}`, class: "sine" }), s("path", { d: `M0 0L${cosine} ${-sine}`, class: "hand" }), s("circle", { cx: cosine, cy: -sine, r: 0.11, class: "tip" })),
    h("figcaption", {}, h("span", { class: "source" }, name), h("small", { class: "quiet" }, String(position))));
}

/** How alike two positions are, by their distance. */
function similarity({ inspection: { positions: { kind } }, state }, { length, width, numbers }) {
  const from = Math.min(state.source, length - 1);
  const encoding = (position) => numbers.subarray(position * width, (position + 1) * width);
  const all = Array.from({ length }, (_, position) => dot(encoding(from), encoding(position)));
  const [low, high] = [Math.min(0, ...all), Math.max(...all)];
  const [w, t] = [Math.max(360, Math.min(760, innerWidth - 100)), 140];
  const x = (position) => (length > 1 ? 12 + (position / (length - 1)) * (w - 24) : w / 2);
  const y = (value) => 10 + (1 - (value - low) / (high - low || 1)) * (t - 20);
  return h("section", { class: "card" }, h("h2", {}, "How alike positions are"),
    h("p", { class: "quiet" }, formula("PE", "(", String(from), ")", "·", "PE", "(", "pos", ")"), ` from position ${from}, the chosen source piece, to all others${kind === "sinusoidal" ? ": it falls on both sides alike, whatever the position" : ""}.`),
    h("div", { class: "wide", id: "similarity", tabindex: 0, role: "region", "aria-label": "Similarity by position" }, s("svg", { viewBox: `0 0 ${w} ${t}`, width: w, height: t, class: "curve", role: "img", "aria-label": `Largest at position ${from}: ${fixed(all[from], 1)}` },
      s("path", { d: `M12 ${y(0)}H${w - 12}`, class: "zero" }),
      s("path", { d: all.map((value, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join(""), class: "similarity" }),
      all.map((value, i) => s("circle", { cx: x(i), cy: y(value), r: i === from ? 5 : 2.5, class: i === from ? "here" : "there" }, s("title", {}, `${i}: ${fixed(value, 2)}`))))));
}
