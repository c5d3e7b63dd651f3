// The page: puts the parts in their places, and draws anew when something is chosen.

import { h, replace, s } from "transduce/dom";
import { createDocuments } from "transduce/documents";
import { counted } from "transduce/numbers";
import { problem } from "transduce/parts";
import { inspectionChoice, requestForm, sentence } from "transduce/stage";
import { bounded, createState, written } from "transduce/state";
import { followTheme } from "transduce/theme";
import { arithmeticView } from "transduce/view_arithmetic";
import { attentionView } from "transduce/view_attention";
import { beamView } from "transduce/view_beam";
import { compareView } from "transduce/view_compare";
import { layersView } from "transduce/view_layers";
import { positionsView } from "transduce/view_positions";
import { translateView } from "transduce/view_translate";

const VIEWS = {
  translate: ["Translate", translateView], attention: ["Attention", attentionView],
  arithmetic: ["Arithmetic", arithmeticView], positions: ["Positions", positionsView],
  beam: ["Beam", beamView], layers: ["Layers", layersView], compare: ["Compare", compareView],
};

const documents = createDocuments();
const place = (id) => document.getElementById(id);
const state = createState(draw);
const theme = followTheme(draw);
const form = documents.live ? requestForm(documents, (index) => state.set({ document: index, source: -1, target: -1, key: 0, node: -1 })) : null;
const sentencePlace = h("div");
place("stage").append(...[form, sentencePlace].filter(Boolean));

/** The view whose tab was last brought into sight. */
let tabbed = "";

/** Everything that depends on what is chosen. */
function draw() {
  const index = Math.min(state.get().document, documents.list.length - 1);
  const inspection = documents.list[index];
  const view = state.get().view;
  document.documentElement.dataset.view = view;
  if (!inspection) {
    replace(place("masthead"), masthead(null, null));
    replace(place("view"), welcome());
    replace(place("colophon"), colophon());
    place("views").hidden = true;
    return;
  }
  const shown = bounded({ ...state.get(), document: index }, inspection);
  /** @type {import("./types.js").Context} */
  const context = {
    documents, inspection, state: shown, redraw: draw, say,
    // What is drawn is what is meant: a place beyond the end of this sentence is its last one. A node is one of this tree.
    set: (changes, quietly) => state.set({ ...shown, ...("document" in changes && { node: -1 }), ...changes }, quietly),
  };
  replace(place("masthead"), masthead(inspection.model, inspectionChoice(context)));
  // The first view is the sentence itself, and larger.
  replace(sentencePlace, view === "translate" ? null : sentence(context));
  place("views").hidden = false;
  replace(place("views"), tabs(shown));
  if (view !== tabbed) showTab();
  tabbed = view;
  replace(place("view"), viewOf(VIEWS[view][1], context));
  replace(place("colophon"), colophon());
  document.title = `${VIEWS[view][0]}: ${inspection.source.text.slice(0, 60)}`;
}

/** A view that cannot draw a document says so, and the others go on. */
function viewOf(view, context) {
  try {
    return view(context);
  } catch (error) {
    console.error(error);
    return problem(new Error(`This view could not be drawn: ${error.message}`));
  }
}

/** Read out by screen readers. @param {string} message */
function say(message) {
  place("announcements").textContent = message;
}

/** @param {?Inspection["model"]} model @param {?HTMLElement} several  the choice where there are several */
function masthead(model, several) {
  const mark = s("svg", { viewBox: "0 0 32 32", class: "mark", "aria-hidden": "true" },
    s("path", { d: "M9 9L21 23M16 9L10 23M23 9V23", class: "between" }), s("path", { d: "M5 9H27", class: "source" }), s("path", { d: "M5 23H27", class: "target" }));
  return [
    h("p", { class: "brand" }, mark, h("span", {}, "Transduce"), h("span", { class: "quiet" }, "look inside a translation")),
    documents.live && h("a", { id: "to-translate", class: "pages", href: "./" }, "Translate"),
    model && h("div", { class: "model" }, several ?? h("b", {}, model.name), h("span", { class: "quiet" }, ` ${counted(model.parameters)} parameters`)),
    h("button", { id: "theme", type: "button", class: "plain", onclick: () => theme.switch() },
      document.documentElement.dataset.theme === "dark" ? "Light" : "Dark", h("span", { class: "unseen" }, " colours")),
  ];
}

function tabs(shown) {
  return h("ol", { id: "tabs" }, Object.entries(VIEWS).map(([name, [title]], index) => h("li", {},
    h("a", { id: `tab-${name}`, href: written({ ...shown, view: name }), "aria-current": shown.view === name ? "page" : null },
      h("span", { class: "number", "aria-hidden": "true" }, String(index + 1)), title))));
}

/** On a narrow screen the tabs are scrolled, and the current one may be out of sight. */
function showTab() {
  const [list, current] = [place("tabs"), place("views").querySelector("[aria-current]")];
  const [left, right] = [current.offsetLeft - list.offsetLeft, current.offsetLeft - list.offsetLeft + current.offsetWidth];
  if (left < list.scrollLeft || right > list.scrollLeft + list.clientWidth) list.scrollLeft = left - 24;
}

function welcome() {
  return h("div", { class: "welcome" }, h("h1", {}, "See the paper happen"),
    h("p", {}, "Type a sentence above. Every head of all three attentions, the arithmetic of one of them number by number, and the search as a tree are then yours to look at."));
}

function colophon() {
  return [
    h("p", {}, h("b", {}, "Attention weights are not an explanation. "),
      "They show what a head weighs, not why the model decided as it did: other weights can give the same output (Jain & Wallace 2019; Wiegreffe & Pinter 2019), and a large weight on a small value adds little (Kobayashi et al. 2020). To learn what a head is good for, turn it off."),
    h("p", { class: "quiet" }, "The symbols are those of “Attention Is All You Need” (Vaswani et al. 2017)."),
  ];
}

// A link within the page would take the place of the state in the address.
document.querySelector("[data-skip]").addEventListener("click", (event) => {
  event.preventDefault();
  place("view").focus();
});
let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(draw, 150);
});
draw();
