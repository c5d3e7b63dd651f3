// Documents: chosen or dropped, translated one after the other, and kept by the server for a while to be downloaded.

import { h, replace } from "transduce/dom";
import { askPatiently, Problem } from "transduce/server";

/** What a form adds to a file, generously. */
const FORM_BYTES = 4096;

/** @param {{formats: string[], maxBodyBytes: number, fileSeconds: number}} settings
 * @param {() => import("./languages.js").Pair} pair
 * @param {(message: string) => void} say
 * @param {(error: Problem) => void} needsKey  called when the server wants a key */
export function createFiles(settings, pair, say, needsKey) {
  const [input, list] = [document.getElementById("file"), document.getElementById("files")];
  const endings = settings.formats.map((one) => one.slice(1).toUpperCase()).join(", ");
  document.getElementById("formats").textContent =
    `${endings}. Formatting stays; a translation can be downloaded for ${minutes(settings.fileSeconds)}.`;
  input.accept = settings.formats.join(",");
  /** The file before, so that there is one at a time. */
  let before = Promise.resolve();

  function check(file) {
    const max = settings.maxBodyBytes - FORM_BYTES;
    if (!settings.formats.some((ending) => file.name.toLowerCase().endsWith(ending))) {
      throw new Problem(`This server translates ${endings} only.`);
    }
    if (file.size > max) throw new Problem(`It has ${megabytes(file.size)}; this server takes at most ${megabytes(max)}.`);
    if (!file.size) throw new Problem("It is empty.");
  }

  async function translate(file, languages, status, signal) {
    const form = new FormData();
    for (const [name, value] of Object.entries({ ...languages, file })) form.append(name, value);
    const { translatedFileUrl } = await askPatiently("./translate_file", form, signal, (message) => replace(status, message));
    // Behind a proxy the server may not know its own address; this page does.
    return `./download_file/${translatedFileUrl.split("/").at(-1)}`;
  }

  function add(file) {
    const controller = new AbortController();
    const { signal } = controller;
    const status = h("span", { class: "quiet" }, "Waiting.");
    const cancel = h("button", { type: "button", class: "plain", "aria-label": `Cancel ${file.name}`, onclick: stop }, "Cancel");
    const item = h("li", {}, h("span", { class: "name", dir: "auto" }, file.name), status, cancel);
    list.append(item);
    const languages = pair();

    function refuse(message) {
      cancel.remove();
      replace(status, h("span", { class: "refused" }, message));
      say(`${file.name}: ${message}`);
    }

    function stop() {
      controller.abort();
      refuse("Cancelled.");
    }

    before = before.then(async () => {
      if (signal.aborted) return;
      try {
        check(file);
        replace(status, "Translating.");
        const address = await translate(file, languages, status, signal);
        replace(status, h("a", { href: address, download: "" }, `Download the translation (${languages.target})`));
        cancel.remove();
        say(`${file.name} is translated.`);
      } catch (error) {
        if (signal.aborted) return;
        if (error.needsKey) needsKey(error);
        refuse(error.message);
      }
    });
  }

  input.addEventListener("change", () => {
    [...input.files].forEach(add);
    input.value = ""; // the same file may be chosen again
  });
  const hasFiles = ({ dataTransfer }) => dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!hasFiles(event)) return;
    event.preventDefault();
    [...event.dataTransfer.files].forEach(add);
  });
}

const megabytes = (bytes) => `${(bytes / 1e6).toLocaleString("en", { maximumFractionDigits: bytes < 1e6 ? 3 : 1 })} MB`;

function minutes(seconds) {
  return seconds < 120 ? `${seconds} seconds` : `${Math.floor(seconds / 60)} minutes`;
}
