// The same numbers as lines from queries on the left to keys on the right, thicker where there is more.

import { h, s } from "transduce/dom";
import { roving } from "transduce/parts";

const ROW = 26;
const WIDTH = 260;

/** @param {{id: string, label: string, rows: import("./pieces.js").Unit[], columns: import("./pieces.js").Unit[],
 *   value: (row: number, column: number) => number, most: number, chosen: {row: number, column: number},
 *   choose: (row: number, column: number) => void, describe: (row: number, column: number) => string}} given */
export function lines({ id, label, rows, columns, value, most, chosen, choose, describe }) {
  const height = ROW * Math.max(rows.length, columns.length);
  const paths = rows.flatMap((_, row) => columns.map((_, column) => {
    const share = Math.min(1, value(row, column) / most);
    if (share < 0.02 || Number.isNaN(share)) return null;
    const [from, to] = [(row + 0.5) * ROW, (column + 0.5) * ROW];
    return s("path", {
      d: `M0 ${from} C${WIDTH * 0.45} ${from} ${WIDTH * 0.55} ${to} ${WIDTH} ${to}`,
      class: row === chosen.row ? "line chosen" : "line",
      "stroke-width": (0.75 + 7 * share).toFixed(2), "stroke-opacity": (row === chosen.row ? 0.25 + 0.75 * share : 0.12 * share + 0.03).toFixed(3),
    });
  }));
  const side = (list, kind, index, pick) => roving({
    class: `ends ${kind}`, label: kind, chosen: index, choose: pick,
    buttons: list.map((unit, i) => ({
      id: `${id}-${kind}-${i}`, content: unit.label, class: `${unit.side}`, aria: unit.aria,
      style: kind === "keys" ? { "--share": Math.min(1, value(chosen.row, i) / most || 0).toFixed(3) } : {},
    })),
  });
  return h("div", { class: "matrix" }, h("p", { class: "readout" }, describe(chosen.row, chosen.column)),
    h("div", { class: "lines", role: "group", "aria-label": label },
      side(rows, "queries", chosen.row, (row) => choose(row, chosen.column)),
      s("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, preserveAspectRatio: "none", "aria-hidden": "true" }, paths),
      side(columns, "keys", chosen.column, (column) => choose(chosen.row, column))));
}
