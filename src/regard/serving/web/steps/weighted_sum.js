// Step: the output of a head, the weighted sum of the values.

import { dot } from "../arithmetic.js";
import { beside, matrix } from "../matrix.js";
import { exact, percent } from "../numbers.js";
import { axes, formula, headMenu, heads, menus, nearest, pin, placeMenu, places, say } from "../places.js";
import { readout, terms } from "../readout.js";

export const weightedSum = {
  id: "sum",
  title: "Weighted sum",
  section: "§3.2.1",
  here: (/** @type {any} */ { trace, state }) => [nearest(some(trace), state.at).replace(/\.\d+\./, ".")],
  exists: (/** @type {any} */ trace) => some(trace).length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state, about }) {
    const place = nearest(some(trace), state.at);
    const count = heads(trace, place);
    const head = Math.min(state.head, count - 1);
    const [weights, v, out] = await Promise.all(
      ["weights", "v", "head_outputs"].map((point) => trace.tensor(`${place}.${point}[${head}]`)),
    );
    const [rows, keys] = weights.labels;
    const adds = ["relative", "syntax"].includes(about.settings.positions?.kind); // position encodings that are added to values
    const say_ = readout();
    root.append(
      say(
        "The output of a head for a token is the sum of all values, each multiplied by its attention weight.",
      ),
      formula("output = weights · v"),
      adds ? say("This model also adds position vectors to the values.") : "",
      menus(placeMenu(some(trace), place), headMenu(count, head)),
    );
    const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
      const values = v.values.map((/** @type {number[]} */ one) => one[column]);
      const most = keys
        .map((/** @type {string} */ key, /** @type {number} */ n) => ({ key, share: weights.values[row][n] }))
        .sort((/** @type {any} */ a, /** @type {any} */ b) => b.share - a.share);
      const mostly = most
        .slice(0, 3)
        .map((/** @type {any} */ one) => `${percent(one.share)} ${one.key}`)
        .join(", ");
      const [alone, theirs] = [dot(weights.values[row], values), out.values[row][column]];
      const added = adds ? theirs - alone : 0;
      say_.show(`${rows[row]}, unit ${column}: ${mostly}`, [
        {
          name: `output[${row}, ${column}]`,
          how: terms(weights.values[row], values, {
            after: adds ? ` + ${exact(added)} (position term)` : "",
          }),
          mine: alone + added,
          theirs: adds ? undefined : theirs, // the position term is taken from the model, so there is nothing to check
        },
      ]);
      shown.mark(row, column);
    };
    const shown = matrix({ title: "weights · v", note: "the head's output", values: out.values, rows, onCell, onPin: pin });
    root.append(
      beside(
        matrix({ title: "weights", note: `head ${head}`, values: weights.values, rows, columns: keys, top: 1 }).element,
        matrix({ title: "v", note: "one value vector per token", values: v.values, rows: v.labels[0] }).element,
      ),
      shown.element,
      say_.element,
    );
    onCell(Math.min(state.row, rows.length - 1), Math.min(state.column, out.values[0].length - 1));
  },
};

/** @param {any} trace */
function some(trace) {
  return places(trace, "weights", "v", "head_outputs").filter(
    (place) => axes(trace, `${place}.weights`).at(-1) !== "mixture",
  );
}
