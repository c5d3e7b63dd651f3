// 6: how the prediction forms from layer to layer, and what becomes of the translation when a head is pruned.

import { colour, inkOn } from "transduce/colour";
import { marked } from "transduce/difference";
import { h } from "transduce/dom";
import { sameHead } from "transduce/documents";
import { explanation } from "transduce/explanation";
import { bold, display, formula, sub } from "transduce/formula";
import { ATTENTIONS, attentionName, headName } from "transduce/heads";
import { fixed, percent, sum } from "transduce/numbers";
import { awaited, legend, note, roving } from "transduce/parts";
import { END, label, plain } from "transduce/pieces";

/** The share of the ramp that is used: behind text, all of it is too dark. */
const STRONGEST = 0.6;

/** @param {import("./types.js").Context} context */
export function layersView(context) {
  const { inspection } = context;
  const { norm_order: order, normalization } = inspection.model.config;
  const isPost = order !== "pre";
  const norm = { batch: "BatchNorm", layer: "LayerNorm", rms: "RMSNorm" }[normalization];
  return [
    explanation({
      number: 6, title: "Layers", topics: ["decoder_layer", "output", "encoder_layer"],
      text: ["Every decoder layer changes the vector ", formula(sub(bold("x"), "t")), " of a position a little; read through the output projection, each layer shows what would have been written if it were the last (the logit lens, nostalgebraist 2020). ",
        "Pruning a head takes its part out of the sum, and shows what it was good for in this sentence."],
      formula: isPost ? display(bold("x"), "←", norm, "(", bold("x"), "+", "Sublayer", "(", bold("x"), ")", ")") : display(bold("x"), "←", bold("x"), "+", "Sublayer", "(", norm, "(", bold("x"), ")", ")"),
    }, inspection),
    inspection.layers ? lens(context) : note("What the layers would have written was not recorded."),
    pruning(context),
  ];
}

function lens({ inspection: { layers, target }, state, set }) {
  const last = layers.predictions.length - 1;
  const cell = (predictions, layer, position) => {
    const [best] = predictions;
    const right = best.piece === target.pieces[position];
    const background = colour("target", STRONGEST * best.probability);
    return h("td", {
      class: `${right ? "right" : ""}${position === state.target ? " chosen" : ""}`, style: { "background-color": background, color: inkOn(background) },
      title: predictions.map((one) => `${plain(one.piece)} ${percent(one.probability)}`).join(", "),
    }, plain(best.piece), h("small", {}, percent(best.probability)));
  };
  const rows = layers.predictions.map((positions, layer) => h("tr", {}, h("th", { scope: "row" }, `Layer ${layer + 1}`), positions.map((one, position) => cell(one, layer, position))));
  const head = target.pieces.map((piece, position) => h("th", { scope: "col", class: position === state.target ? "chosen" : "" },
    h("button", { type: "button", class: "plain target", id: `lens-${position}`, "aria-pressed": String(position === state.target), onclick: () => set({ target: position }) }, piece === END ? END : label(target.pieces, position))));
  const chosen = layers.predictions.map((positions, layer) => h("li", {}, h("b", {}, `Layer ${layer + 1}`), positions[state.target].map((one) => h("span", {}, plain(one.piece), " ", h("small", { class: "quiet" }, percent(one.probability)))),
    h("small", { class: "quiet" }, formula("‖", bold("x"), "‖"), ` = ${fixed(layers.norms[layer][state.target], 1)}`)));
  return h("section", { class: "card" }, h("h2", {}, "What each layer would write"),
    h("div", { class: "wide", id: "lens", tabindex: 0, role: "region", "aria-label": "Prediction of each layer at each position" },
      h("table", { class: "lens" }, h("caption", { class: "unseen" }, "The likeliest piece after each decoder layer; the last layer is the model’s own prediction"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "quiet" }, "written"), head)), h("tbody", {}, rows.reverse()))),
    h("div", { class: "under" }, legend("target", "0 %", "100 %", "probability; a line below marks what was written in the end", STRONGEST)),
    h("h3", {}, "At ", h("b", { class: "target" }, label(target.pieces, state.target))),
    h("ol", { class: "thoughts" }, chosen.reverse()));
}

/** Of which inspections every head is being pruned, however often they are drawn meanwhile.
 * @type {WeakMap<import("./types.js").Inspection, Promise<void>>} */
const measuring = new WeakMap();

function pruning(context) {
  const { inspection, documents, redraw } = context;
  const known = inspection.pruned_heads ?? [];
  const all = sum(ATTENTIONS.map(([attention]) => inspection.attention[attention]).map(({ layers, heads }) => layers * heads));
  const measure = () => {
    const measured = documents.pruneAllHeads(inspection).finally(() => measuring.delete(inspection));
    measuring.set(inspection, measured);
    redraw();
    measured.then(redraw, () => {});
  };
  return h("section", { class: "card" }, h("h2", {}, "Prune a head"),
    h("p", {}, "How much less likely the translation becomes without each head, in nats; a dot where the model then writes something else."),
    !known.length && !documents.live ? note("This file was made without it (--quick).") : [
      h("div", { class: "pruned-grids" }, ATTENTIONS.map(([attention]) => grid(context, attention, known))),
      known.length > 0 && legend("signed", `+${fixed(most(inspection), 1)}`, `−${fixed(most(inspection), 1)}`, "log-probability: likelier without the head, or less likely"),
      documents.live && known.length < all && (measuring.has(inspection)
        ? awaited(measuring.get(inspection), () => null, "Pruning each head, one at a time.")
        : h("p", {}, h("button", { type: "button", id: "all-heads", onclick: measure }, "Measure every head"))),
      without(context),
    ]);
}

/** A loss in words, as the legend has them. @param {number} less  nats */
const inNats = (less) => `${less < 0 ? "likelier" : "less likely"} by ${fixed(Math.abs(less), 2)} nats`;

/** Nats by which the translation becomes less likely without a head. */
const loss = (inspection, one) => sum(inspection.target.log_probabilities) - one.log_probability_of_target;

const most = (inspection) => Math.max(1e-9, ...inspection.pruned_heads.map((one) => Math.abs(loss(inspection, one))));

function grid({ inspection, state, set }, attention, known) {
  const { layers, heads } = inspection.attention[attention];
  const all = Array.from({ length: layers * heads }, (_, i) => ({ attention, layer: Math.floor(i / heads), head: i % heads }));
  const scale = known.length ? most(inspection) : 1;
  const chosen = state.attention === attention ? state.layer * heads + state.head : -1;
  const buttons = all.map((head) => {
    const one = known.find(sameHead(head));
    const background = colour("signed", one ? loss(inspection, one) / scale : 0);
    return {
      id: `pruned-${attention}-${head.layer}-${head.head}`, class: `tile${one?.changed ? " changed" : ""}${one ? "" : " unknown"}`,
      style: { "background-color": background, color: inkOn(background) }, content: one ? (one.changed ? "●" : "") : "",
      aria: `layer ${head.layer + 1}, head ${head.head + 1}${one ? `: ${inNats(loss(inspection, one))}${one.changed ? ", changes the translation" : ""}` : ""}`,
    };
  });
  const tiles = roving({ class: "tiles", label: `${attentionName(attention)} head`, chosen, columns: heads, choose: (i) => set(all[i]), buttons });
  tiles.style.setProperty("--heads", heads);
  return h("div", { class: "pruned-grid" }, h("h3", {}, attentionName(attention)), tiles, h("p", { class: "axis quiet" }, h("span", {}, "↓ layer"), h("span", {}, "head →")));
}

function without({ inspection, documents, state }) {
  const head = { attention: state.attention, layer: state.layer, head: state.head };
  return awaited(documents.prunedHead(inspection, head), (one) => {
    if (!one) return note(`What happens without ${headName(head)} is not kept in this file.`);
    const less = loss(inspection, one);
    return h("div", { class: "variation", id: "without" }, h("h3", {}, `Without ${headName(head)}`),
      h("p", { class: "text", lang: inspection.model.target_language }, marked(inspection.target.text, one.text)),
      h("p", { class: "quiet" }, one.changed ? "" : "The translation stays the same. ",
        `The translation above becomes ${inNats(less)}, a factor of ${fixed(Math.exp(Math.abs(less)), 2)}.`));
  });
}
