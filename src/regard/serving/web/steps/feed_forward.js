// Step: the feed-forward network.

import { ACTIVATIONS, GATED } from "../arithmetic.js";
import { beside, matrix } from "../matrix.js";
import { newest } from "../newest.js";
import { exact } from "../numbers.js";
import { formula, menus, nearest, pin, placeMenu, places, say, span, spanMenu } from "../places.js";
import { multiplied, readout } from "../readout.js";

export const feedForward = {
  id: "feed_forward",
  title: "Feed-forward",
  section: "§3.3",
  here: (/** @type {any} */ { trace, state }) => [
    nearest(places(trace, "inner", "hidden"), state.at).replace(/\.\d+\./, "."),
  ],
  exists: (/** @type {any} */ trace) => places(trace, "inner", "hidden").length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state, about }) {
    const some = places(trace, "inner", "hidden");
    const place = nearest(some, state.at);
    const { feed_forward: wide, activation: name } = about.settings;
    const way = name in GATED ? gated(name) : plain(name);
    const columns = span(state, wide);
    const further = columns.map((column) => column + wide); // columns of the values that belong to the gates
    const tensor = (/** @type {string} */ point, /** @type {number[]} */ part) =>
      trace.tensor(`${place}.${point}`, { columns: part });
    const [inner, hidden, value, { active: on }] = await Promise.all([
      tensor("inner", columns),
      tensor("hidden", columns),
      way.gates ? tensor("inner", further) : null,
      trace.ask("units", { layer: place.replace(/\.feed_forward$/, "") }),
    ]);
    const rows = inner.labels[0];
    const told = readout();
    root.append(
      say(
        `Applied to each token separately: a linear layer from ${trace.outline.model.width} to ${wide} hidden units, the activation ${name}, and a linear layer back. Attention moves information between tokens; the feed-forward network transforms it at each position.`,
      ),
      formula(way.formula),
      menus(placeMenu(some, place), spanMenu(state, wide)),
    );
    const backOf = (/** @type {number} */ unit) => Math.min(unit, trace.outline.model.width - 1);
    const ask = (/** @type {number} */ row, /** @type {number} */ unit) =>
      Promise.all([
        ...way.inner.map((_, n) => trace.product(`${place}.inner`, row, unit + n * wide)),
        trace.product(`${place}_residual.added`, row, backOf(unit)),
      ]);
    const tell = newest(ask, (cells, row, unit) => {
      const back = cells[cells.length - 1];
      const numbers = cells.slice(0, -1).map((cell) => cell.value);
      told.show(`${rows[row]}, hidden unit ${unit}; ${on[row]} of ${wide} units are active`, [
        ...way.inner.map((title, n) => multiplied(title, cells[n])),
        { name, how: way.how(...numbers), mine: way.act(...numbers), theirs: hidden.values[row][unit - columns[0]] },
        multiplied(`${way.back}, unit ${backOf(unit)}`, back),
      ]);
    });
    const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
      for (const one of drawn) one.mark(row, column);
      return tell(row, column + columns[0]);
    };
    const walked = {
      rows,
      from: columns[0],
      onCell,
      onPin: (/** @type {number} */ row, /** @type {number} */ column) => pin(row, column + columns[0]),
    };
    const drawn = [
      ...way.inner.map((title, n) => matrix({ title, values: (n ? value : inner).values, ...walked })),
      matrix({ title: `after ${name}`, values: hidden.values, ...walked }),
    ];
    root.append(
      beside(...drawn.map((one) => one.element)),
      told.element,
      matrix({
        title: "Active hidden units",
        note: `above 0, of ${wide}`,
        values: [on],
        rows: ["active"],
        columns: rows,
        top: wide,
      }).element,
    );
    await onCell(Math.min(state.row, rows.length - 1), Math.max(0, Math.min(state.column, wide - 1) - columns[0]));
  },
};

/**
 * How hidden units are computed.
 * @typedef {object} Way
 * @property {boolean} gates
 * @property {string} formula
 * @property {string[]} inner titles of the inputs of a unit's activation
 * @property {string} back
 * @property {(...numbers: number[]) => number} act
 * @property {(...numbers: number[]) => string} how
 */

/** @param {string} name @returns {Way} */
function plain(name) {
  return {
    gates: false,
    formula: `FFN(x) = ${name}(x · W₁ + b₁) · W₂ + b₂`,
    inner: ["x · W₁ + b₁"],
    back: "hidden · W₂ + b₂",
    act: ACTIVATIONS[name],
    how: (x) => `${name}(${exact(x)})`,
  };
}

/** @param {string} name @returns {Way} */
function gated(name) {
  return {
    gates: true,
    formula: `FFN(x) = (swish(gate) ⊙ value) · W₂     [gate, value] = x · W₁`,
    inner: ["gate of x · W₁", "value of x · W₁"],
    back: "hidden · W₂",
    act: GATED[name],
    how: (gate, value) => `swish(${exact(gate)}) · ${exact(value)}`,
  };
}
