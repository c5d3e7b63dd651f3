// The translation on the page: paragraphs, whose sentences can be chosen to see other translations of them.

import { h, replace } from "transduce/dom";
import { textOf } from "transduce/translate/translator";

/** @typedef {import("./translator.js").Paragraph} Paragraph */
/** @typedef {import("./translator.js").Sentence} Sentence */

/** @param {HTMLElement} container
 * @param {?(sentence: Sentence, element: HTMLElement) => void} choose  null where there are no other translations */
export function createOutput(container, choose) {
  /** What is shown: a paragraph and its element, in the order of the text. @type {{paragraph: ?Paragraph, element: HTMLElement}[]} */
  let lines = [];
  /** @type {WeakMap<HTMLElement, Sentence>} */
  const sentences = new WeakMap();
  const all = () => [...container.querySelectorAll("[role=button]")];

  function sentenceElement(sentence) {
    if (!choose) return sentence.text;
    const element = h("span", { role: "button", tabindex: -1, "aria-expanded": "false" }, sentence.text);
    sentences.set(element, sentence);
    return element;
  }

  /** Fill the element of a paragraph; one that is still to come keeps what was there. */
  function fill(line, paragraph) {
    line.element.classList.toggle("pending", paragraph === null);
    if (paragraph === null || line.paragraph === paragraph) return;
    line.paragraph = paragraph;
    replace(line.element, paragraph.parts.map((part) => (typeof part === "string" ? part : sentenceElement(part))));
  }

  /** Tab leads to one sentence; from there, arrow keys lead to the others, of which there may be thousands. */
  function letOneBeReached() {
    if (!container.querySelector('[role=button][tabindex="0"]')) container.querySelector("[role=button]")?.setAttribute("tabindex", "0");
  }

  function move(element, to) {
    if (!to) return;
    element.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  container.addEventListener("click", ({ target }) => {
    const element = target.closest("[role=button]");
    // Whoever has marked text wants to copy it.
    if (!element || String(getSelection())) return;
    move(container.querySelector('[tabindex="0"]') ?? element, element);
    choose(sentences.get(element), element);
  });
  container.addEventListener("keydown", (event) => {
    const element = event.target.closest("[role=button]");
    if (!element) return;
    const right = getComputedStyle(element).direction === "rtl" ? -1 : 1;
    const step = { ArrowRight: right, ArrowDown: 1, ArrowLeft: -right, ArrowUp: -1 }[event.key];
    if (!(step || event.key === "Enter" || event.key === " ")) return;
    event.preventDefault();
    const every = all();
    if (step) move(element, every[every.indexOf(element) + step]);
    else choose(sentences.get(element), element);
  });

  return {
    /** @param {(?Paragraph)[]} paragraphs  null for those that are still to come @param {string} language */
    show(paragraphs, language) {
      container.lang = language;
      lines.splice(paragraphs.length).forEach(({ element }) => element.remove());
      while (lines.length < paragraphs.length) {
        const element = h("p", { dir: "auto" });
        lines.push({ paragraph: null, element });
        container.append(element);
      }
      paragraphs.forEach((paragraph, index) => fill(lines[index], paragraph));
      letOneBeReached();
    },
    clear() {
      lines = [];
      replace(container);
    },
    /** Another translation of a sentence, wherever the same paragraph stands. @param {Sentence} sentence @param {string} text */
    replaceSentence(sentence, text) {
      sentence.text = text;
      for (const element of all()) if (sentences.get(element) === sentence) element.textContent = text;
    },
    text: () => lines.map(({ paragraph }) => (paragraph ? textOf(paragraph) : "")).join("\n"),
  };
}
