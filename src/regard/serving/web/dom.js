// Functions that create HTML and SVG elements.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, any>} Attributes */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Create an HTML element. `on` are its event listeners, `data` its dataset, `style` its CSS properties (set one by one, because
 * the page's content security policy blocks `style` attributes).
 * @param {string} tag @param {Attributes} [attributes] @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, attributes = {}, ...children) {
  return configure(document.createElement(tag), attributes, children);
}

/**
 * Create an SVG element.
 * @param {string} tag @param {Attributes} [attributes] @param {...(Child | Child[])} children
 * @returns {any}
 */
export function s(tag, attributes = {}, ...children) {
  return configure(document.createElementNS(SVG, tag), attributes, children);
}

/** @param {any} element @param {Attributes} attributes @param {(Child | Child[])[]} children */
function configure(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "style")
      for (const [key, property] of Object.entries(value)) element.style.setProperty(key, String(property));
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : visible(String(value)));
  }
  element.append(
    ...children
      .flat()
      .filter((child) => child !== null && child !== undefined && child !== false)
      .map(asNode),
  );
  return element;
}

/** @param {any} child */
function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(visible(String(child)));
}

const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

/**
 * Make control characters and bidirectional controls visible as escapes: text of data and models must not reorder the page.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(CONTROLS, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** @param {Element} element @param {...Child} children */
export function replace(element, ...children) {
  element.replaceChildren(
    ...children.filter((child) => child !== null && child !== undefined && child !== false).map(asNode),
  );
}

/**
 * Debounce a function: call it once, after calls have paused for some milliseconds.
 * @param {(...args: any[]) => void} act @param {number} milliseconds
 */
export function debounce(act, milliseconds) {
  let timer = 0;
  return (/** @type {any[]} */ ...args) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => act(...args), milliseconds);
  };
}

/** Format a formula: subscripts as in W_q, superscripts as in 10000^(2i/d); cross_attention stays unchanged. @param {string} text @returns {(Node | string)[]} */
export function formatFormula(text) {
  return text
    .split(/((?<=\b[A-Za-z])_\w+|\^\([^)]*\)|\^[\w−.∞-]+)/)
    .map((part) =>
      part.startsWith("_") && part.length > 1
        ? h("sub", {}, part.slice(1))
        : part.startsWith("^") && part.length > 1
          ? h("sup", {}, part.slice(1).replace(/^\(|\)$/g, ""))
          : part,
    );
}
