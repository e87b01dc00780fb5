// Formulas as they are printed: W_q with its q below, 10000^(2i/d) with its power above; cross_attention stays as it is.

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
