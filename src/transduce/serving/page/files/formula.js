// Formulas in MathML, so that they are set well and read aloud well.

import { m } from "transduce/dom";

/** A formula. @param {...any} parts */
export const formula = (...parts) => m("math", {}, group(...parts));

/** A formula on a line of its own. @param {...any} parts */
export const display = (...parts) => m("math", { display: "block" }, group(...parts));

const part = (one) => (typeof one === "string" ? symbol(one) : typeof one === "number" ? number(String(one)) : one);

/** A letter, an operator or a number, as its text tells. @param {string} text */
function symbol(text) {
  if (/^[−-]?[\d.,]+$/.test(text)) return number(text);
  if (/^[\p{L}∞]+$/u.test(text)) return letter(text);
  // The bars of a norm or of a condition are as high as a line, whatever stands between them.
  return m("mo", { stretchy: /[‖|]/.test(text) ? "false" : null }, text);
}

const number = (text) => m("mn", {}, text);

/** Names of several letters stand upright, as functions do. @param {string} text */
const letter = (text) => m("mi", {}, text);

/** @param {...any} parts */
export const group = (...parts) => m("mrow", {}, ...fenced(parts.map(part)));

/** Parentheses that are as high as a line unless a fraction is between them: without a font for mathematics, browsers
 * draw them too high around a letter. @param {Element[]} parts */
function fenced(parts) {
  const open = [];
  parts.forEach((one, i) => {
    if (one.textContent === "(") open.push(i);
    if (one.textContent !== ")" || !open.length) return;
    const start = open.pop();
    const isHigh = parts.slice(start, i).some((between) => between.localName === "mfrac" || between.querySelector?.("mfrac"));
    for (const fence of [parts[start], one]) fence.setAttribute("stretchy", String(isHigh));
  });
  return parts;
}
export const sub = (base, below) => m("msub", {}, part(base), part(below));
export const sup = (base, above) => m("msup", {}, part(base), part(above));
export const both = (base, below, above) => m("msubsup", {}, part(base), part(below), part(above));
export const fraction = (above, below) => m("mfrac", {}, part(above), part(below));
export const root = (...parts) => m("msqrt", {}, ...parts.map(part));
/** The length of a sequence: |y|. */
export const size = (text) => m("mrow", {}, bar(), part(text), bar());
const bar = () => m("mo", { stretchy: "false", lspace: "0", rspace: "0" }, "|");
/** A sum over what stands below. */
export const sumOver = (below) => m("munder", {}, m("mo", { largeop: "true", movablelimits: "false" }, "∑"), part(below));
/** A vector or a matrix: bold. */
export const bold = (text) => m("mi", { class: "bold" }, text);

export const d_k = () => sub("d", "k");
export const d_model = () => sub("d", "model");
