// The page that translates: a text and its translation beside it, as one types.

import { h, replace } from "transduce/dom";
import { useKey } from "transduce/server";
import { followTheme } from "transduce/theme";
import { createFiles } from "transduce/translate/files";
import { AUTO, createLanguages } from "transduce/translate/languages";
import { createOutput } from "transduce/translate/output";
import { alternativesOf, createTranslator, detect } from "transduce/translate/translator";

/** Time without a keystroke after which a text is translated. */
const PAUSE_MILLISECONDS = 400;

/** Other translations that are shown beside the best one. */
const ALTERNATIVES = 4;

/** Up to this length a translation is read out by a screen reader when it is there. */
const READ_OUT_CHARACTERS = 300;

const place = (id) => document.getElementById(id);
const settings = JSON.parse(place("settings").textContent);
const numBest = 1 + Math.min(ALTERNATIVES, settings.maxAlternatives);

// The view of the model was at this address once, with what it shows behind the "#".
if (new URLSearchParams(location.hash.slice(1)).has("view")) location.replace(`./inspect${location.hash}`);

const source = place("source-text");
const languages = createLanguages(translateNow);
const translate = createTranslator(settings);
const output = createOutput(place("translation"), numBest > 1 ? showAlternatives : null);
const theme = followTheme(nameTheme);
let hasKey = !settings.needsKey;
let areLanguagesKnown = false;
let timer = 0;
/** The pair of what is shown, without detection. @type {import("./languages.js").Pair} */
let shownPair = languages.pair();
/** The text whose whole translation is shown; null while there is none. @type {?string} */
let shownText = null;
/** What is running; a newer text ends it. */
let running = new AbortController();

/** Read out by screen readers, in the voice of the language. @param {string} message @param {string} [language] */
function say(message, language = "en") {
  place("announcements").lang = language;
  place("announcements").textContent = message;
}

function begin() {
  clearTimeout(timer);
  running.abort();
  running = new AbortController();
  shownText = null;
  place("copy").disabled = true;
  replace(place("problem"));
  hideAlternatives();
  return running.signal;
}

/** Translate the text as it is now. */
async function translateNow() {
  const signal = begin();
  const text = source.value;
  place("clear").disabled = !text;
  place("count").textContent = text ? `${text.length.toLocaleString("en")} characters` : "";
  place("translation").ariaBusy = "false";
  if (!text.trim() || !areLanguagesKnown) {
    showNothing();
    return;
  }
  if (!hasKey) {
    askForKey();
    return;
  }
  try {
    checkLength(text);
    const pair = await detectPair(text, signal);
    await showTranslation(text, pair, signal);
  } catch (error) {
    if (!signal.aborted) refuse(error);
  }
}

function checkLength(text) {
  const longest = text.split("\n").reduce((length, line) => Math.max(length, line.length), 0);
  if (longest > settings.maxCharacters) {
    throw new Error(`A paragraph has ${longest.toLocaleString("en")} characters; this server takes at most ${settings.maxCharacters.toLocaleString("en")} at once.`);
  }
}

/** The pair with the language of the text, which is detected if that is chosen. */
async function detectPair(text, signal) {
  const pair = languages.pair();
  source.lang = pair.source === AUTO ? "" : pair.source;
  place("detected").textContent = "";
  if (pair.source !== AUTO) return pair;
  const found = await detect(text, pair.target, languages.sourcesOf(pair.target), signal);
  source.lang = found;
  place("detected").textContent = `Detected: ${languages.named(found)}`;
  languages.detected(found);
  return { ...pair, source: found };
}

async function showTranslation(text, pair, signal) {
  if (pair.source === pair.target) {
    showNothing();
    place("status").textContent = `The text is ${languages.named(pair.target)} already.`;
    return;
  }
  place("translation").ariaBusy = "true";
  const started = performance.now();
  const show = (paragraphs) => {
    const missing = paragraphs.filter((one) => one === null).length;
    output.show(paragraphs, pair.target);
    place("status").textContent = missing ? progressOf(paragraphs.length - missing, paragraphs.length) : "";
  };
  shownPair = pair;
  const paragraphs = await translate(text, pair, signal, show, (message) => { place("status").textContent = message; });
  place("translation").ariaBusy = "false";
  shownText = text;
  place("copy").disabled = source.value !== text; // a newer text may wait for its pause
  const all = output.text();
  if (all.length <= READ_OUT_CHARACTERS) say(all, pair.target);
  else say(`Translated: ${paragraphs.length} paragraphs in ${Math.ceil((performance.now() - started) / 1000)} seconds.`);
}

const progressOf = (done, all) => (all > 1 ? `Translating: ${done} of ${all} paragraphs.` : "Translating.");

function showNothing() {
  output.clear();
  place("detected").textContent = place("status").textContent = "";
}

/** Say what went wrong, with a button that tries again. @param {Error} error */
function refuse(error) {
  place("translation").ariaBusy = "false";
  place("status").textContent = "";
  replace(place("problem"), h("p", { class: "problem" }, h("span", {}, error.message),
    h("button", { id: "again", type: "button", onclick: () => start() }, "Try again")));
  if (error.needsKey) askForKey();
}

/** Show the field for the API key; where it is shown already, nobody is interrupted. */
function askForKey() {
  hasKey = false;
  if (!place("key-form").hidden) return;
  place("key-form").hidden = false;
  place("api-key").select();
}

/** Other translations of a sentence, one of which may take its place. */
async function showAlternatives(sentence, element) {
  const wasOpen = element.ariaExpanded === "true";
  hideAlternatives();
  if (wasOpen) return;
  const { signal } = running;
  const pair = shownPair;
  element.ariaExpanded = "true";
  const list = h("div", {}, h("p", { class: "quiet" }, "One moment."));
  const close = () => {
    hideAlternatives();
    element.focus();
  };
  const panel = place("alternatives");
  replace(panel, h("div", { class: "title-row" }, h("h2", { id: "alternatives-title" }, "Other translations"),
    h("button", { id: "close", type: "button", class: "plain", onclick: close }, "Close")),
  h("p", { class: "quiet", dir: "auto", lang: pair.source }, sentence.source), list);
  panel.onkeydown = ({ key }) => {
    if (key === "Escape") close();
  };
  panel.hidden = false;
  try {
    const found = await alternativesOf(sentence.source, pair, numBest, signal);
    if (panel.hidden || !list.isConnected) return;
    const every = [...new Set([...found, sentence.text])];
    const take = (text) => {
      output.replaceSentence(sentence, text);
      say(`Replaced by: ${text}`);
      close();
    };
    replace(list, h("ol", {}, every.map((text) => h("li", {}, h("button", {
      type: "button", dir: "auto", lang: pair.target, "aria-pressed": String(text === sentence.text), onclick: () => take(text),
    }, text)))), every.length === 1 && h("p", { class: "quiet" }, "The model has no other translation."));
    say(`${every.length} translations to choose from.`);
    // Whoever has gone elsewhere in the meantime, to type for example, stays there.
    const focused = document.activeElement;
    if ([element, document.body].includes(focused) || panel.contains(focused)) list.querySelector("[aria-pressed=true]").focus();
  } catch (error) {
    if (!signal.aborted) replace(list, h("p", { class: "problem" }, error.message));
  }
}

function hideAlternatives() {
  place("alternatives").hidden = true;
  document.querySelectorAll('#translation [aria-expanded="true"]').forEach((one) => { one.ariaExpanded = "false"; });
}

async function copy() {
  const text = output.text();
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Browsers have a clipboard for pages of this machine and of https only.
    copyBySelection(text);
  }
  place("copy").textContent = "Copied";
  say("Copied.");
  setTimeout(() => { place("copy").textContent = "Copy"; }, 1500);
}

function copyBySelection(text) {
  const field = h("textarea", { class: "unseen", "aria-hidden": "true", tabindex: -1 });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  place("copy").focus();
}

/** Exchange the languages, and the texts where the translation is that of the text as it is now. */
function swap() {
  if (source.value === shownText) source.value = output.text();
  languages.swap();
}

function nameTheme() {
  const other = document.documentElement.dataset.theme === "dark" ? "Light" : "Dark";
  replace(place("theme"), other, h("span", { class: "unseen" }, " colours"));
}

/** Learn the languages, and translate what may be there already: browsers keep the text of a page that is loaded again. */
async function start() {
  try {
    if (!areLanguagesKnown) await languages.load(() => { place("status").textContent = "The server is loading its models."; });
    areLanguagesKnown = true;
    await translateNow();
  } catch (error) {
    refuse(error);
  }
}

source.addEventListener("input", () => {
  clearTimeout(timer);
  place("copy").disabled = true;
  timer = setTimeout(translateNow, PAUSE_MILLISECONDS);
});
place("clear").addEventListener("click", () => {
  source.value = "";
  translateNow();
  source.focus();
});
place("copy").addEventListener("click", copy);
place("swap").addEventListener("click", swap);
place("theme").addEventListener("click", () => theme.switch());
place("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(place("api-key").value);
  hasKey = true;
  place("key-form").hidden = true;
  source.focus();
  start();
});
document.querySelector("[data-skip]").addEventListener("click", (event) => {
  event.preventDefault();
  source.focus();
});

createFiles(settings, languages.pair, say, askForKey);
nameTheme();
if (!hasKey) askForKey();
start();
