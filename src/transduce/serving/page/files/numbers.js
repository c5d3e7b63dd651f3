// Numbers: out of the document's packed arrays, and as text.

/** @typedef {import("./types.js").Packed} Packed */

/** @type {WeakMap<Packed, Float32Array>} */
const unpacked = new WeakMap();

/** The values of a packed array, row after row; unpacked once.
 * @param {Packed} packed
 * @returns {Float32Array} */
export function values(packed) {
  let result = unpacked.get(packed);
  if (!result) {
    result = unpack(packed);
    unpacked.set(packed, result);
  }
  return result;
}

function unpack({ dtype, scale, data }) {
  const text = atob(data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  const view = new DataView(bytes.buffer);
  const width = { float32: 4, uint16: 2, uint8: 1 }[dtype];
  const result = new Float32Array(bytes.length / width);
  for (let i = 0; i < result.length; i++) {
    if (dtype === "float32") result[i] = view.getFloat32(4 * i, true) * scale;
    else result[i] = (dtype === "uint16" ? view.getUint16(2 * i, true) : bytes[i]) * scale;
  }
  return result;
}

/** Row number `index` of a packed matrix.
 * @param {Packed} packed
 * @param {number} index
 * @returns {Float32Array} */
export function row(packed, index) {
  const width = packed.shape.at(-1);
  return values(packed).subarray(index * width, (index + 1) * width);
}

/** @param {ArrayLike<number>} list */
export const sum = (list) => Array.prototype.reduce.call(list, (total, one) => total + one, 0);

/** @param {ArrayLike<number>} list */
export const largest = (list) => Array.prototype.reduce.call(list, (most, one) => Math.max(most, one), -Infinity);

/** The place of the largest value. @param {ArrayLike<number>} list */
export const place = (list) => Array.prototype.reduce.call(list, (best, one, i) => (one > list[best] ? i : best), 0);

/** Euclidean length. @param {ArrayLike<number>} vector */
export const norm = (vector) => Math.sqrt(Array.prototype.reduce.call(vector, (total, one) => total + one * one, 0));

/** With a real minus sign, as in "−0.42".
 * @param {number} value
 * @param {number} [digits] */
export function fixed(value, digits = 2) {
  if (value === -Infinity) return "−∞";
  const text = value.toFixed(digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/** With so many digits, or as a power of ten where those would all be zero. @param {number} value @param {number} digits */
export const figure = (value, digits) => (value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits ? power(value) : fixed(value, digits));

/** As in "42 %"; with a decimal below ten per cent, "<0.1 %" where that would be nothing. @param {number} share */
export function percent(share) {
  const value = share * 100;
  if (value > 0 && value < 0.1) return "<0.1 %";
  if (value < 100 && value > 99.9) return ">99.9 %";
  return `${value < 9.95 && value > 0 ? value.toFixed(1) : Math.round(value)} %`;
}

/** As in "2,093,056". @param {number} value */
export const counted = (value) => value.toLocaleString("en");

/** As in "3.1 × 10⁻⁷". @param {number} value */
export function power(value) {
  if (value === 0) return "0";
  const [digits, exponent] = value.toExponential(1).split("e");
  const raised = [...String(Number(exponent))].map((one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(one)] ?? "⁻").join("");
  return `${digits} × 10${raised}`;
}
