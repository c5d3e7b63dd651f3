// The shapes of what the page reads, as JSDoc types; `transduce.inspection` writes them. There is no code here.

/** @typedef {"encoder"|"decoder"|"encoder_decoder"} Attention */

/** Numbers as base64 of little-endian values in C order; a value is `stored * scale`.
 * @typedef {{dtype: "float32"|"uint16"|"uint8", shape: number[], scale: number, data: string}} Packed */

/** @typedef {{token: number, piece: string, probability: number}} Choice */

/** @typedef {{chosen_rank: number, entropy: number, alternatives: Choice[]}} Step */

/** One side of the translation; `words[i]` is the number of the word that piece i is part of.
 * @typedef {{text: string, pieces: string[], ids: number[], words: number[],
 *            log_probabilities: ?number[], steps: ?Step[]}} Side */

/** @typedef {{layers: number, heads: number, queries: number, keys: number, weights: Packed, norms: Packed}} Maps */

/** @typedef {{attention: Attention, layer: number, head: number}} Head - layer and head from 0 */

/** @typedef {Head & {d_k: number, d_v: number, scale: number, query: Packed, keys: Packed, values: Packed,
 *            output: Packed, weights: Packed, attended: Packed, contribution_norms: number[]}} Arithmetic */

/** @typedef {{id: number, parent: ?number, step: number, token: number, piece: string, log_probability: number,
 *            sum: number, score: number, state: "kept"|"pruned"|"finished"}} Node */

/** @typedef {{beam: number, length_penalty: number, nodes: Node[], ranking: number[],
 *            greedy: (?number)[]}} Search */

/** @typedef {Head & {text: string, log_probability: number, changed: boolean,
 *            log_probability_of_target: number}} PrunedHead */

/** @typedef {{position: number, token: number, piece: string, probability: number, text: string,
 *            pieces: string[], log_probabilities: number[]}} Continuation */

/** @typedef {{text: string, score: number, log_probability: number, pieces: string[],
 *            log_probabilities: number[]}} Alternative */

/** @typedef {{file: string, line: number, source: string}} Code */

/** What `transduce.inspection.inspect_text` computes about one sentence and one model.
 * @typedef {{format: string, version: number,
 *   model: {name: string, source_language: string, target_language: string, parameters: number,
 *           digest: ?string, config: Object<string, any>},
 *   source: Side, target: Side, reference: ?Side, greedy: Side, alternatives: Alternative[],
 *   confidence: ?{sentence: number, words: {word: string, confidence: number}[]},
 *   attention: Object<Attention, Maps>, positions: {kind: string, table: ?Packed}, search: ?Search,
 *   layers: {predictions: {piece: string, probability: number}[][][], norms: number[][]},
 *   arithmetic: Arithmetic[], pruned_heads: PrunedHead[], continuations: Continuation[],
 *   code: Object<string, Code>}} Inspection */

/** What is looked at; `layer` and `head` count from 0 here, from 1 in the address and on the page.
 * @typedef {{view: string, document: number, other: number, attention: Attention, layer: number, head: number,
 *   source: number, target: number, key: number, by: "weight"|"norm", unit: "piece"|"word",
 *   picture: "matrix"|"lines", pool: "head"|"mean"|"max", pair: number, node: number}} State */

/** What a view is given.
 * @typedef {{documents: import("./documents.js").Documents, inspection: Inspection, state: State,
 *   set: (changes: Partial<State>, quietly?: boolean) => void, redraw: () => void,
 *   say: (message: string) => void}} Context */

export {};
