// Step: the feed-forward network.

import { ACTIVATIONS, GATED } from "../arithmetic.js";
import { computationDetails, matrixProduct } from "../computation_details.js";
import { latestOnly } from "../live_request.js";
import {
  formula,
  locationMenu,
  locationsWith,
  menus,
  nearestLocation,
  paragraph,
  selectCell,
  unitRange,
  unitRangeMenu,
} from "../locations.js";
import { matrix, sideBySide } from "../matrix.js";
import { exact } from "../numbers.js";

/** Feed-forward layers; experts have a step of their own. @param {any} trace */
const locationsOf = (trace) => locationsWith(trace, "inner", "hidden").filter((location) => !location.includes(".experts."));

export const feedForward = {
  id: "feed_forward",
  title: "Feed-forward",
  section: "§3.3",
  here: (/** @type {any} */ { trace, state }) => [
    nearestLocation(locationsOf(trace), state.at).replace(/\.\d+\./, "."),
  ],
  exists: (/** @type {any} */ trace) => locationsOf(trace).length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state, about }) {
    const locations = locationsOf(trace);
    const location = nearestLocation(locations, state.at);
    const { feed_forward: hiddenSize, activation: name } = about.settings;
    const variant = name in GATED ? gated(name) : ungated(name);
    const columns = unitRange(state, hiddenSize);
    const valueColumns = columns.map((column) => column + hiddenSize); // columns of the values that belong to the gates
    const tensor = (/** @type {string} */ point, /** @type {number[]} */ part) =>
      trace.tensor(`${location}.${point}`, { columns: part });
    const [inner, hidden, value, { active }] = await Promise.all([
      tensor("inner", columns),
      tensor("hidden", columns),
      variant.gates ? tensor("inner", valueColumns) : null,
      trace.request("units", { layer: location.replace(/\.feed_forward$/, "") }),
    ]);
    const rows = inner.labels[0];
    const details = computationDetails();
    root.append(
      paragraph(
        `Applied to each token separately: a linear layer from ${trace.outline.model.width} to ${hiddenSize} hidden units, the activation ${name}, and a linear layer back. Attention moves information between tokens; the feed-forward network transforms it at each position.`,
      ),
      formula(variant.formula),
      menus(locationMenu(locations, location), unitRangeMenu(state, hiddenSize)),
    );
    const backOf = (/** @type {number} */ unit) => Math.min(unit, trace.outline.model.width - 1);
    const request = (/** @type {number} */ row, /** @type {number} */ unit) =>
      Promise.all([
        ...variant.inner.map((_, n) => trace.product(`${location}.inner`, row, unit + n * hiddenSize)),
        trace.product(`${location}_residual.added`, row, backOf(unit)),
      ]);
    const explain = latestOnly(request, (cells, row, unit) => {
      const back = cells[cells.length - 1];
      const numbers = cells.slice(0, -1).map((cell) => cell.value);
      details.show(`${rows[row]}, hidden unit ${unit}; ${active[row]} of ${hiddenSize} units are active`, [
        ...variant.inner.map((title, n) => matrixProduct(title, cells[n])),
        { name, expression: variant.expression(...numbers), computed: variant.act(...numbers), modelValue: hidden.values[row][unit - columns[0]] },
        matrixProduct(`${variant.back}, unit ${backOf(unit)}`, back),
      ]);
    });
    const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
      for (const item of drawn) item.mark(row, column);
      return explain(row, column + columns[0]);
    };
    const shared = {
      rows,
      from: columns[0],
      onCell,
      onPin: (/** @type {number} */ row, /** @type {number} */ column) => selectCell(row, column + columns[0]),
    };
    const drawn = [
      ...variant.inner.map((title, n) => matrix({ title, values: (n ? value : inner).values, ...shared })),
      matrix({ title: `after ${name}`, values: hidden.values, ...shared }),
    ];
    root.append(
      sideBySide(...drawn.map((item) => item.element)),
      details.element,
      matrix({
        title: "Active hidden units",
        note: `above 0, of ${hiddenSize}`,
        values: [active],
        rows: ["active"],
        columns: rows,
        top: hiddenSize,
      }).element,
    );
    await onCell(Math.min(state.row, rows.length - 1), Math.max(0, Math.min(state.column, hiddenSize - 1) - columns[0]));
  },
};

/**
 * How hidden units are computed.
 * @typedef {object} Variant
 * @property {boolean} gates
 * @property {string} formula
 * @property {string[]} inner titles of the inputs of a unit's activation
 * @property {string} back
 * @property {(...numbers: number[]) => number} act
 * @property {(...numbers: number[]) => string} expression
 */

/** @param {string} name @returns {Variant} */
function ungated(name) {
  return {
    gates: false,
    formula: `FFN(x) = ${name}(x · W₁ + b₁) · W₂ + b₂`,
    inner: ["x · W₁ + b₁"],
    back: "hidden · W₂ + b₂",
    act: ACTIVATIONS[name],
    expression: (x) => `${name}(${exact(x)})`,
  };
}

/** @param {string} name @returns {Variant} */
function gated(name) {
  return {
    gates: true,
    formula: `FFN(x) = (swish(gate) ⊙ value) · W₂     [gate, value] = x · W₁`,
    inner: ["gate of x · W₁", "value of x · W₁"],
    back: "hidden · W₂",
    act: GATED[name],
    expression: (gate, value) => `swish(${exact(gate)}) · ${exact(value)}`,
  };
}
