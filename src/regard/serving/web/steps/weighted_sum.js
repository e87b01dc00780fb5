// Step: the output of a head, the weighted sum of the values.

import { dot } from "../arithmetic.js";
import { computationDetails, productTerms } from "../computation_details.js";
import {
  axes,
  formula,
  headCount,
  headMenu,
  locationMenu,
  locationsWith,
  menus,
  nearestLocation,
  paragraph,
  selectCell,
} from "../locations.js";
import { matrix, sideBySide } from "../matrix.js";
import { exact, percent } from "../numbers.js";

export const weightedSum = {
  id: "sum",
  title: "Weighted sum",
  section: "§3.2.1",
  here: (/** @type {any} */ { trace, state }) => [nearestLocation(locationsOf(trace), state.at).replace(/\.\d+\./, ".")],
  exists: (/** @type {any} */ trace) => locationsOf(trace).length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state, about }) {
    const location = nearestLocation(locationsOf(trace), state.at);
    const count = headCount(trace, location);
    const head = Math.min(state.head, count - 1);
    const [weights, v, out] = await Promise.all(
      ["weights", "v", "head_outputs"].map((point) => trace.tensor(`${location}.${point}[${head}]`)),
    );
    const [rows, keys] = weights.labels;
    const hasPositionTerm = ["relative", "syntax"].includes(about.settings.positions?.kind); // position encodings that are added to values
    const details = computationDetails();
    root.append(
      paragraph(
        "The output of a head for a token is the sum of all values, each multiplied by its attention weight.",
      ),
      formula("output = weights · v"),
      hasPositionTerm ? paragraph("This model also adds position vectors to the values.") : "",
      menus(locationMenu(locationsOf(trace), location), headMenu(count, head)),
    );
    const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
      const values = v.values.map((/** @type {number[]} */ value) => value[column]);
      const ranked = keys
        .map((/** @type {string} */ key, /** @type {number} */ n) => ({ key, share: weights.values[row][n] }))
        .sort((/** @type {any} */ a, /** @type {any} */ b) => b.share - a.share);
      const topKeys = ranked
        .slice(0, 3)
        .map((/** @type {any} */ item) => `${percent(item.share)} ${item.key}`)
        .join(", ");
      const [weighted, modelValue] = [dot(weights.values[row], values), out.values[row][column]];
      const added = hasPositionTerm ? modelValue - weighted : 0;
      details.show(`${rows[row]}, unit ${column}: ${topKeys}`, [
        {
          name: `output[${row}, ${column}]`,
          expression: productTerms(weights.values[row], values, {
            after: hasPositionTerm ? ` + ${exact(added)} (position term)` : "",
          }),
          computed: weighted + added,
          modelValue: hasPositionTerm ? undefined : modelValue, // the position term is taken from the model, so there is nothing to check
        },
      ]);
      shown.mark(row, column);
    };
    const shown = matrix({ title: "weights · v", note: "the head's output", values: out.values, rows, onCell, onPin: selectCell });
    root.append(
      sideBySide(
        matrix({ title: "weights", note: `head ${head}`, values: weights.values, rows, columns: keys, top: 1 }).element,
        matrix({ title: "v", note: "one value vector per token", values: v.values, rows: v.labels[0] }).element,
      ),
      shown.element,
      details.element,
    );
    onCell(Math.min(state.row, rows.length - 1), Math.min(state.column, out.values[0].length - 1));
  },
};

/** @param {any} trace */
function locationsOf(trace) {
  return locationsWith(trace, "weights", "v", "head_outputs").filter(
    (location) => axes(trace, `${location}.weights`).at(-1) !== "mixture",
  );
}
