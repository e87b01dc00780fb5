// Details of a computation: a value computed in the browser, compared with the model's value.

import { berth } from "./afloat.js";
import { dot } from "./arithmetic.js";
import { h, replace } from "./dom.js";
import { maths } from "./maths.js";
import { exact } from "./numbers.js";

export const CLOSE = 2e-3; // relative tolerance: the model computes in 32 or 16 bits, the browser in 64

/**
 * @typedef {object} Terms terms of a sum; the first few are shown at once, all of them on request
 * @property {number} count
 * @property {(n: number) => string} write
 * @property {string} [before]
 * @property {string} [after]
 */

/**
 * @typedef {object} Sum
 * @property {string} name
 * @property {string | Terms} [how] the calculation as text
 * @property {number | null} mine value computed in the browser
 * @property {number | null} [theirs] value of the model; undefined where there is none to compare with
 */

const FEW = 3; // terms shown at once if there are many

/** An element that shows how values are computed. */
export function readout() {
  const element = h(
    "div",
    { class: "readout", "aria-live": "polite" },
    h("p", { class: "note" }, "Point at a cell, or move with the arrow keys."),
  );
  /** Sums whose terms are all shown: they stay open from cell to cell. @type {Set<number>} */
  const opened = new Set();
  return {
    element: berth(element),
    /** @param {string} where @param {Sum[]} sums */
    show(where, sums) {
      const lines = sums.map((sum, n) => line(sum, inFull(sum.how, n, opened)));
      replace(element, h("p", { class: "where" }, where), ...lines);
    },
  };
}

/** @param {Sum} sum @param {HTMLElement | null} full */
function line({ name, how, mine, theirs }, full) {
  if (theirs === undefined) return plain({ name, how, mine }, full);
  const apart = mine === theirs ? 0 : Math.abs((mine ?? -Infinity) - (theirs ?? -Infinity));
  const good = apart <= CLOSE * Math.max(1, Math.abs(theirs ?? 0));
  return h(
    "div",
    { class: "sum", data: { mine: String(mine), theirs: String(theirs), name } },
    h("p", { class: "how" }, h("b", {}, maths(name)), how && h("span", {}, " = ", maths(inShort(how)))),
    h(
      "div",
      { class: "verdict" },
      h("span", {}, "browser ", h("code", {}, exact(mine))),
      h("span", {}, "model ", h("code", {}, exact(theirs))),
      h(
        "span",
        { class: good ? "good" : "apart" },
        good ? "✓ " : "≠ ",
        "difference ",
        h("code", {}, apart === 0 ? "0" : apart.toExponential(1)),
      ),
      full,
    ),
  );
}

/** A value without a model value to compare with. @param {Sum} sum @param {HTMLElement | null} full */
function plain({ name, how, mine }, full) {
  return h(
    "div",
    { class: "sum", data: { mine: String(mine), name } },
    h(
      "p",
      { class: "how" },
      h("b", {}, maths(name)),
      how && h("span", {}, " = ", maths(inShort(how))),
      " = ",
      h("b", {}, exact(mine)),
    ),
    h("div", { class: "verdict" }, full),
  );
}

/** @param {string | Terms} how */
function inShort(how) {
  return typeof how === "string" ? how : written(how, many(how) ? FEW : how.count);
}

/** Whether there are too many terms to show at once; a single extra term is not hidden. @param {Terms} how */
function many({ count }) {
  return count > FEW + 1;
}

/** The first terms of a sum, or all of them. @param {Terms} how @param {number} most */
function written({ count, write, before = "", after = "" }, most) {
  const some = Array.from({ length: Math.min(count, most) }, (_, n) => write(n));
  return `${before}${some.join(" + ")}${count > most ? " + …" : ""}${after}`;
}

/** Disclosure with all terms; null if all of them are shown already. @param {string | Terms | undefined} how @param {number} n @param {Set<number>} opened */
function inFull(how, n, opened) {
  if (!how || typeof how === "string" || !many(how)) return null;
  const label = `All ${how.count.toLocaleString("en")} terms`;
  const all = h("details", { class: "terms", open: opened.has(n) }, h("summary", {}, label));
  const write = () => {
    if (all.open && all.children.length === 1)
      all.append(h("p", { tabindex: "0", role: "region", "aria-label": label }, maths(written(how, how.count))));
  };
  all.addEventListener("toggle", () => {
    write();
    if (all.open) opened.add(n);
    else if (all.isConnected) opened.delete(n);
  });
  write();
  return all;
}

/** A sum of products. @param {number[]} left @param {number[]} right @param {{before?: string, after?: string}} [around] @returns {Terms} */
export function terms(left, right, around = {}) {
  return { count: left.length, write: (n) => `${exact(left[n])} · ${exact(right[n])}`, ...around };
}

/** Terms of the softmax of one value of a row. @param {(number | null)[]} row @param {number} n @returns {Terms} */
export function powers(row, n) {
  const seen = row.filter((one) => one !== null); // e^−∞ is 0
  return {
    count: seen.length,
    write: (m) => `e^${exact(seen[m])}`,
    before: `e^${exact(row[n])} / (`,
    after: ")",
  };
}

/** Calculation of one cell of x · W + b. @param {string} name @param {any} cell @returns {Sum} */
export function multiplied(name, cell) {
  const { left, right, sum } = factors(cell);
  const after = cell.bias === null ? "" : ` + ${exact(cell.bias)}`;
  return { name, how: terms(left, right, { after }), mine: sum, theirs: cell.value };
}

/**
 * Factors of one cell of a matrix product, and their sum computed in the browser.
 * @param {any} cell @returns {{left: number[], right: number[], sum: number}}
 */
export function factors(cell) {
  const [left, right] = ["left", "right"].map((side) => cell.terms.map((/** @type {any} */ term) => term[side]));
  return { left, right, sum: dot(left, right) + (cell.bias ?? 0) };
}
