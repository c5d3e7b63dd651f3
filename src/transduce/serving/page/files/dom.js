// Elements from functions: h for HTML, s for SVG, m for MathML.

const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";

/** An HTML element. Attributes: `onclick` and the like are functions, `style` is an object, null and false leave out.
 * @param {string} name
 * @param {Object<string, any>} [attributes]
 * @param {...any} children  nodes, texts, lists of them; null and false are left out
 * @returns {HTMLElement} */
export function h(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An SVG element; as `h`.
 * @returns {SVGElement} */
export function s(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** A MathML element; as `h`.
 * @returns {MathMLElement} */
export function m(name, attributes, ...children) {
  return filled(document.createElementNS(MATHML, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    // Not as an attribute: the page's Content-Security-Policy forbids those.
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Where elements have been scrolled to, by their ids; listened for, as asking would lay out the page each time.
 * @type {Map<string, [number, number]>} */
const scrolled = new Map();
addEventListener("scroll", ({ target }) => target.id && scrolled.set(target.id, [target.scrollLeft, target.scrollTop]), { capture: true, passive: true });

/** Put new content into an element; what has an id keeps its focus, its scroll position, and being open.
 * @param {HTMLElement} container
 * @param {...any} children */
export function replace(container, ...children) {
  const focused = container.contains(document.activeElement) ? document.activeElement.id : "";
  const kept = [...container.querySelectorAll("[id]")].filter((one) => one.open || scrolled.has(one.id)).map((one) => [one.id, one.open]);
  container.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  for (const [id, open] of kept) {
    const element = document.getElementById(id);
    if (!element) continue;
    if (open) element.open = true;
    if (scrolled.has(id)) [element.scrollLeft, element.scrollTop] = scrolled.get(id);
  }
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}
