// What stays above the views: the sentence, piece by piece, and on a server the place to type another one.

import { h, replace } from "transduce/dom";
import { formula } from "transduce/formula";
import { nameOf } from "transduce/documents";
import { headNumbers } from "transduce/heads";
import { problem, selection, strip } from "transduce/parts";
import { useKey } from "transduce/server";
import { chosenCell } from "transduce/state";

const EXAMPLES = ["A small dog runs across the grass.", "Two men are cooking dinner in a kitchen."];

/** The source and the target; what is chosen here is chosen in every view. @param {import("./types.js").Context} context */
export function sentence({ inspection, state, set }) {
  const { source, target, model } = inspection;
  const shares = sharesOf(inspection, state);
  const look = (side) => (shown) => ({ style: { "--share": shares.side === side ? (shares.values[shown] ?? 0).toFixed(3) : "0" } });
  const line = (side, pieces, letter, chosen, choose) => h("div", { class: "line" },
    h("span", { class: `side ${side}` }, side, " ", formula(letter), h("span", { class: "quiet" }, ` ${model[`${side}_language`] ?? ""}`)),
    strip({ id: `stage-${side}`, side, pieces, chosen, label: `${side} piece`, choose, look: look(side) }));
  return h("section", { class: "sentence", "aria-label": "The sentence" },
    line("source", source.pieces, "x", state.source, (place) => set({ source: place })),
    line("target", target.pieces, "y", state.target, (place) => set({ target: place })));
}

/** How much the chosen query looks at each piece, where a head is looked at: a bar under each piece of that side.
 * @returns {{side: string, values: ArrayLike<number>}} */
function sharesOf(inspection, state) {
  if (!["attention", "arithmetic"].includes(state.view)) return { side: "", values: [] };
  const { keys } = inspection.attention[state.attention];
  const query = chosenCell(state).query;
  const values = headNumbers(inspection, state, "weight").subarray(query * keys, (query + 1) * keys);
  // Position t of the decoder reads the piece before it.
  return state.attention === "decoder" ? { side: "target", values: values.subarray(1) } : { side: "source", values };
}

/** The choice among several inspections. @param {import("./types.js").Context} context */
export function inspectionChoice({ documents, state, set }) {
  if (documents.list.length < 2) return null;
  return selection({
    id: "inspection", name: "Showing", value: state.document, choose: (place) => set({ document: place }),
    options: documents.list.map((one, place) => [place, nameOf(one, documents.list)]),
  });
}

/** The form that asks the server for another sentence.
 * @param {import("./documents.js").Documents} documents
 * @param {(place: number) => void} done
 * @returns {HTMLElement} made once: what is typed in it stays */
export function requestForm(documents, done) {
  const text = h("textarea", { id: "text", name: "text", rows: 2, required: true, "aria-describedby": "request-status" }, EXAMPLES[0]);
  const reference = h("textarea", { id: "reference", name: "reference", rows: 2 });
  const pair = h("select", { id: "languages", name: "languages" });
  const beam = h("input", { id: "beam", name: "beam", type: "number", min: 1, max: 16, placeholder: "the model’s" });
  const button = h("button", { class: "primary", type: "submit" }, "Look inside");
  const status = h("div", { id: "request-status", role: "status" });
  let models = [];

  async function learnModels() {
    models = await documents.models();
    replace(pair, models.map((one) => h("option", {}, `${one.source} → ${one.target}`)));
    // Several models are worth a choice; a single one is not.
    pair.parentElement.hidden = models.length < 2;
  }

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    replace(status, h("p", { class: "quiet" }, "Translating, and keeping every number on the way."));
    try {
      // A server that wants a key has named none before.
      if (!models.length) await learnModels();
      const model = models[pair.selectedIndex];
      done(await documents.translate({
        text: text.value.trim(),
        ...(model && { source: model.source, target: model.target }),
        ...(reference.value.trim() && { reference: reference.value.trim() }),
        ...(beam.value && { beam: Number(beam.value) }),
      }));
      replace(status);
    } catch (error) {
      refused(status, error);
    } finally {
      button.disabled = false;
    }
  }
  const form = h("form", { class: "request", onsubmit: submit },
    h("div", { class: "fields" }, h("label", { class: "wide-field" }, h("span", {}, "A sentence"), text),
      h("label", { hidden: true }, h("span", {}, "Languages"), pair), button),
    h("details", { id: "more-options" }, h("summary", {}, "A translation to compare with, and the beam"),
      h("div", { class: "fields" }, h("label", { class: "wide-field" }, h("span", {}, "Reference translation"), reference),
        h("label", {}, h("span", {}, "Beam"), beam))),
    status);
  learnModels().catch((error) => refused(status, error));
  return form;
}

/** What went wrong; where the server wants a key, a place for it. */
function refused(status, error) {
  const field = h("input", { id: "api-key", type: "password", autocomplete: "off", oninput: () => useKey(field.value) });
  replace(status, problem(error), error.needsKey && h("label", { class: "api-key" }, h("span", {}, "API key"), field));
}
