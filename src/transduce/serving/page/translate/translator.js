// A text to be translated, paragraph by paragraph: what has not changed is not asked again, and a long text appears as it
// is translated.

import { ask, askPatiently } from "transduce/server";

/** @typedef {import("./languages.js").Pair} Pair */
/** A paragraph. Its translation is `parts` in a row: plain text between sentences, and sentences.
 * @typedef {{source: string, parts: (string|Sentence)[]}} Paragraph */
/** @typedef {{source: string, text: string}} Sentence  `text` is the translation, which a person may replace */

/** Characters of one request, where the server takes as many; the first one is small, so that something is there soon. */
const FIRST_CHARACTERS = 600;
const CHARACTERS = 4000;

/** Paragraphs of one request, where the server takes as many. */
const PARAGRAPHS = 100;

/** Characters by which a language is detected. */
const DETECTED_CHARACTERS = 1500;

/** In percent. Only a text that is so certainly in the target language is left as it is. */
const CERTAIN = 90;

/** @param {Paragraph} paragraph @returns {string} */
export const textOf = (paragraph) => paragraph.parts.map((part) => part.text ?? part).join("");

/** Detect the language of a text among those from which there are translations into the target.
 * @param {string} text @param {string} target @param {string[]} sources @param {AbortSignal} signal
 * @returns {Promise<string>} may be the target itself */
export async function detect(text, target, sources, signal) {
  // Half a character at the end, as of an emoji, would be refused.
  const start = text.slice(0, DETECTED_CHARACTERS).replace(/[\ud800-\udbff]$/, "");
  const ranked = await askPatiently("./detect", { q: start }, signal);
  const isCertain = ({ language, confidence }) => language === target && confidence > CERTAIN;
  return ranked.find((one) => sources.includes(one.language) || isCertain(one))?.language ?? sources[0];
}

/** @param {{maxCharacters: number, maxTexts: number}} limits  of one request, which the server sets
 * @returns a translator that remembers the paragraphs of the text that it translated last */
export function createTranslator({ maxCharacters, maxTexts }) {
  /** @type {Map<string, Paragraph>} */
  let known = new Map();

  /** Translate a text.
   * @param {string} text
   * @param {Pair} pair  no language is to be detected
   * @param {AbortSignal} signal
   * @param {(paragraphs: (?Paragraph)[]) => void} show  called as translations arrive, with null for those that are missing
   * @param {(message: string) => void} [waiting]  told while the server is busy
   * @returns {Promise<Paragraph[]>} */
  return async function translate(text, pair, signal, show, waiting) {
    const sources = text.split("\n");
    const name = (source) => `${pair.source} ${pair.target} ${source}`;
    const kept = new Map();
    const missing = new Set();
    for (const source of sources) {
      const paragraph = source.trim() ? known.get(name(source)) : { source, parts: [source] };
      if (paragraph) kept.set(name(source), paragraph);
      else missing.add(source);
    }
    known = kept;
    const all = () => sources.map((source) => kept.get(name(source)) ?? null);
    show(all());
    for (const batch of batches([...missing], maxCharacters, Math.min(PARAGRAPHS, maxTexts))) {
      const { translations } = await askPatiently("./v1/translate", { text: batch, ...pair }, signal, waiting);
      batch.forEach((source, index) => kept.set(name(source), { source, parts: partsOf(translations[index]) }));
      show(all());
    }
    return all();
  };
}

/** Translations of one sentence, best first, without repetitions.
 * @param {string} sentence @param {Pair} pair @param {number} count @param {AbortSignal} signal @returns {Promise<string[]>} */
export async function alternativesOf(sentence, pair, count, signal) {
  const request = { text: sentence, ...pair, num_best: count, split_sentences: false };
  const { translations: [found] } = await ask("./v1/translate", request, signal);
  return [...new Set([found.text, ...found.alternatives.map((one) => one.text)])];
}

/** @param {string[]} paragraphs  none longer than `maxCharacters`
 * @param {number} maxCharacters @param {number} maxParagraphs @returns {string[][]} */
function batches(paragraphs, maxCharacters, maxParagraphs) {
  /** @type {string[][]} */
  const found = [];
  let room = 0;
  for (const one of paragraphs) {
    if (!found.length || room < one.length || found.at(-1).length === maxParagraphs) {
      room = Math.min(maxCharacters, found.length ? CHARACTERS : FIRST_CHARACTERS);
      found.push([]);
    }
    found.at(-1).push(one);
    room -= one.length;
  }
  return found;
}

/** The sentences of a translation where they stand in it; the server gives the text between them unchanged. */
function partsOf({ text, sentences }) {
  /** @type {(string|Sentence)[]} */
  const parts = [];
  let end = 0;
  for (const { source, translations: [best] } of sentences) {
    const start = text.indexOf(best.text, end);
    if (start < 0 || !best.text) continue;
    parts.push(text.slice(end, start), { source, text: best.text });
    end = start + best.text.length;
  }
  return [...parts, text.slice(end)].filter((part) => part !== "");
}
