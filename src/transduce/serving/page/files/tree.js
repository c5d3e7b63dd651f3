// The beam search as a tree: a column for each step, the best beginnings on top.

import { s } from "transduce/dom";
import { fixed } from "transduce/numbers";
import { plain } from "transduce/pieces";

/** @typedef {import("./types.js").Node} Node */
/** @typedef {{search: import("./types.js").Search, byId: Map<number, Node>, children: Map<?number, Node[]>,
 *   columns: Node[][]}} Tree */

const LANE = 32;
const TOP = 30;

/** @param {import("./types.js").Search} search @param {boolean} withPruned @returns {Tree} */
export function treeOf(search, withPruned) {
  const nodes = withPruned ? search.nodes : search.nodes.filter((node) => node.state !== "pruned");
  const columns = [];
  const children = new Map();
  for (const node of nodes) {
    (columns[node.step - 1] ??= []).push(node);
    children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  }
  // As in the search: by probability so far, what goes on before what is dropped.
  for (const column of columns) column.sort((a, b) => (a.state === "pruned") - (b.state === "pruned") || b.sum - a.sum);
  return { search, columns, children, byId: new Map(nodes.map((node) => [node.id, node])) };
}

/** The way from the beginning to a node. @param {Tree} tree @param {number} id @returns {Node[]} */
export function pathTo(tree, id) {
  const path = [];
  for (let node = tree.byId.get(id); node; node = tree.byId.get(node.parent)) path.unshift(node);
  return path;
}

/** @param {Tree} tree
 * @param {{chosen: number, entrance: number, upTo: number, choose: (id: number) => void}} given
 *   `entrance`: the node that Tab leads to; `upTo`: the last step that is shown */
export function picture(tree, { chosen, entrance, upTo, choose }) {
  const columns = tree.columns.slice(0, upTo);
  const column = columnWidth(tree.columns.length);
  const width = column * (tree.columns.length + 0.3) + 30;
  const height = TOP + LANE * Math.max(1, ...tree.columns.map((column) => column.length)) + 8;
  const at = new Map(columns.flatMap((nodes, step) => nodes.map((node, lane) => [node.id, { x: 46 + column * step, y: TOP + LANE * (lane + 0.5) }])));
  const start = { x: 14, y: TOP + LANE * 0.5 };
  const best = new Set(pathTo(tree, tree.search.ranking[0]).map((node) => node.id));
  const greedy = new Set(tree.search.greedy.filter((id) => id !== null));
  const path = new Set(pathTo(tree, chosen).map((node) => node.id));
  const shown = columns.flat();
  const edges = shown.map((node) => edge(node, at.get(node.parent), at.get(node.id), { best, greedy, path, column, start }));
  const rank = new Map(tree.search.ranking.map((id, i) => [id, i + 1]));
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "tree", role: "group", "aria-label": "Tree of the beam search" },
    columns.map((_, step) => s("text", { x: 42 + column * (step + 0.34), y: 14, class: "step-number" }, String(step + 1))),
    edges, s("circle", { cx: start.x, cy: start.y, r: 5, class: "start" }),
    shown.map((node) => vertex(node, at.get(node.id), { isChosen: node.id === chosen, isEntrance: node.id === entrance, onBest: best.has(node.id), onPath: path.has(node.id), onGreedy: greedy.has(node.id), rank: rank.get(node.id), choose, wide: column * 0.68 })));
}

function edge(node, parent, to, { best, greedy, path, column, start }) {
  const from = parent ? { x: parent.x + column * 0.68 - 4, y: parent.y } : start;
  const middle = (from.x + to.x) / 2;
  const d = `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x - 4} ${to.y}`;
  const kinds = [node.state, best.has(node.id) && "best", path.has(node.id) && "path"].filter(Boolean).join(" ");
  // Two lines where the greedy way goes, so that it is seen on top of any other.
  return [s("path", { d, class: `edge ${kinds}` }), greedy.has(node.id) && s("path", { d, class: "edge greedy" })];
}

function vertex(node, { x, y }, { isChosen, isEntrance, onBest, onPath, onGreedy, rank, choose, wide }) {
  const kind = ["node", node.state, onBest && "best", onPath && "path", isChosen && "chosen", onGreedy && "greedy"].filter(Boolean).join(" ");
  const text = plain(node.piece);
  return s("g", {
    class: kind, id: `node-${node.id}`, transform: `translate(${x} ${y})`, tabindex: isEntrance ? 0 : -1, role: "button", "aria-pressed": String(isChosen),
    "aria-label": `Step ${node.step}: ${text}, ${node.state}, log-probability so far ${fixed(node.sum)}${onGreedy ? ", greedy" : ""}`, onclick: () => choose(node.id),
  }, s("rect", { x: -4, y: -11, width: wide, height: 22, rx: 6 }),
  s("text", { x: 3, y: 4 }, shortened(text, wide)),
  rank && s("text", { x: wide - 1, y: 4, class: "rank" }, `#${rank}`), s("title", {}, `${text}: ${fixed(node.log_probability)} here, ${fixed(node.sum)} so far, score ${fixed(node.score, 3)}`));
}

/** As wide as there is room for, and wide enough to read. @param {number} count  of columns */
const columnWidth = (count) => Math.max(84, Math.min(112, (Math.min(innerWidth, 1240) - 130) / (count + 0.3)));

/** About so much of the text as is `width` pixels wide. @param {string} text @param {number} width */
const shortened = (text, width) => (text.length * 7.9 > width - 2 ? `${text.slice(0, Math.floor((width - 14) / 7.4))}…` : text);

/** Where an arrow key leads: to the parent, to the best child, to the node above or below.
 * @param {Tree} tree @param {number} id @param {string} key @returns {?number} */
export function neighbour(tree, id, key) {
  const node = tree.byId.get(id);
  if (key === "ArrowLeft") return node.parent;
  const children = (tree.children.get(id) ?? []).toSorted((a, b) => b.sum - a.sum);
  if (key === "ArrowRight") return children[0]?.id ?? null;
  const column = tree.columns[node.step - 1];
  return column[column.indexOf(node) + (key === "ArrowDown" ? 1 : -1)]?.id ?? null;
}
