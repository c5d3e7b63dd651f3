// 5: the search as a tree: what was kept, dropped and finished, and where greedy search would have gone.

import { h, replace } from "transduce/dom";
import { explanation } from "transduce/explanation";
import { display, formula, fraction, group, size, sup } from "transduce/formula";
import { fixed, percent } from "transduce/numbers";
import { bar, note, tableBehind } from "transduce/parts";
import { END, joined, plain } from "transduce/pieces";
import { neighbour, pathTo, picture, treeOf } from "transduce/tree";

/** What is only looked at for a moment: up to which step the tree is drawn, and whether dropped nodes are. */
const shown = { pruned: true, step: 0, search: null, timer: 0 };

/** @param {import("./types.js").Context} context */
export function beamView(context) {
  const { inspection } = context;
  const { search } = inspection;
  const head = explanation({
    number: 5, title: "Beam", topics: ["beam_search", "length_penalty"],
    text: ["At each step the ", formula("b"), ` = ${search?.beam ?? "…"} likeliest beginnings are kept and all others dropped; one that takes </s> is finished. `,
      "Finished sentences are ranked by log-probability divided by ", formula("lp"), ", because every further piece costs probability and short sentences would otherwise win."],
    formula: [display("score", "(", "y", ")", "=", fraction(group("log", "P", "(", "y", "|", "x", ")"), group("lp", "(", "y", ")"))), display("lp", "(", "y", ")", "=", sup(group("(", fraction(group("5", "+", size("y")), "6"), ")"), "α"))],
  }, inspection);
  if (!search?.nodes.length) return [head, note("The search of this translation was not recorded.")];
  if (shown.search !== search) Object.assign(shown, { search, step: 0 });
  return [head, figure(context), h("div", { class: "columns" }, pathCard(context), ranking(context))];
}

const chosenNode = ({ inspection: { search }, state }) => (search.nodes.some((node) => node.id === state.node) ? state.node : search.ranking[0] ?? search.nodes[0].id);

/** Where the keyboard enters what is drawn: the chosen node, or the last one on the way to it that is drawn.
 * @param {import("./types.js").Search} search @param {import("./tree.js").Tree} tree @param {number} chosen
 * @param {number} upTo  the last step that is drawn */
function entrance(search, tree, chosen, upTo) {
  const drawn = (node) => tree.byId.has(node.id) && node.step <= upTo;
  return pathTo(treeOf(search, true), chosen).findLast(drawn)?.id ?? tree.columns[0][0].id;
}

function figure(context) {
  const { inspection: { search, target }, set, redraw } = context;
  const tree = treeOf(search, shown.pruned);
  const chosen = chosenNode(context);
  const last = tree.columns.length;
  const place = h("div", {
    class: "wide tree-frame", id: "tree", role: "group", "aria-label": "Search tree",
    onkeydown: (event) => {
      const isPress = event.key === "Enter" || event.key === " ";
      if (!isPress && !event.key.startsWith("Arrow")) return;
      event.preventDefault();
      const current = entrance(search, tree, chosen, shown.step || last);
      const next = isPress ? current : neighbour(tree, current, event.key);
      if (next === null || tree.byId.get(next).step > (shown.step || last)) return;
      set({ node: next });
      document.getElementById(`node-${next}`)?.focus();
    },
  });
  const draw = () => {
    const upTo = shown.step || last;
    replace(place, picture(tree, { chosen, entrance: entrance(search, tree, chosen, upTo), upTo, choose: (node) => set({ node }) }));
  };
  draw();
  const slider = h("input", {
    type: "range", id: "step", min: 1, max: last, value: shown.step || last,
    oninput: () => {
      shown.step = Number(slider.value);
      draw();
    },
  });
  return h("section", { class: "card" },
    h("div", { class: "title-row" }, h("h2", {}, `Beam ${search.beam}, length penalty α = ${search.length_penalty}`),
      h("div", { class: "actions" }, h("label", { class: "slider" }, h("span", {}, "Up to step"), slider), h("button", { type: "button", id: "play", onclick: () => play(slider, last) }, "Play"),
        h("label", { class: "tick" }, h("input", { type: "checkbox", id: "pruned", checked: shown.pruned, onchange: (event) => { shown.pruned = event.target.checked; redraw(); } }), h("span", {}, "Dropped ones")))),
    place, key(), greedyWords(search), nodesTable(search));
}

/** Step by step, or at once for those who want no motion. */
function play(slider, last) {
  clearInterval(shown.timer);
  const show = (step) => {
    slider.value = step;
    slider.dispatchEvent(new Event("input"));
  };
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    show(last);
    return;
  }
  show(1);
  shown.timer = setInterval(() => {
    if (slider.isConnected && Number(slider.value) < last) show(Number(slider.value) + 1);
    else clearInterval(shown.timer);
  }, 450);
}

function key() {
  const entry = (kind, text) => h("span", { class: `entry ${kind}` }, h("i", { "aria-hidden": "true" }), text);
  return h("p", { class: "key" }, entry("best", "best translation"), entry("kept", "kept"), entry("finished", "finished, with its rank"), entry("pruned", "dropped"), entry("greedy", "greedy search"));
}

function greedyWords({ greedy, nodes, ranking }) {
  const left = greedy.indexOf(null);
  const byId = new Map(nodes.map((node) => [node.id, node]));
  if (left >= 0) return h("p", { class: "quiet" }, `Greedy search leaves the tree at step ${left + 1}: what it takes there was not among the beginnings that were kept.`);
  const end = greedy.at(-1);
  const rank = ranking.indexOf(end);
  if (rank === 0) return h("p", { class: "quiet" }, "Greedy search finds the best translation, too.");
  return h("p", { class: "quiet" }, rank > 0 ? `Greedy search finds the translation that comes out number ${rank + 1}.` : `Greedy search stays in the tree until “${plain(byId.get(end).piece)}”.`);
}

function pathCard(context) {
  const { inspection: { search } } = context;
  const tree = treeOf(search, true);
  const path = pathTo(tree, chosenNode(context));
  const node = path.at(-1);
  return h("section", { class: "card", "aria-live": "polite" }, h("h2", {}, "The chosen way"),
    h("p", { class: "text" }, joined(path.map((one) => one.piece)) || "at the beginning", node.piece === END && h("span", { class: "quiet" }, " </s>")),
    h("p", { class: "quiet" }, { kept: "Kept, and gone on from.", pruned: "Dropped at this step.", finished: `Finished; number ${search.ranking.indexOf(node.id) + 1} in the ranking.` }[node.state]),
    h("div", { class: "equation" }, display(fraction(fixed(node.sum, 3), sup(group("(", fraction(group("5", "+", String(node.step)), "6"), ")"), String(search.length_penalty))), "=", fixed(node.score, 3))),
    h("ol", { class: "path" }, path.map((one) => h("li", {}, h("span", { class: "target" }, plain(one.piece)), bar(Math.exp(one.log_probability), percent(Math.exp(one.log_probability)), "target")))));
}

function ranking(context) {
  const { inspection: { search, target }, set } = context;
  const tree = treeOf(search, true);
  return h("section", { class: "card" }, h("h2", {}, "Finished, best first"),
    h("ol", { class: "ranking" }, search.ranking.map((id) => {
      const node = tree.byId.get(id);
      return h("li", {}, h("button", { type: "button", class: "plain", id: `rank-${id}`, "aria-pressed": String(chosenNode(context) === id), onclick: () => set({ node: id }) },
        h("span", { class: "text" }, joined(pathTo(tree, id).map((one) => one.piece)) || "(nothing)"),
        h("span", { class: "quiet" }, `score ${fixed(node.score, 3)} · log P ${fixed(node.sum)} · ${node.step} pieces`)));
    })));
}

function nodesTable(search) {
  return tableBehind({
    id: "nodes", summary: "The same as a table", caption: "Every node of the search", head: ["step", "piece", "state", "after", "log-probability", "sum", "score"],
    rows: () => {
      const byId = new Map(search.nodes.map((node) => [node.id, node]));
      return search.nodes.map((node) => [String(node.step), plain(node.piece), node.state === "pruned" ? "dropped" : node.state, node.parent === null ? "start" : plain(byId.get(node.parent).piece), node.log_probability, node.sum, node.score]);
    },
  });
}
