// Vectors as bars that stand up and hang down, one below the other, so that a column is one dimension.

import { h, s } from "transduce/dom";
import { largest } from "transduce/numbers";

const HEIGHT = 56;

/** @param {{label: string, rows: {name: any, values: ArrayLike<number>, kind: string}[],
 *   describe: (dimension: number) => string}} given  `kind` is the colour: "source", "target" or "signed" */
export function bars({ label, rows, describe }) {
  const width = rows[0].values.length;
  const first = Array.prototype.reduce.call(rows.at(-1).values, (best, one, i, all) => (Math.abs(one) > Math.abs(all[best]) ? i : best), 0);
  let chosen = first;
  const readout = h("p", { class: "readout", "aria-live": "polite" }, describe(first));
  const cursor = rows.map(() => s("rect", { class: "cursor", y: 0, width: 1, height: HEIGHT }));
  const show = (dimension) => {
    chosen = Math.max(0, Math.min(width - 1, dimension));
    readout.textContent = describe(chosen);
    for (const one of cursor) one.setAttribute("x", chosen);
  };
  const pointed = (event) => {
    const box = event.currentTarget.querySelector("svg").getBoundingClientRect();
    show(Math.floor(((event.clientX - box.left) / box.width) * width));
  };
  const byKey = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(chosen + step);
  };
  const picture = h("div", {
    class: "bars", tabindex: 0, role: "application", "aria-roledescription": "bar chart",
    "aria-label": `${label}. Arrow keys go from dimension to dimension.`, onpointermove: pointed, onkeydown: byKey,
  }, rows.map((row, i) => h("div", { class: "bar-row" }, h("span", { class: `bar-name ${row.kind}` }, row.name),
    one(row, width, cursor[i]))));
  show(first);
  return h("div", {}, picture, readout);
}

function one({ values, kind }, width, cursor) {
  const most = largest(Array.from(values, Math.abs)) || 1;
  const rectangles = Array.from(values, (value, i) => {
    const size = (Math.abs(value) / most) * (HEIGHT / 2 - 1);
    return s("rect", {
      x: i + 0.12, width: 0.76, y: value < 0 ? HEIGHT / 2 : HEIGHT / 2 - size, height: Math.max(size, 0.5),
      class: `${kind} ${value < 0 ? "negative" : "positive"}`,
    });
  });
  return s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, cursor,
    s("path", { d: `M0 ${HEIGHT / 2}H${width}`, class: "zero" }), rectangles);
}
