// Format formulas: subscripts as in W_q, superscripts as in 10000^(2i/d); identifiers as cross_attention stay unchanged.

import { h } from "./dom.js";

/** @param {string} text @returns {(Node | string)[]} */
export function maths(text) {
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
