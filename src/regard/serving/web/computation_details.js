// Details of a computation: a value computed in the browser, compared with the model's value.

import { dot } from "./arithmetic.js";
import { formatFormula, h, replace } from "./dom.js";
import { floatingSlot } from "./floating_panel.js";
import { exact } from "./numbers.js";

export const TOLERANCE = 2e-3; // relative tolerance: the model computes in 32 or 16 bits, the browser in 64

/**
 * @typedef {object} Terms terms of a sum; the first few are shown at once, all of them on request
 * @property {number} count
 * @property {(n: number) => string} write
 * @property {string} [before]
 * @property {string} [after]
 */

/**
 * @typedef {object} Calculation
 * @property {string} name
 * @property {string | Terms} [expression] the calculation as text
 * @property {number | null} computed value computed in the browser
 * @property {number | null} [modelValue] value of the model; undefined where there is none to compare with
 */

const SHORT_COUNT = 3; // terms shown at once if there are many

/** An element that shows how values are computed. */
export function computationDetails() {
  const element = h(
    "div",
    { class: "computation", "aria-live": "polite" },
    h("p", { class: "note" }, "Point at a cell, or move with the arrow keys."),
  );
  /** Sums whose terms are all shown: they stay open from cell to cell. @type {Set<number>} */
  const opened = new Set();
  return {
    element: floatingSlot(element),
    /** @param {string} location @param {Calculation[]} calculations */
    show(location, calculations) {
      const lines = calculations.map((sum, n) => checkedLine(sum, allTerms(sum.expression, n, opened)));
      replace(element, h("p", { class: "location" }, location), ...lines);
    },
  };
}

/** @param {Calculation} sum @param {HTMLElement | null} full */
function checkedLine({ name, expression, computed, modelValue }, full) {
  if (modelValue === undefined) return uncheckedLine({ name, expression, computed }, full);
  const difference = computed === modelValue ? 0 : Math.abs((computed ?? -Infinity) - (modelValue ?? -Infinity));
  const matches = difference <= TOLERANCE * Math.max(1, Math.abs(modelValue ?? 0));
  return h(
    "div",
    { class: "calculation", data: { computed: String(computed), modelValue: String(modelValue), name } },
    h("p", { class: "expression" }, h("b", {}, formatFormula(name)), expression && h("span", {}, " = ", formatFormula(abbreviate(expression)))),
    h(
      "div",
      { class: "comparison" },
      h("span", {}, "browser ", h("code", {}, exact(computed))),
      h("span", {}, "model ", h("code", {}, exact(modelValue))),
      h(
        "span",
        { class: matches ? "match" : "mismatch" },
        matches ? "✓ " : "≠ ",
        "difference ",
        h("code", {}, difference === 0 ? "0" : difference.toExponential(1)),
      ),
      full,
    ),
  );
}

/** A value without a model value to compare with. @param {Calculation} sum @param {HTMLElement | null} full */
function uncheckedLine({ name, expression, computed }, full) {
  return h(
    "div",
    { class: "calculation", data: { computed: String(computed), name } },
    h(
      "p",
      { class: "expression" },
      h("b", {}, formatFormula(name)),
      expression && h("span", {}, " = ", formatFormula(abbreviate(expression))),
      " = ",
      h("b", {}, exact(computed)),
    ),
    h("div", { class: "comparison" }, full),
  );
}

/** @param {string | Terms} expression */
function abbreviate(expression) {
  return typeof expression === "string" ? expression : joinTerms(expression, isLong(expression) ? SHORT_COUNT : expression.count);
}

/** Whether there are too many terms to show at once; a single extra term is not hidden. @param {Terms} expression */
function isLong({ count }) {
  return count > SHORT_COUNT + 1;
}

/** The first terms of a sum, or all of them. @param {Terms} expression @param {number} most */
function joinTerms({ count, write, before = "", after = "" }, most) {
  const shown = Array.from({ length: Math.min(count, most) }, (_, n) => write(n));
  return `${before}${shown.join(" + ")}${count > most ? " + …" : ""}${after}`;
}

/** Disclosure with all terms; null if all of them are shown already. @param {string | Terms | undefined} expression @param {number} n @param {Set<number>} opened */
function allTerms(expression, n, opened) {
  if (!expression || typeof expression === "string" || !isLong(expression)) return null;
  const label = `All ${expression.count.toLocaleString("en")} terms`;
  const all = h("details", { class: "terms", open: opened.has(n) }, h("summary", {}, label));
  const write = () => {
    if (all.open && all.children.length === 1)
      all.append(h("p", { tabindex: "0", role: "region", "aria-label": label }, formatFormula(joinTerms(expression, expression.count))));
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
export function productTerms(left, right, around = {}) {
  return { count: left.length, write: (n) => `${exact(left[n])} · ${exact(right[n])}`, ...around };
}

/** Terms of the softmax of one value of a row. @param {(number | null)[]} row @param {number} n @returns {Terms} */
export function softmaxTerms(row, n) {
  const finite = row.filter((score) => score !== null); // e^−∞ is 0
  return {
    count: finite.length,
    write: (m) => `e^${exact(finite[m])}`,
    before: `e^${exact(row[n])} / (`,
    after: ")",
  };
}

/** Calculation of one cell of x · W + b. @param {string} name @param {any} cell @returns {Calculation} */
export function matrixProduct(name, cell) {
  const { left, right, sum } = factors(cell);
  const after = cell.bias === null ? "" : ` + ${exact(cell.bias)}`;
  return { name, expression: productTerms(left, right, { after }), computed: sum, modelValue: cell.value };
}

/**
 * Factors of one cell of a matrix product, and their sum computed in the browser.
 * @param {any} cell @returns {{left: number[], right: number[], sum: number}}
 */
export function factors(cell) {
  const [left, right] = ["left", "right"].map((side) => cell.terms.map((/** @type {any} */ term) => term[side]));
  return { left, right, sum: dot(left, right) + (cell.bias ?? 0) };
}
