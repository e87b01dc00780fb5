// Step: pooling the token vectors into one vector.

import { dot, mean } from "../arithmetic.js";
import { computationDetails, productTerms } from "../computation_details.js";
import { formula, menus, paragraph, selectCell, unitRange, unitRangeMenu } from "../locations.js";
import { matrix, sideBySide } from "../matrix.js";
import { exact } from "../numbers.js";

/** Calculation of a unit of the text's vector from the same unit of its tokens. @typedef {(column: number[]) => [string | import("../computation_details.js").Terms, number]} UnitCalculation */

/** Opening of a function's formula, and the function. @typedef {[string, (x: number) => number]} Activation */

/** Each has `of`, or the activation of a dense layer. @type {Record<string, {description: string, formula: string, of?: UnitCalculation, activation?: Activation}>} */
const POOLINGS = {
  mean: {
    description: "the mean over all tokens, including the start and end tokens.",
    formula: "v = (x₁ + … + x_n) / n",
    of: (column) => [
      { count: column.length, write: (n) => exact(column[n]), before: "(", after: `) / ${column.length}` },
      mean(column),
    ],
  },
  first: {
    description: "the vector of the first token, in which the network has learned to represent the whole text.",
    formula: "v = x₁",
    of: (column) => ["x₁", column[0]],
  },
  "first-dense": {
    description: "the vector of the first token through a dense layer and tanh, as in BERT.",
    formula: "v = tanh(x₁ · W + b)",
    activation: ["tanh(", Math.tanh],
  },
  "first-relu": {
    description: "the vector of the first token through a dense layer and ReLU, as in DistilBERT.",
    formula: "v = max(0, x₁ · W + b)",
    activation: ["max(0, ", (/** @type {number} */ x) => Math.max(0, x)],
  },
};

/** Calculation through a dense layer, from all units of the first token. @param {any} trace @param {number} unit @param {Activation} activation @returns {Promise<[import("../computation_details.js").Terms, number]>} */
async function dense(trace, unit, [opening, apply]) {
  const columns = [unit, unit + 1];
  const [first, weight, bias] = await Promise.all([
    trace.tensor("encoder.states", { rows: [0, 1] }),
    trace.request("weight", { name: "pooling.W_dense", columns }),
    trace.request("weight", { name: "pooling.b_dense", columns }),
  ]);
  const right = weight.values.map((/** @type {number[]} */ row) => row[0]);
  const sum = dot(first.values[0], right) + bias.values[0];
  const around = { before: opening, after: ` + ${exact(bias.values[0])})` };
  return [productTerms(first.values[0], right, around), apply(sum)];
}

export const pooling = {
  id: "pooling",
  title: "Pooling",
  section: "",
  here: () => ["pooling.vector"],
  exists: (/** @type {any} */ trace) =>
    trace.has("pooling.vector") && ["classes", undefined].includes(trace.outline.head?.kind),
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state, about }) {
    const { width } = trace.outline.model;
    const columns = unitRange(state, width);
    const [states, vector] = await Promise.all([
      trace.tensor("encoder.states", { columns }),
      trace.tensor("pooling.vector", { columns }),
    ]);
    const method = POOLINGS[about.settings.pooling ?? "mean"];
    const rows = states.labels[0];
    const details = computationDetails();
    let callCount = 0;
    const onCell = async (/** @type {number} */ row, /** @type {number} */ column) => {
      tokenMatrix.mark(row, column);
      textMatrix.mark(0, column);
      callCount += 1;
      const ownCount = callCount;
      const unit = column + columns[0];
      const unitValues = states.values.map((/** @type {number[]} */ values) => values[column]);
      const [expression, computed] = method.of ? method.of(unitValues) : await dense(trace, unit, /** @type {Activation} */ (method.activation));
      if (ownCount === callCount) details.show(`unit ${unit}`, [{ name: "v", expression, computed, modelValue: vector.values[column] }]);
    };
    const onPin = (/** @type {number} */ row, /** @type {number} */ column) => selectCell(row, column + columns[0]);
    const tokenMatrix = matrix({
      title: "Vectors of the tokens",
      values: states.values,
      rows,
      from: columns[0],
      onCell,
      onPin,
    });
    const textMatrix = matrix({
      title: "Vector of the text",
      values: [vector.values],
      rows: ["text"],
      from: columns[0],
      onCell: (_, column) => onCell(0, column),
    });
    root.append(
      paragraph("The encoder outputs a vector for every token. The vector of the text is ", method.description),
      formula(method.formula),
      menus(unitRangeMenu(state, width)),
      sideBySide(tokenMatrix.element, textMatrix.element),
      details.element,
    );
    await onCell(
      Math.min(state.row, rows.length - 1),
      Math.max(0, Math.min(state.column, columns[1] - 1) - columns[0]),
    );
  },
};
