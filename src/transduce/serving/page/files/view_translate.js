// 1: the sentence and its translation, piece by piece; what else could have stood in each place.

import { colour, inkOn } from "transduce/colour";
import { marked } from "transduce/difference";
import { h } from "transduce/dom";
import { explanation } from "transduce/explanation";
import { bold, display, formula, group, sub } from "transduce/formula";
import { fixed, percent, sum } from "transduce/numbers";
import { awaited, bar, legend, note, strip } from "transduce/parts";
import { END, joined, label } from "transduce/pieces";

/** Which other piece was taken in which place, until another sentence is looked at.
 * `found`: how it goes on, asked once.
 * @type {WeakMap<import("./types.js").Inspection, {position: number, token: number, found: Promise<any>}>} */
const taken = new WeakMap();

/** @param {import("./types.js").Context} context */
export function translateView(context) {
  const { inspection } = context;
  return [
    explanation({
      number: 1, title: "Translate", topics: ["output", "decoder_layer"],
      text: ["The encoder turns the source ", formula("x"), " into the memory ", formula(bold("z")), ", and the decoder writes the target one piece at a time, each with a probability given the memory and all pieces before it. ",
        "Choose a piece of the target to see what else could have stood there, and take it to see how the sentence would have gone on."],
      formula: display("P", "(", "y", "|", "x", ")", "=", group(sub("∏", "t")), "p", "(", sub("y", "t"), "|", sub("y", group("<", "t")), ",", bold("z"), ")"),
    }, inspection),
    sides(context),
    h("div", { class: "columns" }, place(context), others(inspection)),
    inspection.reference && reference(inspection),
  ];
}

/** The share of the ramp that is used: behind text, all of it is too dark. */
const STRONGEST = 0.6;

/** How a piece of this probability is coloured: the less sure, the stronger. */
function surprise(probability) {
  const background = colour("target", STRONGEST * (1 - probability));
  return { style: { "background-color": background, color: inkOn(background) }, class: probability < 0.5 ? "unsure" : "" };
}

/** Pieces of a target coloured by their probability. */
function colouredStrip({ id, side, name, chosen, choose }) {
  const strips = strip({ id, side: "target", pieces: side.pieces, chosen, label: name, choose });
  [...strips.children].forEach((button, i) => {
    const probability = Math.exp(side.log_probabilities[i]);
    const { style, class: kind } = surprise(probability);
    for (const [key, value] of Object.entries(style)) button.style.setProperty(key, value);
    if (kind) button.classList.add(kind);
    button.setAttribute("aria-label", `${label(side.pieces, i)}, ${percent(probability)}`);
  });
  return strips;
}

function sides({ inspection, state, set }) {
  const { source, target, model, confidence } = inspection;
  const total = sum(target.log_probabilities);
  return h("section", { class: "card sides" },
    h("div", { class: "line" }, h("h2", { class: "side source" }, `source ${model.source_language ?? ""}`),
      strip({ id: "large-source", side: "source", pieces: source.pieces, chosen: state.source, label: "Source piece", choose: (place) => set({ source: place }) })),
    h("div", { class: "line" }, h("h2", { class: "side target" }, `target ${model.target_language ?? ""}`),
      colouredStrip({ id: "large-target", side: target, name: "Target piece", chosen: state.target, choose: (place) => set({ target: place }) })),
    h("div", { class: "under" },
      legend("target", "sure", "unsure", "", STRONGEST),
      h("p", { class: "quiet" }, formula("log", "P", "(", "y", "|", "x", ")"), ` = ${fixed(total)}, ${fixed(total / target.pieces.length)} a piece`,
        confidence && `; calibrated confidence ${Math.round(confidence.sentence)} of 100`)),
    confidence && h("details", { id: "word-confidence" }, h("summary", {}, "How sure each word may be taken to be"),
      h("p", { class: "confidence" }, confidence.words.map(({ word, confidence: sure }) =>
        h("span", { class: "word" }, word, h("small", {}, percent(sure)))))));
}

/** What the model thought of at the chosen place. */
function place(context) {
  const { inspection, state, set, documents, redraw, say } = context;
  const { pieces, steps } = inspection.target;
  const at = state.target;
  const step = steps?.[at];
  if (!step) return null;
  const choices = step.alternatives.map((one) => {
    const isChosen = one.token === inspection.target.ids[at];
    const held = documents.live || inspection.continuations?.some((known) => known.position === at && known.token === one.token);
    const take = () => {
      taken.set(inspection, { position: at, token: one.token, found: documents.goOn(inspection, at, one.token) });
      say(`Going on from ${one.piece.replace("▁", "")}`);
      redraw();
    };
    return h("li", { class: isChosen ? "chosen" : "" },
      h("button", { type: "button", id: `choice-${one.token}`, class: "take", disabled: isChosen || !held, onclick: take },
        h("span", { class: "piece-name" }, one.piece.replace(/^▁/, "") || "␣"), bar(one.probability, percent(one.probability), "target")));
  });
  const before = joined(pieces.slice(0, at));
  return h("section", { class: "card" },
    h("h2", {}, "What could stand here"),
    h("p", { class: "beginning" }, h("span", { class: "quiet" }, before || "at the beginning"), " ", h("b", { class: "target" }, pieces[at] === END ? END : label(pieces, at))),
    h("ol", { class: "choices" }, choices),
    h("p", { class: "quiet" }, "Taken: number ", String(step.chosen_rank), " of all pieces by probability. Entropy ", formula("H"), ` = ${fixed(step.entropy)} nats, as undecided as between ${fixed(Math.exp(step.entropy), step.entropy < 2.3 ? 1 : 0)} equally likely pieces.`),
    variation({ inspection, documents, set, redraw }));
}

/** How the sentence goes on from a piece that was taken instead. */
function variation({ inspection, documents, set, redraw }) {
  const choice = taken.get(inspection);
  if (!choice) return null;
  const back = () => {
    taken.delete(inspection);
    redraw();
  };
  return awaited(choice.found, (found) => {
    if (!found) return note("How it would go on from there is not kept in this file.");
    const { pieces, log_probabilities: scores, text } = found.continuation;
    const difference = sum(scores) - sum(inspection.target.log_probabilities);
    return h("div", { class: "variation", id: "variation", role: "region", "aria-label": "Another way on" },
      h("h3", {}, "Another way on"),
      h("p", { class: "text", lang: inspection.model.target_language }, marked(inspection.target.text, text)),
      h("p", { class: "quiet" }, formula("log", "P"), ` = ${fixed(sum(scores))}, ${fixed(Math.abs(difference))} ${difference < 0 ? "less" : "more"} than the translation above, from the piece “${pieces[choice.position].replace("▁", "")}” on${documents.live ? "" : " by greedy search"}.`),
      h("p", { class: "actions" }, found.place !== null && h("button", { type: "button", id: "look-inside", onclick: () => set({ document: found.place, target: choice.position }) }, "Look inside this one"),
        h("button", { type: "button", id: "take-back", class: "plain", onclick: back }, "Take back")));
  }, "Going on from there.");
}

/** The other translations that the search finished. */
function others({ alternatives, target, greedy, model }) {
  const best = alternatives[0];
  const most = Math.max(...alternatives.map((one) => Math.exp(one.log_probability)));
  return h("section", { class: "card" }, h("h2", {}, "What the search finished"),
    h("ol", { class: "alternatives" }, alternatives.map((one) => h("li", {},
      h("p", { class: "text", lang: model.target_language }, one === best ? one.text : marked(best.text, one.text)),
      bar(Math.exp(one.log_probability) / most, percent(Math.exp(one.log_probability)), "target"),
      h("span", { class: "quiet" }, `score ${fixed(one.score, 3)}`)))),
    h("p", { class: "quiet" }, greedy.text === target.text ? "Greedy search, which takes the likeliest piece each time, writes the same sentence."
      : ["Greedy search, which takes the likeliest piece each time, writes: ", h("span", { class: "text" }, marked(target.text, greedy.text))]));
}

/** How likely the model finds a translation that was given. */
function reference({ reference: side, target }) {
  const [theirs, ours] = [sum(side.log_probabilities), sum(target.log_probabilities)];
  const worst = side.steps?.map((step, i) => [step.chosen_rank, i]).filter(([rank]) => rank > 1).sort((a, b) => b[0] - a[0]).slice(0, 3) ?? [];
  return h("section", { class: "card" }, h("h2", {}, "The reference, as the model sees it"),
    colouredStrip({ id: "reference-pieces", side, name: "Piece of the reference", chosen: -1, choose: () => {} }),
    h("p", { class: "quiet" }, `Read by the decoder as if it had written it (forced decoding): log P = ${fixed(theirs)}, against ${fixed(ours)} for its own. `,
      worst.length ? `What surprised it most: ${worst.map(([rank, i]) => `“${label(side.pieces, i)}” (its number ${rank})`).join(", ")}.` : "It would have chosen every piece itself."));
}
