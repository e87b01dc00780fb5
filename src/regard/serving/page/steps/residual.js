// Add & Norm: the way around a sub-layer, and the norm.

import { deviation, mean } from "../arithmetic.js";
import { beside, matrix } from "../matrix.js";
import { exact } from "../numbers.js";
import { formula, menus, nearest, pin, placeMenu, places, say, span, spanMenu } from "../places.js";
import { readout } from "../readout.js";

export const residual = {
  id: "residual",
  title: "Add & Norm",
  section: "§3.1",
  here: (/** @type {any} */ { trace, state }) => [`${nearest(some(trace), state.at).replace(/\.\d+\./, ".")}_residual`],
  exists: (/** @type {any} */ trace) => some(trace).length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state, about }) {
    const place = nearest(some(trace), state.at);
    const at = `${place}_residual`;
    const { width } = trace.outline.model;
    const columns = span(state, width);
    const first = about.settings.norm_order === "pre";
    const whole = { columns: [0, width] };
    const optional = (/** @type {string} */ point) =>
      trace.has(`${at}.${point}`) ? trace.tensor(`${at}.${point}`) : Promise.resolve(null);
    const x = first && trace.has(`${at}.norm_input`) ? `${at}.norm_input` : `${place}.input`;
    const [before, added, sum, input, normed] = await Promise.all([
      trace.tensor(x, whole),
      trace.tensor(`${at}.added`, whole),
      trace.tensor(`${at}.sum`, whole),
      optional("norm_input"),
      trace.tensor(`${at}.normed`, whole),
    ]);
    const [means, deviations, gain, bias] = await Promise.all(["mean", "deviation", "gain", "bias"].map(optional));
    const rows = sum.labels[0];
    const connected = about.settings.residual !== false;
    const epsilon = about.settings.norm_epsilon ?? 1e-5;
    root.append(
      say(
        "What a sub-layer finds is added to what went in, so that nothing is lost on the way and gradients flow through; and each token's vector is brought to mean 0 and deviation 1, then stretched and shifted by what was learned.",
      ),
      formula(first ? "x + Sublayer(LayerNorm(x))   (this model norms first)" : "LayerNorm(x + Sublayer(x))"),
      menus(placeMenu(some(trace), place), spanMenu(state, width)),
    );
    const say_ = readout();
    const onCell = (/** @type {number} */ row, /** @type {number} */ shown) => {
      for (const one of both) one.mark(row, shown);
      const unit = shown + columns[0];
      const [a, b] = [connected ? before.values[row][unit] : 0, added.values[row][unit]];
      const sums = [
        { name: "x + Sublayer(x)", how: `${exact(a)} + ${exact(b)}`, mine: a + b, theirs: sum.values[row][unit] },
      ];
      if (input && deviations) {
        const vector = input.values[row];
        const middle = means ? mean(vector) : 0;
        const spread = deviation(vector, epsilon, Boolean(means));
        if (means)
          sums.push({
            name: "mean",
            how: `Σ of ${vector.length} units / ${vector.length}`,
            mine: middle,
            theirs: means.values[row],
          });
        sums.push({ name: "deviation", how: `√(variance + ${epsilon})`, mine: spread, theirs: deviations.values[row] });
        const [g, c] = [gain?.values[unit] ?? 1, bias?.values[unit] ?? 0];
        sums.push({
          name: "norm",
          how: `(${exact(vector[unit])} − ${exact(middle)}) / ${exact(spread)} × ${exact(g)} + ${exact(c)}`,
          mine: ((vector[unit] - middle) / spread) * g + c,
          theirs: normed.values[row][unit],
        });
      }
      say_.show(`${rows[row]}, unit ${unit}`, sums);
    };
    const onPin = (/** @type {number} */ row, /** @type {number} */ column) => pin(row, column + columns[0]);
    const cut = (/** @type {any} */ one) => one.values.map((/** @type {number[]} */ row) => row.slice(...columns));
    const order = /** @type {[string, any][]} */ ([
      ["Sublayer(x)", added],
      ["x + Sublayer(x)", sum],
      [first ? "LayerNorm(x)" : "LayerNorm", normed],
    ]);
    const both = order.map(([title, one]) =>
      matrix({ title, values: cut(one), rows, from: columns[0], onCell, onPin }),
    );
    root.append(beside(...both.map((one) => one.element)), say_.element);
    onCell(Math.min(state.row, rows.length - 1), Math.max(0, Math.min(state.column, width - 1) - columns[0]));
  },
};

/** @param {any} trace */
function some(trace) {
  return places(trace, "added")
    .map((place) => place.replace(/_residual$/, ""))
    .filter((place) => trace.has(`${place}.input`));
}
