// Worked example: attention on a few small numbers. Every number can be edited; results are updated.

import { matmul, softmax, transpose } from "./arithmetic.js";
import { computationDetails, productTerms, softmaxTerms } from "./computation_details.js";
import { formatFormula, h, replace } from "./dom.js";
import { matrix, sideBySide } from "./matrix.js";
import { exact } from "./numbers.js";
import { updateUrl } from "./state.js";

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

/** Scaled dot-product attention with all intermediate values. @param {Record<string, number[][]>} inputs @param {boolean} scaled @param {boolean} masked */
export function attention(inputs, scaled, masked) {
  const [Q, K, V] = [inputs.W_query, inputs.W_key, inputs.W_value].map((weight) => matmul(inputs.X, weight));
  const scores = matmul(Q, transpose(K));
  const scaledScores = scores.map((row) => row.map((score) => (scaled ? score / Math.sqrt(K[0].length) : score)));
  const maskedScores = scaledScores.map((row, r) => row.map((score, c) => (masked && c > r ? null : score)));
  const weights = maskedScores.map(softmax);
  return { Q, K, V, scores, scaledScores, maskedScores, weights, output: matmul(weights, V) };
}

/** Parse the edits in the URL: a cell as X.0.1, or a checkbox, which is 0 or 1. @param {string} edits */
function parseEdits(edits) {
  const pairs = [...edits.matchAll(/([^,:]+):([^,]+)/g)];
  return new Map(pairs.map(([, name, value]) => [name, Number.parseFloat(value) || 0]));
}

/** @param {HTMLElement} root @param {any} app @param {{edits: string}} state */
export async function showWorkedExample(root, app, state) {
  const edits = parseEdits(state.edits);
  /** @type {Record<string, number[][]>} */
  const inputs = {};
  for (const [name, rows] of Object.entries(START))
    inputs[name] = rows.map((row, r) => row.map((value, c) => edits.get(`${name}.${r}.${c}`) ?? value));
  const saveEdit = (/** @type {string} */ name, /** @type {number} */ value) => {
    edits.set(name, value);
    updateUrl({ edits: [...edits].map((edit) => edit.join(":")).join(",") });
    update();
  };
  const resultElement = h("div", { id: "results" });
  const details = computationDetails();
  const option = (/** @type {string} */ id, /** @type {string} */ text, /** @type {boolean} */ on) =>
    h(
      "label",
      { class: "check", for: id },
      h("input", {
        type: "checkbox",
        id,
        checked: Boolean(edits.get(id) ?? on),
        on: { change: (/** @type {any} */ event) => saveEdit(id, Number(event.target.checked)) },
      }),
      h("span", {}, formatFormula(text)),
    );
  const [scaled, masked] = [option("scaled", "÷ √d_k", true), option("masked", "causal mask", false)];
  const update = () => {
    const isScaled = scaled.querySelector("input").checked;
    const isMasked = masked.querySelector("input").checked;
    const results = attention(inputs, isScaled, isMasked);
    const rows = ["token 1", "token 2", "token 3"];
    const columnOf = (/** @type {number[][]} */ values, /** @type {number} */ c) => values.map((row) => row[c]);
    const show = (
      /** @type {string} */ title,
      /** @type {string} */ note,
      /** @type {(number | null)[][]} */ values,
      /** @type {(r: number, c: number) => string | import("./computation_details.js").Terms} */ expression,
      /** @type {any} */ more = {},
    ) => {
      const explain = (/** @type {number} */ r, /** @type {number} */ c) => {
        for (const other of drawn) other.hide();
        drawnMatrix.mark(r, c);
        details.show(`${title}, row ${r + 1}, column ${c + 1}`, [{ name: title, expression: expression(r, c), computed: values[r][c] }]);
      };
      const drawnMatrix = { ...matrix({ title, note, values, rows, from: 1, ...more, onCell: explain }), explain };
      drawnMatrix.element.dataset.values = JSON.stringify(values);
      drawn.push(drawnMatrix);
      return drawnMatrix;
    };
    /** @type {any[]} */
    const drawn = [];
    const times = (/** @type {string} */ name) => (/** @type {number} */ r, /** @type {number} */ c) =>
      productTerms(inputs.X[r], columnOf(inputs[name], c));
    const [Q, K, V] = [
      show("Q", "X · W_query", results.Q, times("W_query")),
      show("K", "X · W_key", results.K, times("W_key")),
      show("V", "X · W_value", results.V, times("W_value")),
    ];
    const [scores, maskedScores, weights] = [
      show("scores", "Q · Kᵀ", results.scores, (r, c) => productTerms(results.Q[r], results.K[c])),
      show(isMasked ? "scaled and masked" : "scaled", isScaled ? "÷ √3" : "not divided", results.maskedScores, (r, c) =>
        results.maskedScores[r][c] === null ? "masked" : `${exact(results.scores[r][c])}${isScaled ? " / √3" : ""}`,
      ),
      show(
        "weights",
        "softmax of each row",
        results.weights,
        (r, c) => softmaxTerms(results.maskedScores[r], c),
        { top: 1, digits: 4 },
      ),
    ];
    const output = show(
      "output",
      "weights · V",
      results.output,
      (r, c) => productTerms(results.weights[r], columnOf(results.V, c)),
      { digits: 4 },
    );
    replace(
      resultElement,
      h("h3", {}, "Query, key and value of every token"),
      sideBySide(Q.element, K.element, V.element),
      h("h3", {}, "Attention weights of every query and key"),
      sideBySide(scores.element, maskedScores.element, weights.element),
      h("h3", {}, "Output: weighted sum of the values"),
      sideBySide(output.element),
      details.element,
    );
    output.explain(0, 0);
  };
  const grid = (/** @type {string} */ name) =>
    h(
      "fieldset",
      { class: "grid" },
      h("legend", {}, formatFormula(name)),
      inputs[name].map((row, r) =>
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
                  inputs[name][r][c] = Number.parseFloat(event.target.value) || 0;
                  saveEdit(`${name}.${r}.${c}`, inputs[name][r][c]);
                },
              },
            }),
          ),
        ),
      ),
    );
  const reset = () => {
    updateUrl({ edits: "" });
    showWorkedExample(root, app, { edits: "" });
  };
  replace(
    root,
    h("h1", {}, "Attention: a worked example"),
    h(
      "p",
      { class: "paragraph" },
      "Three tokens of width four and three small weight matrices. Edit any number to update the results. Everything is computed in your browser, without a model.",
    ),
    h("div", { class: "grids" }, ["X", "W_query", "W_key", "W_value"].map(grid)),
    h(
      "div",
      { class: "menus" },
      scaled,
      masked,
      h("button", { type: "button", on: { click: reset } }, "Reset"),
    ),
    resultElement,
  );
  update();
}
