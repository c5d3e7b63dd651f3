// The parts that several views are made of: choices, strips of pieces, legends, waiting, problems.

import { h, replace } from "transduce/dom";
import { table } from "transduce/colour";
import { END, continues, label, plain } from "transduce/pieces";
import { fixed } from "transduce/numbers";

/** One of a few, all in sight.
 * @template T
 * @param {{id: string, name: string, options: [T, string][], value: T, choose: (value: T) => void}} given */
export function choice({ id, name, options, value, choose }) {
  return h("fieldset", { class: "choice" }, h("legend", {}, name),
    h("div", { class: "options" }, options.map(([one, text]) =>
      h("label", {}, h("input", {
        type: "radio", name: id, id: `${id}-${one}`, checked: one === value, onchange: () => choose(one),
      }), h("span", {}, text)))));
}

/** One of many, in a list that opens.
 * @template T
 * @param {{id: string, name: string, options: [T, string][], value: T, choose: (value: T) => void}} given */
export function selection({ id, name, options, value, choose }) {
  return h("label", { class: "selection" }, h("span", {}, name),
    h("select", { id, onchange: (event) => choose(options[event.target.selectedIndex][0]) },
      options.map(([one, text]) => h("option", { selected: one === value }, text))));
}

/** Buttons of which one is chosen; arrow keys go from one to the next, so that Tab passes by in one step.
 * @param {{label: string, buttons: {id: string, content: any, aria?: string, class?: string, style?: Object}[],
 *   chosen: number, choose: (index: number) => void, class: string, columns?: number}} given
 *   `columns`: with so many in a row, arrow up and down go by rows */
export function roving({ label: name, buttons, chosen, choose, class: kind, columns = 1 }) {
  const move = (event, index) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? buttons.length - 1 : step ? index + step : -1;
    if (step || event.key === "Home" || event.key === "End") event.preventDefault();
    if (next < 0 || next >= buttons.length) return;
    choose(next);
    document.getElementById(buttons[next].id)?.focus();
  };
  return h("div", { class: kind, role: "radiogroup", "aria-label": name }, buttons.map((one, index) =>
    h("button", {
      type: "button", role: "radio", id: one.id, class: one.class, style: one.style, "aria-label": one.aria,
      "aria-checked": String(index === chosen), tabindex: index === chosen || (chosen < 0 && index === 0) ? 0 : -1,
      onclick: () => choose(index), onkeydown: (event) => move(event, index),
    }, one.content)));
}

/** The pieces of one side in a row, one of them chosen.
 * @param {{id: string, side: "source"|"target", pieces: string[], chosen: number, label: string,
 *   choose: (place: number) => void, look?: (place: number) => Object}} given
 *   `look` gives further attributes of a button, such as a style */
export function strip({ id, side, pieces, chosen, label: name, choose, look }) {
  return roving({
    class: `strip ${side}`, label: name, chosen, choose,
    buttons: pieces.map((piece, place) => ({
      id: `${id}-${place}`, content: plain(piece),
      class: `piece${continues(pieces, place) ? " joins" : ""}${piece === END ? " end" : ""}`,
      aria: `${place + 1}: ${label(pieces, place)}`, ...look?.(place),
    })),
  });
}

/** The scale of a ramp with what its ends mean.
 * @param {import("./colour.js").Ramp} ramp @param {string} low @param {string} high @param {string} meaning
 * @param {number} [end] the share of the ramp that is used */
export function legend(ramp, low, high, meaning, end = 1) {
  const width = Math.round(256 * end);
  const canvas = h("canvas", { width, height: 1, "aria-hidden": "true" });
  canvas.getContext("2d").putImageData(new ImageData(table(ramp).slice(0, 4 * width), width, 1), 0, 0);
  return h("p", { class: "legend" }, h("span", {}, low), canvas, h("span", {}, high), h("span", { class: "quiet" }, meaning));
}

/** A bar with its number, for a share of a whole. @param {number} share @param {string} text @param {string} [kind] */
export function bar(share, text, kind = "") {
  return h("span", { class: `bar ${kind}` },
    h("span", { class: "track" }, h("span", { class: "fill", style: { width: `${Math.max(0, Math.min(1, share)) * 100}%` } })),
    h("span", { class: "figure" }, text));
}

/** What is said where something failed. @param {Error} error */
export const problem = (error) => h("p", { class: "problem", role: "alert" }, error.message);

/** A note in place of what cannot be shown. @param {...any} content */
export const note = (...content) => h("p", { class: "note" }, content);

/** A place that waits for a promise and then shows what `build` makes of its value.
 * @template T
 * @param {Promise<T>} promise
 * @param {(value: T) => any} build
 * @param {string} [waiting] */
export function awaited(promise, build, waiting = "One moment.") {
  const place = h("div", { class: "awaited", "aria-busy": "true" }, h("p", { class: "quiet" }, waiting));
  promise.then((value) => replace(place, build(value)), (error) => replace(place, problem(error)))
    .finally(() => place.removeAttribute("aria-busy"));
  return place;
}

/** A table that holds in words and numbers what a picture beside it shows.
 * @param {{id: string, summary: string, caption: string, head: string[], rows: (() => any[][])}} given
 *   `rows` is called when the table is first opened */
export function tableBehind({ id, summary, caption, head, rows }) {
  const body = h("tbody");
  const details = h("details", { id, class: "behind" }, h("summary", {}, summary),
    h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption }, h("table", {}, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))), body)));
  details.addEventListener("toggle", () => {
    if (!details.open || body.childElementCount) return;
    body.append(...rows().map(([first, ...others]) => h("tr", {}, h("th", { scope: "row" }, first),
      others.map((one) => h("td", {}, typeof one === "number" ? fixed(one, 3) : one)))));
  });
  return details;
}
