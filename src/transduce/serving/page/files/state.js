// What is looked at, kept in the address after "#": a link, a reload and the back button show the same again.

import { begun } from "transduce/beginning";

/** @typedef {import("./types.js").State} State */

/** Minus one stands for what is worth a look first, see beginning.js.
 * @type {State} */
const START = {
  view: "translate", document: 0, other: 1, attention: "encoder_decoder", layer: -1, head: -1, source: -1, target: -1,
  key: 0, by: "weight", unit: "piece", picture: "matrix", pool: "head", pair: 0, node: -1,
};

const COUNTED_FROM_ONE = ["document", "other", "layer", "head", "source", "target", "key", "pair"];

const CHOICES = {
  view: ["translate", "attention", "arithmetic", "positions", "beam", "layers", "compare"],
  attention: ["encoder", "decoder", "encoder_decoder"],
  by: ["weight", "norm"], unit: ["piece", "word"], picture: ["matrix", "lines"], pool: ["head", "mean", "max"],
};

/** @param {string} hash @returns {State} */
function parse(hash) {
  const state = { ...START };
  for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (name in CHOICES) {
      if (CHOICES[name].includes(text)) state[name] = text;
    } else if (name in START && /^\d{1,6}$/.test(text)) {
      state[name] = Math.max(START[name] < 0 ? -1 : 0, Number(text) - (COUNTED_FROM_ONE.includes(name) ? 1 : 0));
    }
  }
  return state;
}

/** The address of a state: only what differs from the start. @param {State} state */
export function written(state) {
  const parameters = new URLSearchParams({ view: state.view });
  for (const [name, value] of Object.entries(state)) {
    if (value === START[name] || name === "view") continue;
    parameters.set(name, COUNTED_FROM_ONE.includes(name) ? value + 1 : value);
  }
  return `#${parameters}`;
}

/** @param {() => void} changed  called after each change that is to be drawn */
export function createState(changed) {
  let state = parse(location.hash);
  // Browsers refuse to change the address a hundred times in a row, as a key that is held down would.
  let timer = 0;
  const keep = (one) => {
    clearTimeout(timer);
    if (location.hash !== written(one)) history.replaceState(null, "", written(one));
  };
  addEventListener("pagehide", () => keep(state));
  addEventListener("popstate", () => {
    state = parse(location.hash);
    changed();
  });
  return {
    get: () => state,
    /** @param {Partial<State>} changes @param {boolean} [quietly] already drawn by whoever calls */
    set(changes, quietly = false) {
      const before = state;
      state = { ...state, ...changes };
      if (state.view !== before.view) {
        keep(before);
        // Another view is a step that one goes back from; another cell of a matrix is not.
        history.pushState(null, "", written(state));
      } else {
        clearTimeout(timer);
        timer = setTimeout(() => keep(state), 100);
      }
      if (!quietly) changed();
    },
  };
}

/** A state within the bounds of a document: the address may be of another one.
 * @param {State} given
 * @param {import("./types.js").Inspection} inspection
 * @returns {State} */
export function bounded(given, inspection) {
  const state = begun(given, inspection);
  const within = (value, length) => Math.max(0, Math.min(value, length - 1));
  const maps = inspection.attention[state.attention];
  const width = inspection.model.config.d_model;
  return {
    ...state,
    layer: within(state.layer, maps.layers), head: within(state.head, maps.heads),
    source: within(state.source, inspection.source.pieces.length),
    target: within(state.target, inspection.target.pieces.length),
    key: within(state.key, maps.keys), pair: within(state.pair, Math.floor(width / 2)),
  };
}

/** The chosen row and column of the attention that is looked at. @param {State} state */
export const chosenCell = (state) => ({
  query: state.attention === "encoder" ? state.source : state.target,
  key: state.attention === "encoder_decoder" ? state.source : state.key,
});

/** The change of state that chooses a row and a column. @param {State} state @param {number} query @param {number} key */
export function choosing(state, query, key) {
  if (state.attention === "encoder") return { source: query, key };
  return state.attention === "decoder" ? { target: query, key } : { target: query, source: key };
}
