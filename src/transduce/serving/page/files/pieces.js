// Pieces of words: how they are written, and which of them make a word.

/** @typedef {import("./types.js").Side} Side */
/** @typedef {import("./types.js").Attention} Attention */
/** @typedef {{label: string, aria: string, side: "source"|"target", members: number[], place: number}} Unit
 *  A row or column of a picture: one piece or one word, and the positions it is made of; `place` is the position in
 *  `pieces` that it reads, or predicts; -1 for the zero vector before the first piece. */

export const END = "</s>";

/** Whether the piece goes on with a word that an earlier one began. @param {string[]} pieces @param {number} place */
export const continues = (pieces, place) => place > 0 && pieces[place] !== END && !pieces[place].startsWith("▁");

/** A piece without SentencePiece's mark of a beginning word. @param {string} piece */
export const plain = (piece) => (piece === "▁" ? "␣" : piece.replace(/^▁/, "").replaceAll("▁", " "));

/** A piece as a label: "·t" where letters continue a word. @param {string[]} pieces @param {number} place */
export const label = (pieces, place) => (continues(pieces, place) && /^[\p{L}\p{N}]/u.test(pieces[place]) ? "·" : "") + plain(pieces[place]);

/** A piece that spells one byte of a character for which there is no piece. */
const BYTE = /^<0x([0-9A-F]{2})>$/;

/** The text of pieces, without the end. @param {string[]} pieces */
export function joined(pieces) {
  const bytes = pieces.filter((piece) => piece !== END).flatMap((piece) => {
    const byte = BYTE.exec(piece);
    return byte ? [parseInt(byte[1], 16)] : [...new TextEncoder().encode(piece.replaceAll("▁", " "))];
  });
  return new TextDecoder().decode(Uint8Array.from(bytes)).trim();
}

/** A word as a label. @param {string[]} pieces  `</s>` and spaces may be words, too */
const spelled = (pieces) => joined(pieces) || pieces.map(plain).join("");

/** For every word the places of its pieces. @param {Side} side @returns {number[][]} */
function words(side) {
  const places = [];
  side.words.forEach((word, place) => {
    if (place > 0 && side.words[place - 1] === word) places.at(-1).push(place);
    else places.push([place]);
  });
  return places;
}

/** The units of one side, in order. @param {Side} side @param {"source"|"target"} name @param {"piece"|"word"} unit
 * @returns {Unit[]} */
function unitsOf(side, name, unit) {
  const groups = unit === "word" ? words(side) : side.pieces.map((_, place) => [place]);
  return groups.map((members) => {
    const text = unit === "word" ? spelled(members.map((place) => side.pieces[place])) : label(side.pieces, members[0]);
    return { label: text, aria: text.replace(/^·/, "continued by "), side: name, members, place: members[0] };
  });
}

/** What a decoder position reads: everything one place further on, behind the zero vector. @param {Unit[]} units
 * @returns {Unit[]} */
function shiftedRight(units) {
  const start = { label: "start", aria: "start, the zero vector", side: "target", members: [0], place: -1 };
  return [start, ...units.slice(0, -1).map((unit) => ({ ...unit, members: unit.members.map((place) => place + 1) }))];
}

/** Rows and columns of an attention's picture. A decoder row is named by the piece that it predicts, a decoder column
 * by the piece that it reads; `members` are the rows or columns of the matrix that belong to it.
 * @param {{source: Side, target: Side}} inspection
 * @param {Attention} attention
 * @param {"piece"|"word"} unit
 * @returns {{queries: Unit[], keys: Unit[]}} */
export function units(inspection, attention, unit) {
  const source = unitsOf(inspection.source, "source", unit);
  if (attention === "encoder") return { queries: source, keys: source };
  const target = unitsOf(inspection.target, "target", unit);
  return { queries: target, keys: attention === "decoder" ? shiftedRight(target) : source };
}

/** The unit that position `member` belongs to. @param {Unit[]} list @param {number} member */
export const unitOf = (list, member) => Math.max(0, list.findIndex((unit) => unit.members.includes(member)));
