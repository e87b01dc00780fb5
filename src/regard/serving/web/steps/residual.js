// Step: residual connection and normalization.

import { deviation, mean } from "../arithmetic.js";
import {
  formula,
  locationMenu,
  locationsWith,
  menus,
  nearestLocation,
  paragraph,
  unitRange,
  unitRangeMenu,
} from "../locations.js";
import { exact } from "../numbers.js";
import { linkedMatrices } from "./vectors.js";

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
  here: (/** @type {any} */ { trace, state }) => [`${nearestLocation(locationsOf(trace), state.at).replace(/\.\d+\./, ".")}_residual`],
  exists: (/** @type {any} */ trace) => locationsOf(trace).length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state, about }) {
    const location = nearestLocation(locationsOf(trace), state.at);
    const at = `${location}_residual`;
    const { width } = trace.outline.model;
    const columns = unitRange(state, width);
    const first = about.settings.norm_order === "pre";
    const all = { columns: [0, width] };
    const optional = (/** @type {string} */ point) =>
      trace.has(`${at}.${point}`) ? trace.tensor(`${at}.${point}`) : Promise.resolve(null);
    const x = first && trace.has(`${at}.norm_input`) ? `${at}.norm_input` : `${location}.input`;
    const [before, added, sum, input, normed] = await Promise.all([
      trace.tensor(x, all),
      trace.tensor(`${at}.added`, all),
      trace.tensor(`${at}.sum`, all),
      optional("norm_input"),
      trace.tensor(`${at}.normed`, all),
    ]);
    const [means, deviations, gain, bias] = await Promise.all(["mean", "deviation", "gain", "bias"].map(optional));
    const rows = sum.labels[0];
    const connected = about.settings.residual !== false;
    const epsilon = about.settings.norm_epsilon ?? 1e-5;
    const [normName, normDescription] = NORMS[about.settings.norm] ?? NORMS.layer;
    root.append(
      paragraph(
        connected
          ? "The output of a sublayer is added to its input (residual connection), which preserves information and lets gradients flow. "
          : "This model has no residual connections: the output of the sublayer replaces its input. ",
        normDescription,
      ),
      formula(
        first ? `x + Sublayer(${normName}(x))   (pre-norm)` : `${normName}(${connected ? "x + " : ""}Sublayer(x))`,
      ),
      menus(locationMenu(locationsOf(trace), location), unitRangeMenu(state, width)),
    );
    const sublayer = first ? `Sublayer(${normName}(x))` : "Sublayer(x)";
    const total = connected ? `x + ${sublayer}` : sublayer;
    const explain = (/** @type {number} */ row, /** @type {number} */ _, /** @type {number} */ unit) => {
      const [a, b] = [connected ? before.values[row][unit] : 0, added.values[row][unit]];
      /** @type {import("../computation_details.js").Calculation[]} */
      const sums = [
        { name: total, expression: `${exact(a)} + ${exact(b)}`, computed: a + b, modelValue: sum.values[row][unit] },
      ];
      if (!input || !deviations) return sums;
      const vector = input.values[row];
      const middle = means ? mean(vector) : 0;
      const spread = deviation(vector, epsilon, Boolean(means));
      const [g, c] = [gain?.values[unit] ?? 1, bias?.values[unit] ?? 0];
      if (means)
        sums.push({
          name: "mean",
          expression: { count: vector.length, write: (n) => exact(vector[n]), before: "(", after: `) / ${vector.length}` },
          computed: middle,
          modelValue: means.values[row],
        });
      sums.push(
        {
          name: "deviation",
          expression: {
            count: vector.length,
            write: (n) => (means ? `(${exact(vector[n])} − ${exact(middle)})^2` : `${exact(vector[n])}^2`),
            before: "√((",
            after: `) / ${vector.length} + ${exact(epsilon)})`,
          },
          computed: spread,
          modelValue: deviations.values[row],
        },
        {
          name: "norm",
          expression: `(${exact(vector[unit])} − ${exact(middle)}) / ${exact(spread)} × ${exact(g)} + ${exact(c)}`,
          computed: ((vector[unit] - middle) / spread) * g + c,
          modelValue: normed.values[row][unit],
        },
      );
      return sums;
    };
    const cut = (/** @type {any} */ tensor) => tensor.values.map((/** @type {number[]} */ row) => row.slice(...columns));
    const sums = [
      { title: sublayer, note: "output of the sublayer", values: cut(added) },
      { title: total, note: first ? "passed to the next sublayer" : "the sum", values: cut(sum) },
    ];
    const norm = {
      title: first ? `${normName}(x)` : `${normName}(${total})`,
      note: first ? "input of the sublayer" : "passed to the next sublayer",
      values: cut(normed),
    };
    root.append(...linkedMatrices(state, columns, rows, first ? [norm, ...sums] : [...sums, norm], explain));
  },
};

/** @param {any} trace */
function locationsOf(trace) {
  return locationsWith(trace, "added")
    .map((location) => location.replace(/_residual$/, ""))
    .filter((location) => trace.has(`${location}.input`));
}
