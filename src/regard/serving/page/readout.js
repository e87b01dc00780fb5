// One number, worked out here and held against the model's.

import { berth } from "./afloat.js";
import { dot } from "./arithmetic.js";
import { h, replace } from "./dom.js";
import { maths } from "./maths.js";
import { exact } from "./numbers.js";

export const CLOSE = 2e-3; // relative to the numbers that went in: the model adds in 32 bits, or 16, the browser in 64

/**
 * @typedef {object} Sum
 * @property {string} name
 * @property {string} [how] the arithmetic, written out
 * @property {number | null} mine as the browser finds it
 * @property {number | null} [theirs] as the model has it; left out where no model was asked
 */

/** A place that says how numbers came about. */
export function readout() {
  const element = h(
    "div",
    { class: "readout", "aria-live": "polite" },
    h("p", { class: "note" }, "Point at a cell, or walk with the arrow keys."),
  );
  return {
    element: berth(element),
    /** @param {string} where @param {Sum[]} sums */
    show(where, sums) {
      replace(element, h("p", { class: "where" }, where), ...sums.map(line));
    },
  };
}

/** @param {Sum} sum */
function line({ name, how, mine, theirs }) {
  if (theirs === undefined) return plain({ name, how, mine });
  const apart = mine === theirs ? 0 : Math.abs((mine ?? -Infinity) - (theirs ?? -Infinity));
  const good = apart <= CLOSE * Math.max(1, Math.abs(theirs ?? 0));
  return h(
    "div",
    { class: "sum", data: { mine: String(mine), theirs: String(theirs), name } },
    h("p", { class: "how" }, h("b", {}, maths(name)), how && h("span", {}, " = ", maths(how))),
    h(
      "p",
      { class: "verdict" },
      h("span", {}, "here ", h("code", {}, exact(mine))),
      h("span", {}, "model ", h("code", {}, exact(theirs))),
      h(
        "span",
        { class: good ? "good" : "apart" },
        good ? "✓ " : "≠ ",
        "difference ",
        h("code", {}, apart === 0 ? "0" : apart.toExponential(1)),
      ),
    ),
  );
}

/** What nobody else has worked out. @param {Sum} sum */
function plain({ name, how, mine }) {
  return h(
    "div",
    { class: "sum", data: { mine: String(mine), name } },
    h("p", { class: "how" }, h("b", {}, maths(name)), how && h("span", {}, " = ", maths(how)), " = ", h("b", {}, exact(mine))),
  );
}

/**
 * The terms of a sum, the first few written out.
 * @param {number[]} left @param {number[]} right @param {number} [most]
 */
export function terms(left, right, most = 6) {
  const written = left.slice(0, most).map((one, n) => `${exact(one)} · ${exact(right[n])}`);
  return written.join(" + ") + (left.length > most ? ` + … (${left.length} terms)` : "");
}

/**
 * A cell of a product as two rows, and their sum as the browser finds it.
 * @param {any} cell @returns {{left: number[], right: number[], sum: number}}
 */
export function factors(cell) {
  const [left, right] = ["left", "right"].map((side) => cell.terms.map((/** @type {any} */ term) => term[side]));
  return { left, right, sum: dot(left, right) + (cell.bias ?? 0) };
}
