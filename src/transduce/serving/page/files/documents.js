// Where inspections come from: out of the file that the page is, or from the server that gave the page.

import { ask, Problem } from "transduce/server";
import { joined } from "transduce/pieces";

/** @typedef {import("./types.js").Inspection} Inspection */
/** @typedef {import("./types.js").Head} Head */
/** @typedef {{source: string, target: string, model: string}} Model */
/** @typedef {{text: string, source?: string, target?: string, reference?: string, prefix?: number[], beam?: number}} Request
 *  what is asked first; `arithmetic`, `without_each` and `include` are added for what is wanted later */

/** Both kinds; null stands for what a file does not hold.
 * @typedef {Object} Documents
 * @property {boolean} live  whether new sentences can be asked for
 * @property {Inspection[]} list
 * @property {() => Promise<Model[]>} models
 * @property {(request: Request) => Promise<number>} translate  adds to the list, gives the place in it
 * @property {(inspection: Inspection, position: number, token: number) =>
 *   Promise<?{continuation: import("./types.js").Continuation, place: ?number}>} goOn
 * @property {(inspection: Inspection, head: Head) => ?import("./types.js").Arithmetic} arithmeticAtHand
 * @property {(inspection: Inspection, head: Head) => Promise<?import("./types.js").Arithmetic>} arithmetic
 * @property {(inspection: Inspection, head: Head) => Promise<?import("./types.js").PrunedHead>} prunedHead
 * @property {(inspection: Inspection) => Promise<void>} pruneAllHeads
 */

/** @returns {Documents} */
export function createDocuments() {
  const embedded = document.getElementById("documents");
  return embedded ? fromFile(JSON.parse(embedded.textContent)) : fromServer();
}

/** @param {Head} head @returns {(one: Head) => boolean} */
export const sameHead = (head) => (one) =>
  one.attention === head.attention && one.layer === head.layer && one.head === head.head;

const arithmeticAtHand = (inspection, head) => inspection.arithmetic?.find(sameHead(head)) ?? null;
const prunedHeadAtHand = (inspection, head) => inspection.pruned_heads?.find(sameHead(head)) ?? null;

/** @param {Inspection[]} list @returns {Documents} */
function fromFile(list) {
  const notHere = () => Promise.reject(new Problem("This page is a file and holds one sentence. `transduce serve` takes new ones."));
  return {
    live: false,
    list,
    models: async () => [],
    translate: notHere,
    goOn: async (inspection, position, token) => {
      const continuation = inspection.continuations?.find((one) => one.position === position && one.token === token);
      return continuation ? { continuation, place: null } : null;
    },
    arithmeticAtHand,
    arithmetic: async (inspection, head) => arithmeticAtHand(inspection, head),
    prunedHead: async (inspection, head) => prunedHeadAtHand(inspection, head),
    pruneAllHeads: notHere,
  };
}

const ALL_PARTS = ["attention", "search", "layers", "positions"];

/** @returns {Documents} */
function fromServer() {
  /** @type {Inspection[]} */
  const list = [];
  /** What was asked for each inspection: what is wanted later is asked in the same words.
   * @type {WeakMap<Inspection, Request>} */
  const requests = new WeakMap();
  const more = (inspection, changes) => ask("./v1/inspect", { include: [], ...requests.get(inspection), ...changes });
  /** What is being asked: a view that is drawn again meanwhile waits for the same answer.
   * @type {WeakMap<Inspection, Map<string, Promise<any>>>} */
  const pending = new WeakMap();

  function once(inspection, name, question) {
    if (!pending.has(inspection)) pending.set(inspection, new Map());
    const asked = pending.get(inspection);
    if (!asked.has(name)) asked.set(name, question().finally(() => asked.delete(name)));
    return asked.get(name);
  }

  async function translate(request) {
    const inspection = await ask("./v1/inspect", { ...request, include: ALL_PARTS });
    requests.set(inspection, request);
    return list.push(inspection) - 1;
  }

  return {
    live: true,
    list,
    models: async () => (await ask("./v1/models")).models,
    translate,
    goOn: async (inspection, position, token) => {
      const prefix = [...inspection.target.ids.slice(0, position), token];
      const place = await translate({ ...requests.get(inspection), prefix });
      return { continuation: asContinuation(list[place], position), place };
    },
    arithmeticAtHand,
    arithmetic: async (inspection, head) => arithmeticAtHand(inspection, head)
      ?? once(inspection, `arithmetic ${nameOfHead(head)}`, async () => {
        const [found] = (await more(inspection, { arithmetic: [head] })).arithmetic;
        (inspection.arithmetic ??= []).push(found);
        return found;
      }),
    prunedHead: async (inspection, head) => prunedHeadAtHand(inspection, head)
      ?? once(inspection, `pruned ${nameOfHead(head)}`, async () => {
        const [found] = (await more(inspection, { without_each: [head] })).pruned_heads;
        // All heads may have been measured meanwhile.
        if (!prunedHeadAtHand(inspection, head)) (inspection.pruned_heads ??= []).push(found);
        return found;
      }),
    pruneAllHeads: (inspection) => once(inspection, "pruned heads", async () => {
      inspection.pruned_heads = (await more(inspection, { include: ["pruned_heads"] })).pruned_heads;
    }),
  };
}

const nameOfHead = ({ attention, layer, head }) => [attention, layer, head].join(" ");

function asContinuation(inspection, position) {
  const { text, pieces, ids, log_probabilities } = inspection.target;
  const token = ids[position];
  return { position, token, piece: pieces[position], probability: Math.exp(log_probabilities[position]), text, pieces, log_probabilities };
}

/** How an inspection is called where there are several. @param {Inspection} inspection @param {Inspection[]} list */
export function nameOf(inspection, list) {
  const { name, source_language: source, target_language: target } = inspection.model;
  const sameModel = list.filter((one) => one.model.name === name && one.model.digest === inspection.model.digest);
  const languages = source && target && !name.includes(`${source}-${target}`) ? ` (${source} → ${target})` : "";
  return sameModel.length > 1 ? `${joined(inspection.target.pieces).slice(0, 60)} · ${name}` : `${name}${languages}`;
}
