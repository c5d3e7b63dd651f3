// What is looked at, kept in the address after "#": a link, a reload and the back button show the same again.

/** @typedef {import("./types.js").State} State */

/** @type {State} */
const START = {
  view: "translate", document: 0, other: 1, attention: "encoder_decoder", layer: 0, head: 0, source: 0, target: 0,
  key: 0, by: "weight", unit: "piece", picture: "matrix", pool: "head", pair: 0, node: -1,
};

const COUNTED_FROM_ONE = ["document", "other", "layer", "head", "source", "target", "key", "pair"];

const CHOICES = {
  view: ["translate", "attention", "arithmetic", "positions", "beam", "layers", "compare"],
  attention: ["encoder", "decoder", "encoder_decoder"],
  by: ["weight", "norm"], unit: ["piece", "word"], picture: ["matrix", "lines"], pool: ["head", "mean", "max"],
};

/** @param {string} hash @returns {State} */
export function parse(hash) {
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
      const address = written(state);
      // Another view is a step that one goes back from; another cell of a matrix is not.
      if (state.view !== before.view) history.pushState(null, "", address);
      else history.replaceState(null, "", address);
      if (!quietly) changed();
    },
  };
}

/** A state within the bounds of a document: the address may be of another one.
 * @param {State} state
 * @param {import("./types.js").Inspection} inspection
 * @returns {State} */
export function bounded(state, inspection) {
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
