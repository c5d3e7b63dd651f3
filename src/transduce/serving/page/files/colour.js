// Colours that are computed: ramps of even steps in perceived lightness (OKLCH; Ottosson 2020), in light and dark.
// The fixed colours are in base.css; the hues here are the same.

/** @typedef {"source"|"target"|"both"|"signed"} Ramp */

const HUES = { source: 245, target: 55, both: 305, signed: 165, negative: 325 };
const STEPS = 256;

/** @type {Map<string, Uint8ClampedArray>} */
const tables = new Map();

export const isDark = () => document.documentElement.dataset.theme === "dark";

/** 256 colours from nothing to most; for "signed" from -1 over nothing in the middle to +1. Four bytes each.
 * @param {Ramp} ramp
 * @returns {Uint8ClampedArray} */
export function table(ramp) {
  const dark = isDark();
  const name = ramp + dark;
  if (!tables.has(name)) {
    const bytes = new Uint8ClampedArray(4 * STEPS);
    for (let i = 0; i < STEPS; i++) {
      const value = ramp === "signed" ? (2 * i) / (STEPS - 1) - 1 : i / (STEPS - 1);
      const hue = ramp === "signed" && value < 0 ? HUES.negative : HUES[ramp];
      bytes.set([...colourAt(Math.abs(value), hue, dark, ramp === "signed" ? 0 : FAINTEST), 255], 4 * i);
    }
    tables.set(name, bytes);
  }
  return tables.get(name);
}

/** A ramp of one hue has a trace of it at zero; between two hues, zero is grey. */
const FAINTEST = 0.04;

function colourAt(value, hue, dark, faintest) {
  const lightness = dark ? 0.235 + 0.62 * value : 0.97 - 0.6 * value;
  const chroma = 0.15 * Math.sin(Math.PI * Math.min(1, faintest + 0.72 * value));
  return fromOklch(lightness, chroma, hue);
}

/** Bytes of sRGB; chroma is lowered where the screen has no such colour. */
function fromOklch(lightness, chroma, hue) {
  for (let c = chroma; c > 0; c -= 0.005) {
    const colour = toLinear(lightness, c, hue);
    if (colour.every((one) => one >= -1e-4 && one <= 1.0001)) return colour.map(toByte);
  }
  return toLinear(lightness, 0, hue).map(toByte);
}

function toLinear(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

function toByte(linear) {
  const value = Math.max(0, Math.min(1, linear));
  return Math.round(255 * (value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055));
}

/** A colour of a ramp for CSS. @param {Ramp} ramp @param {number} value 0 to 1, or -1 to 1 for "signed" */
export function colour(ramp, value) {
  const share = ramp === "signed" ? (value + 1) / 2 : value;
  const i = 4 * Math.round(Math.max(0, Math.min(1, share || 0)) * (STEPS - 1));
  const bytes = table(ramp);
  return `rgb(${bytes[i]} ${bytes[i + 1]} ${bytes[i + 2]})`;
}

/** Black or white, whichever has more contrast (WCAG 2: at least 4.5 on any background).
 * @param {string} background as `colour` gives it */
export function inkOn(background) {
  const [red, green, blue] = background.match(/\d+/g).map((byte) => {
    const value = Number(byte) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

/** The ramp of an attention: one side's hue where a side looks at itself, a third one where target looks at source.
 * @param {import("./types.js").Attention} attention
 * @returns {Ramp} */
export const rampOf = (attention) => ({ encoder: "source", decoder: "target", encoder_decoder: "both" })[attention];
