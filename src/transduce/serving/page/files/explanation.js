// What stands above every view: its name, two sentences with the paper's symbols, and the code that computes it.

import { h } from "transduce/dom";

/** @param {{number: number, title: string, text: any[], formula?: Node | Node[], topics: string[]}} given
 * @param {import("./types.js").Inspection} inspection */
export function explanation({ number, title, text, formula, topics }, inspection) {
  const known = topics.filter((topic) => inspection.code?.[topic]);
  return h("header", { class: "explanation" },
    h("h1", {}, h("span", { class: "number", "aria-hidden": "true" }, String(number)), title),
    h("div", { class: "words" }, h("p", {}, text), formula && h("div", { class: "formula" }, formula)),
    known.length > 0 && h("div", { class: "sources" }, known.map((topic) => source(topic, inspection.code[topic]))));
}

/** @param {string} topic @param {import("./types.js").Code} code */
function source(topic, code) {
  return h("details", { id: `code-${topic}`, class: "code" },
    h("summary", {}, h("span", { class: "quiet" }, "the code: "), topic.replaceAll("_", " "), " ",
      h("code", {}, `${code.file.split("/").slice(-2).join("/")}:${code.line}`)),
    h("pre", { tabindex: 0, role: "region", "aria-label": `${code.file}, line ${code.line}` }, h("code", {}, coloured(code.source))));
}

const PYTHON = /("""[\s\S]*?"""|"(?:[^"\\\n]|\\.)*")|(#[^\n]*)|\b(def|class|return|for|in|if|else|elif|not|and|or|is|None|True|False|lambda|with|yield|raise|while|import|from|self)\b/g;

/** Python with its strings, comments and keywords marked. @param {string} text */
function coloured(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(PYTHON)) {
    parts.push(text.slice(end, match.index));
    parts.push(h("span", { class: match[1] ? "string" : match[2] ? "comment" : "keyword" }, match[0]));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}
