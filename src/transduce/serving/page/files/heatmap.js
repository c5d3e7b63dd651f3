// A matrix as a picture: a canvas with labels, gone through with the mouse, a finger or the arrow keys.

import { h } from "transduce/dom";
import { table } from "transduce/colour";

/** @typedef {import("./pieces.js").Unit} Unit */

/** Drawn by the processor: these pictures are small and drawn once, and a GPU takes longer to get ready. */
const IN_MEMORY = { willReadFrequently: true };

/** The width of a cell: as much as there is space for.
 * @param {number} columns @param {number} most  the widest that a cell is, in pixels @param {number} [available] pixels for all of them and their labels */
export function cellSize(columns, most = 44, available = Math.min(innerWidth - 60, 760)) {
  return Math.max(11, Math.min(most, Math.floor((available - 96) / columns)));
}

/** @param {{id: string, label: string, rows: Unit[], columns: Unit[], value: (row: number, column: number) => number,
 *   most: number, ramp: import("./colour.js").Ramp, chosen: {row: number, column: number}, size?: number,
 *   choose: (row: number, column: number) => void, describe: (row: number, column: number) => string,
 *   hidden?: (row: number, column: number) => boolean}} given
 *   `value / most` is drawn from 0 to 1, and from -1 in the ramp "signed"; `hidden` cells have a dot instead */
export function heatmap(given) {
  const { id, label, rows, columns, chosen, choose, describe } = given;
  const size = given.size ?? cellSize(columns.length);
  const readout = h("p", { class: "readout", id: `${id}-readout` }, describe(chosen.row, chosen.column));
  const canvas = drawn(given, size);
  const marks = ["row-mark", "column-mark", "cell-mark"].map((name) => h("span", { class: name }));
  mark(marks, chosen, size, rows.length, columns.length);
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const within = (value, length) => Math.max(0, Math.min(length - 1, Math.floor(value / size)));
    return { row: within(event.clientY - box.top, rows.length), column: within(event.clientX - box.left, columns.length) };
  };
  const picture = h("div", {
    id, class: "cells", tabindex: 0, role: "application", "aria-roledescription": "matrix", "aria-label": `${label}. Arrow keys go from cell to cell.`,
    "aria-describedby": `${id}-readout`, style: { width: `${columns.length * size}px`, height: `${rows.length * size}px` },
    onkeydown: (event) => byKey(event, chosen, rows.length, columns.length, choose),
    onclick: (event) => { const { row, column } = at(event); choose(row, column); },
    onpointermove: (event) => { const { row, column } = at(event); readout.textContent = describe(row, column); },
    onpointerleave: () => { readout.textContent = describe(chosen.row, chosen.column); },
  }, canvas, marks);
  const labels = (list, kind, index, pick) => h("div", { class: kind, "aria-hidden": "true" }, list.map((unit, i) =>
    h("span", { class: `${unit.side}${i === index ? " chosen" : ""}`, style: { [kind === "row-labels" ? "height" : "width"]: `${size}px` }, onclick: () => pick(i) }, unit.label)));
  const narrow = size < 16 ? " small" : "";
  return h("div", { class: "matrix" }, readout, h("div", { class: `frame${narrow}`, id: `${id}-frame` },
    labels(columns, "column-labels", chosen.column, (i) => choose(chosen.row, i)),
    labels(rows, "row-labels", chosen.row, (i) => choose(i, chosen.column)), picture));
}

function byKey(event, { row, column }, rows, columns, choose) {
  const next = {
    ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
    Home: [row, 0], End: [row, columns - 1], PageUp: [0, column], PageDown: [rows - 1, column],
  }[event.key];
  if (!next) return;
  event.preventDefault();
  if (next[0] >= 0 && next[0] < rows && next[1] >= 0 && next[1] < columns) choose(next[0], next[1]);
}

function mark([row, column, cell], chosen, size, rows, columns) {
  const place = (element, left, top, width, height) => {
    for (const [name, value] of Object.entries({ left, top, width, height })) element.style[name] = `${value}px`;
  };
  place(row, 0, chosen.row * size, columns * size, size);
  place(column, chosen.column * size, 0, size, rows * size);
  place(cell, chosen.column * size, chosen.row * size, size, size);
}

function drawn({ rows, columns, value, most, ramp, hidden }, size) {
  const ratio = Math.min(3, devicePixelRatio || 1);
  const canvas = h("canvas", { width: columns.length * size * ratio, height: rows.length * size * ratio, "aria-hidden": "true" });
  canvas.style.width = `${columns.length * size}px`;
  const pen = canvas.getContext("2d", IN_MEMORY);
  pen.scale(ratio, ratio);
  const [width, height] = [columns.length * size, rows.length * size];
  // All cells at once: one by one, thousands of them take longer than a frame.
  const numbers = Float32Array.from({ length: rows.length * columns.length }, (_, i) => value(Math.floor(i / columns.length), i % columns.length));
  pen.imageSmoothingEnabled = false;
  pen.drawImage(thumbnail(numbers, columns.length, most, ramp), 0, 0, width, height);
  const gap = size >= 14 ? 1.5 : 1;
  for (let i = 0; i <= rows.length; i++) pen.clearRect(0, i * size - gap / 2, width, gap);
  for (let j = 0; j <= columns.length; j++) pen.clearRect(j * size - gap / 2, 0, gap, height);
  if (hidden) dotted(pen, rows.length, columns.length, size, hidden);
  return canvas;
}

/** A dot in place of each cell that is hidden. */
function dotted(pen, rows, columns, size, hidden) {
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("color");
  pen.globalAlpha = 0.2;
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      if (!hidden(i, j)) continue;
      pen.clearRect(j * size, i * size, size, size);
      pen.fillRect((j + 0.42) * size, (i + 0.42) * size, size * 0.16, size * 0.16);
    }
  }
}

/** A picture of one dot for each number, to be stretched by CSS.
 * @param {ArrayLike<number>} numbers row after row
 * @param {number} columns
 * @param {number} most
 * @param {import("./colour.js").Ramp} ramp */
export function thumbnail(numbers, columns, most, ramp) {
  const canvas = h("canvas", { width: columns, height: numbers.length / columns, "aria-hidden": "true", class: "thumbnail" });
  const bytes = new Uint32Array(numbers.length);
  const colours = new Uint32Array(table(ramp).buffer);
  for (let i = 0; i < numbers.length; i++) {
    const share = ramp === "signed" ? (numbers[i] / most + 1) / 2 : numbers[i] / most;
    bytes[i] = colours[Math.max(0, Math.min(255, Math.round(share * 255)))];
  }
  canvas.getContext("2d", IN_MEMORY).putImageData(new ImageData(new Uint8ClampedArray(bytes.buffer), columns), 0, 0);
  return canvas;
}
