// Step: pooling the token vectors into one vector.

import { dot, mean } from "../arithmetic.js";
import { beside, matrix } from "../matrix.js";
import { exact } from "../numbers.js";
import { formula, menus, pin, say, span, spanMenu } from "../places.js";
import { readout, terms } from "../readout.js";

/** Calculation of a unit of the text's vector from the same unit of its tokens. @typedef {(column: number[]) => [string | import("../readout.js").Terms, number]} Follows */

/** @type {Record<string, {says: string, formula: string, of?: Follows}>} */
const WAYS = {
  mean: {
    says: "the mean over all tokens, including the start and end tokens.",
    formula: "v = (x₁ + … + x_n) / n",
    of: (column) => [
      { count: column.length, write: (n) => exact(column[n]), before: "(", after: `) / ${column.length}` },
      mean(column),
    ],
  },
  first: {
    says: "the vector of the first token, in which the network has learned to represent the whole text.",
    formula: "v = x₁",
    of: (column) => ["x₁", column[0]],
  },
  "first-dense": {
    says: "the vector of the first token through a dense layer and tanh, as in BERT.",
    formula: "v = tanh(x₁ · W + b)",
  },
};

/** Calculation through a dense layer, from all units of the first token. @param {any} trace @param {number} unit @returns {Promise<[import("../readout.js").Terms, number]>} */
async function dense(trace, unit) {
  const columns = [unit, unit + 1];
  const [first, weight, bias] = await Promise.all([
    trace.tensor("encoder.states", { rows: [0, 1] }),
    trace.ask("weight", { name: "pooling.W_dense", columns }),
    trace.ask("weight", { name: "pooling.b_dense", columns }),
  ]);
  const right = weight.values.map((/** @type {number[]} */ row) => row[0]);
  const sum = dot(first.values[0], right) + bias.values[0];
  const around = { before: "tanh(", after: ` + ${exact(bias.values[0])})` };
  return [terms(first.values[0], right, around), Math.tanh(sum)];
}

export const pooling = {
  id: "pooling",
  title: "Pooling",
  section: "",
  here: () => ["pooling.vector"],
  exists: (/** @type {any} */ trace) =>
    trace.has("pooling.vector") && ["classes", undefined].includes(trace.outline.head?.kind),
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state, about }) {
    const { width } = trace.outline.model;
    const columns = span(state, width);
    const [states, vector] = await Promise.all([
      trace.tensor("encoder.states", { columns }),
      trace.tensor("pooling.vector", { columns }),
    ]);
    const way = WAYS[about.settings.pooling ?? "mean"];
    const rows = states.labels[0];
    const told = readout();
    let latest = 0;
    const onCell = async (/** @type {number} */ row, /** @type {number} */ column) => {
      each.mark(row, column);
      whole.mark(0, column);
      latest += 1;
      const turn = latest;
      const unit = column + columns[0];
      const down = states.values.map((/** @type {number[]} */ one) => one[column]);
      const [how, mine] = way.of ? way.of(down) : await dense(trace, unit);
      if (turn === latest) told.show(`unit ${unit}`, [{ name: "v", how, mine, theirs: vector.values[column] }]);
    };
    const onPin = (/** @type {number} */ row, /** @type {number} */ column) => pin(row, column + columns[0]);
    const each = matrix({
      title: "Vectors of the tokens",
      values: states.values,
      rows,
      from: columns[0],
      onCell,
      onPin,
    });
    const whole = matrix({
      title: "Vector of the text",
      values: [vector.values],
      rows: ["text"],
      from: columns[0],
      onCell: (_, column) => onCell(0, column),
    });
    root.append(
      say("The encoder outputs a vector for every token. The vector of the text is ", way.says),
      formula(way.formula),
      menus(spanMenu(state, width)),
      beside(each.element, whole.element),
      told.element,
    );
    await onCell(
      Math.min(state.row, rows.length - 1),
      Math.max(0, Math.min(state.column, columns[1] - 1) - columns[0]),
    );
  },
};
