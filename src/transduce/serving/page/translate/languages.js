// From which language into which: two lists, of which the second depends on the first, and a button that swaps them.

import { h, replace } from "transduce/dom";
import { ask } from "transduce/server";

/** @typedef {{code: string, name: string, targets: string[]}} Language */
/** @typedef {{source: string, target: string}} Pair  `source` may be "auto" */

export const AUTO = "auto";

/** Wait between two questions while the server loads its models. */
const LOADING_MILLISECONDS = 2000;

const place = (id) => document.getElementById(id);

/** @param {(pair: Pair) => void} changed  called after each choice of a person */
export function createLanguages(changed) {
  /** @type {Language[]} */
  let languages = [];
  const [from, into, swap] = [place("source-language"), place("target-language"), place("swap")];
  const named = (code) => languages.find((one) => one.code === code)?.name ?? code;
  const targetsOf = (source) => (source === AUTO
    ? [...new Set(languages.flatMap((one) => one.targets))] : languages.find((one) => one.code === source)?.targets ?? []);
  const sourcesOf = (target) => languages.filter((one) => one.targets.includes(target)).map((one) => one.code);
  const pair = () => ({ source: from.value, target: into.value });
  /** The language of the text, where it is to be detected and has been. */
  let found = "";

  function showTargets(wished) {
    const targets = targetsOf(from.value);
    replace(into, targets.map((code) => h("option", { value: code, selected: code === wished }, named(code))));
  }

  function showSwap() {
    const source = from.value === AUTO ? found : from.value;
    swap.disabled = !source || !targetsOf(into.value).includes(source);
  }

  function choose(source, target) {
    from.value = source;
    showTargets(target);
    showSwap();
  }

  /** The pair is kept in the address, so that a bookmark or a reload has it again. */
  function applyChoice() {
    showSwap();
    history.replaceState(null, "", `#${new URLSearchParams(pair())}`);
    changed(pair());
  }

  from.addEventListener("change", () => {
    found = "";
    showTargets(into.value);
    applyChoice();
  });
  into.addEventListener("change", applyChoice);

  return {
    pair, named, sourcesOf,
    /** Ask the server for its languages, again and again while it loads its models. @param {() => void} waiting */
    async load(waiting) {
      while (!(languages = await ask("./languages")).length) {
        waiting();
        await new Promise((resolve) => setTimeout(resolve, LOADING_MILLISECONDS));
      }
      const sources = languages.filter((one) => one.targets.length);
      replace(from, sources.length > 1 && h("option", { value: AUTO }, "Detect language"),
        sources.map(({ code, name }) => h("option", { value: code }, name)));
      const wished = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
      const known = [...from.options].some((one) => one.value === wished.source);
      choose(known ? wished.source : from.options[0].value, wished.target);
    },
    /** @param {string} source  the language that was detected; "" for none */
    detected(source) {
      found = source;
      showSwap();
    },
    /** Exchange both. @returns {Pair} the new pair */
    swap() {
      const { source, target } = pair();
      choose(target, source === AUTO ? found : source);
      found = "";
      applyChoice();
      return pair();
    },
  };
}
