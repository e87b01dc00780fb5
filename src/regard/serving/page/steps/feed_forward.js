// The feed-forward network: wide, bent, and back.

import { ACTIVATIONS } from "../arithmetic.js";
import { beside, matrix } from "../matrix.js";
import { newest } from "../newest.js";
import { exact } from "../numbers.js";
import { formula, menus, nearest, pin, placeMenu, places, say, span, spanMenu } from "../places.js";
import { factors, readout, terms } from "../readout.js";

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
    const wide = about.settings.feed_forward ?? 4 * trace.outline.model.width;
    const columns = span(state, wide);
    const [inner, hidden] = await Promise.all(
      ["inner", "hidden"].map((point) => trace.tensor(`${place}.${point}`, { columns })),
    );
    const name = about.settings.activation ?? "relu";
    const act = ACTIVATIONS[name];
    const rows = inner.labels[0];
    const say_ = readout();
    root.append(
      say(
        `Each token by itself: its ${trace.outline.model.width} numbers are mixed into ${wide} hidden units, bent by ${name}, and mixed back. Attention moves information between tokens; this is where it is worked on.`,
      ),
      formula(`FFN(x) = ${name}(x · W₁ + b₁) · W₂ + b₂`),
      menus(placeMenu(some, place), spanMenu(state, wide)),
    );
    const backOf = (/** @type {number} */ unit) => Math.min(unit, trace.outline.model.width - 1);
    const ask = (/** @type {number} */ row, /** @type {number} */ unit) =>
      Promise.all([
        trace.product(`${place}.inner`, row, unit),
        trace.product(`${place}_residual.added`, row, backOf(unit)),
      ]);
    const tell = newest(ask, ([cell, out], row, unit) => {
      const sums = [cell, out].map((one, n) => {
        const { left, right, sum } = factors(one);
        return {
          name: n ? `hidden · W₂ + b₂, unit ${backOf(unit)}` : "x · W₁ + b₁",
          how: `${terms(left, right, 2)}${one.bias === null ? "" : ` + ${exact(one.bias)}`}`,
          mine: sum,
          theirs: one.value,
        };
      });
      const bent = hidden.values[row][unit - columns[0]];
      if (act) sums.splice(1, 0, { name, how: `${name}(${exact(cell.value)})`, mine: act(cell.value), theirs: bent });
      say_.show(`${rows[row]}, hidden unit ${unit}`, sums);
    });
    const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
      for (const one of both) one.mark(row, column);
      return tell(row, column + columns[0]);
    };
    const walked = {
      rows,
      from: columns[0],
      onCell,
      onPin: (/** @type {number} */ row, /** @type {number} */ column) => pin(row, column + columns[0]),
    };
    const both = [
      matrix({ title: "x · W₁ + b₁", values: inner.values, ...walked }),
      matrix({ title: `after ${name}`, values: hidden.values, ...walked }),
    ];
    root.append(beside(...both.map((one) => one.element)), say_.element);
    await onCell(Math.min(state.row, rows.length - 1), Math.max(0, Math.min(state.column, wide - 1) - columns[0]));
  },
};
