// Step: residual connection and normalization.

import { deviation, mean } from "../arithmetic.js";
import { exact } from "../numbers.js";
import { formula, menus, nearest, placeMenu, places, say, span, spanMenu } from "../places.js";
import { walked } from "./vectors.js";

/** Name and description of each kind of norm. @type {Record<string, [string, string]>} */
const NORMS = {
  layer: [
    "LayerNorm",
    "Each token's vector is normalized to mean 0 and standard deviation 1, then multiplied by a learned gain and shifted by a learned bias.",
  ],
  rms: ["RMSNorm", "Each token's vector is divided by its root mean square, then multiplied by a learned gain."],
  none: ["", "This model has no normalization."],
};

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
    const [named, does] = NORMS[about.settings.norm] ?? NORMS.layer;
    root.append(
      say(
        connected
          ? "The output of a sublayer is added to its input (residual connection), which preserves information and lets gradients flow. "
          : "This model has no residual connections: the output of the sublayer replaces its input. ",
        does,
      ),
      formula(
        first ? `x + Sublayer(${named}(x))   (pre-norm)` : `${named}(${connected ? "x + " : ""}Sublayer(x))`,
      ),
      menus(placeMenu(some(trace), place), spanMenu(state, width)),
    );
    const found = first ? `Sublayer(${named}(x))` : "Sublayer(x)";
    const whole_ = connected ? `x + ${found}` : found;
    const explain = (/** @type {number} */ row, /** @type {number} */ _, /** @type {number} */ unit) => {
      const [a, b] = [connected ? before.values[row][unit] : 0, added.values[row][unit]];
      /** @type {import("../readout.js").Sum[]} */
      const sums = [
        { name: whole_, how: `${exact(a)} + ${exact(b)}`, mine: a + b, theirs: sum.values[row][unit] },
      ];
      if (!input || !deviations) return sums;
      const vector = input.values[row];
      const middle = means ? mean(vector) : 0;
      const spread = deviation(vector, epsilon, Boolean(means));
      const [g, c] = [gain?.values[unit] ?? 1, bias?.values[unit] ?? 0];
      if (means)
        sums.push({
          name: "mean",
          how: { count: vector.length, write: (n) => exact(vector[n]), before: "(", after: `) / ${vector.length}` },
          mine: middle,
          theirs: means.values[row],
        });
      sums.push(
        {
          name: "deviation",
          how: {
            count: vector.length,
            write: (n) => (means ? `(${exact(vector[n])} − ${exact(middle)})^2` : `${exact(vector[n])}^2`),
            before: "√((",
            after: `) / ${vector.length} + ${exact(epsilon)})`,
          },
          mine: spread,
          theirs: deviations.values[row],
        },
        {
          name: "norm",
          how: `(${exact(vector[unit])} − ${exact(middle)}) / ${exact(spread)} × ${exact(g)} + ${exact(c)}`,
          mine: ((vector[unit] - middle) / spread) * g + c,
          theirs: normed.values[row][unit],
        },
      );
      return sums;
    };
    const cut = (/** @type {any} */ one) => one.values.map((/** @type {number[]} */ row) => row.slice(...columns));
    const sums = [
      { title: found, note: "output of the sublayer", values: cut(added) },
      { title: whole_, note: first ? "passed to the next sublayer" : "the sum", values: cut(sum) },
    ];
    const norm = {
      title: first ? `${named}(x)` : `${named}(${whole_})`,
      note: first ? "input of the sublayer" : "passed to the next sublayer",
      values: cut(normed),
    };
    root.append(...walked(state, columns, rows, first ? [norm, ...sums] : [...sums, norm], explain));
  },
};

/** @param {any} trace */
function some(trace) {
  return places(trace, "added")
    .map((place) => place.replace(/_residual$/, ""))
    .filter((place) => trace.has(`${place}.input`));
}
