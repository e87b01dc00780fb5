// Worked example: attention on a few small numbers. Every number can be edited; results are updated.

import { product, softmax, transposed } from "./arithmetic.js";
import { h, replace } from "./dom.js";
import { maths } from "./maths.js";
import { beside, matrix } from "./matrix.js";
import { exact } from "./numbers.js";
import { powers, readout, terms } from "./readout.js";
import { note } from "./state.js";

const START = {
  X: [
    [1, 0, 1, 0],
    [0, 2, 0, 2],
    [1, 1, 1, 1],
  ],
  W_query: [
    [1, 0, 1],
    [1, 0, 0],
    [0, 0, 1],
    [0, 1, 1],
  ],
  W_key: [
    [0, 0, 1],
    [1, 1, 0],
    [0, 1, 0],
    [1, 1, 0],
  ],
  W_value: [
    [0, 2, 0],
    [0, 3, 0],
    [1, 0, 3],
    [1, 1, 0],
  ],
};

/** Scaled dot-product attention with all intermediate values. @param {Record<string, number[][]>} given @param {boolean} scaled @param {boolean} masked */
export function attention(given, scaled, masked) {
  const [Q, K, V] = [given.W_query, given.W_key, given.W_value].map((weight) => product(given.X, weight));
  const scores = product(Q, transposed(K));
  const divided = scores.map((row) => row.map((one) => (scaled ? one / Math.sqrt(K[0].length) : one)));
  const seen = divided.map((row, r) => row.map((one, c) => (masked && c > r ? null : one)));
  const weights = seen.map(softmax);
  return { Q, K, V, scores, divided, seen, weights, output: product(weights, V) };
}

/** Parse the edits in the URL: a cell as X.0.1, or a checkbox, which is 0 or 1. @param {string} edits */
function changesIn(edits) {
  const pairs = [...edits.matchAll(/([^,:]+):([^,]+)/g)];
  return new Map(pairs.map(([, name, value]) => [name, Number.parseFloat(value) || 0]));
}

/** @param {HTMLElement} root @param {any} app @param {{edits: string}} state */
export async function showHand(root, app, state) {
  const edits = changesIn(state.edits);
  /** @type {Record<string, number[][]>} */
  const given = {};
  for (const [name, rows] of Object.entries(START))
    given[name] = rows.map((row, r) => row.map((value, c) => edits.get(`${name}.${r}.${c}`) ?? value));
  const keep = (/** @type {string} */ name, /** @type {number} */ value) => {
    edits.set(name, value);
    note({ edits: [...edits].map((edit) => edit.join(":")).join(",") });
    update();
  };
  const results = h("div", { id: "results" });
  const say = readout();
  const option = (/** @type {string} */ id, /** @type {string} */ text, /** @type {boolean} */ on) =>
    h(
      "label",
      { class: "check", for: id },
      h("input", {
        type: "checkbox",
        id,
        checked: Boolean(edits.get(id) ?? on),
        on: { change: (/** @type {any} */ event) => keep(id, Number(event.target.checked)) },
      }),
      h("span", {}, maths(text)),
    );
  const [scaled, masked] = [option("scaled", "÷ √d_k", true), option("masked", "look-ahead mask", false)];
  const update = () => {
    const isScaled = scaled.querySelector("input").checked;
    const isMasked = masked.querySelector("input").checked;
    const found = attention(given, isScaled, isMasked);
    const rows = ["token 1", "token 2", "token 3"];
    const columnOf = (/** @type {number[][]} */ values, /** @type {number} */ c) => values.map((row) => row[c]);
    const show = (
      /** @type {string} */ title,
      /** @type {string} */ note,
      /** @type {(number | null)[][]} */ values,
      /** @type {(r: number, c: number) => string | import("./readout.js").Terms} */ how,
      /** @type {any} */ more = {},
    ) => {
      const explain = (/** @type {number} */ r, /** @type {number} */ c) => {
        for (const one of drawn) one.hide();
        one.mark(r, c);
        say.show(`${title}, row ${r + 1}, column ${c + 1}`, [{ name: title, how: how(r, c), mine: values[r][c] }]);
      };
      const one = { ...matrix({ title, note, values, rows, from: 1, ...more, onCell: explain }), explain };
      one.element.dataset.values = JSON.stringify(values);
      drawn.push(one);
      return one;
    };
    /** @type {any[]} */
    const drawn = [];
    const times = (/** @type {string} */ name) => (/** @type {number} */ r, /** @type {number} */ c) =>
      terms(given.X[r], columnOf(given[name], c));
    const [Q, K, V] = [
      show("Q", "X · W_query", found.Q, times("W_query")),
      show("K", "X · W_key", found.K, times("W_key")),
      show("V", "X · W_value", found.V, times("W_value")),
    ];
    const [scores, seen, weights] = [
      show("scores", "Q · Kᵀ", found.scores, (r, c) => terms(found.Q[r], found.K[c])),
      show(isMasked ? "scaled and masked" : "scaled", isScaled ? "÷ √3" : "not divided", found.seen, (r, c) =>
        found.seen[r][c] === null ? "masked" : `${exact(found.scores[r][c])}${isScaled ? " / √3" : ""}`,
      ),
      show(
        "weights",
        "softmax of each row",
        found.weights,
        (r, c) => powers(found.seen[r], c),
        { top: 1, digits: 4 },
      ),
    ];
    const output = show(
      "output",
      "weights · V",
      found.output,
      (r, c) => terms(found.weights[r], columnOf(found.V, c)),
      { digits: 4 },
    );
    replace(
      results,
      h("h3", {}, "Query, key and value of every token"),
      beside(Q.element, K.element, V.element),
      h("h3", {}, "Attention weights of every query and key"),
      beside(scores.element, seen.element, weights.element),
      h("h3", {}, "Output: weighted sum of the values"),
      beside(output.element),
      say.element,
    );
    output.explain(0, 0);
  };
  const grid = (/** @type {string} */ name) =>
    h(
      "fieldset",
      { class: "grid" },
      h("legend", {}, maths(name)),
      given[name].map((row, r) =>
        h(
          "div",
          { class: "grid-row" },
          row.map((value, c) =>
            h("input", {
              type: "number",
              step: "any",
              value,
              "aria-label": `${name}, row ${r + 1}, column ${c + 1}`,
              on: {
                input: (/** @type {any} */ event) => {
                  given[name][r][c] = Number.parseFloat(event.target.value) || 0;
                  keep(`${name}.${r}.${c}`, given[name][r][c]);
                },
              },
            }),
          ),
        ),
      ),
    );
  const again = () => {
    note({ edits: "" });
    showHand(root, app, { edits: "" });
  };
  replace(
    root,
    h("h1", {}, "Attention: a worked example"),
    h(
      "p",
      { class: "say" },
      "Three tokens of width four and three small weight matrices. Edit any number to update the results. Everything is computed in your browser, without a model.",
    ),
    h("div", { class: "grids" }, ["X", "W_query", "W_key", "W_value"].map(grid)),
    h(
      "div",
      { class: "menus" },
      scaled,
      masked,
      h("button", { type: "button", on: { click: again } }, "Reset"),
    ),
    results,
  );
  update();
}
