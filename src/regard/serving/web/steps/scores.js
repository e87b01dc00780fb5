// Step: scores, scaling by √d_k, mask and softmax as four matrices, with the calculation of each cell.

import { dot, softmax } from "../arithmetic.js";
import { beside, matrix } from "../matrix.js";
import { exact } from "../numbers.js";
import { axes, formula, headMenu, heads, menus, nearest, pin, placeMenu, places, say } from "../places.js";
import { powers, readout, terms } from "../readout.js";

const POINTS = ["q", "k", "scores", "scaled", "masked", "weights"];

export const scores = {
  id: "scores",
  title: "Scores to weights",
  section: "§3.2.1",
  here: (/** @type {any} */ { trace, state }) => [
    nearest(places(trace, "scores", "q"), state.at).replace(/\.\d+\./, "."),
  ],
  exists: (/** @type {any} */ trace) => places(trace, "scores", "q", "weights").length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state, about }) {
    const some = places(trace, "scores", "q", "weights");
    const place = nearest(some, state.at);
    const count = heads(trace, place);
    const head = Math.min(state.head, count - 1);
    const [q, k, raw, scaled, masked, weights] = await Promise.all(
      POINTS.map((point) => trace.tensor(`${place}.${point}[${head}]`)),
    );
    const width = q.shape[1];
    const factor = about.settings.scale_scores === false ? 1 : 1 / Math.sqrt(width);
    const mixed = axes(trace, `${place}.scores`).at(-1) === "mixture"; // keys are mixtures of tokens (Linformer), so there is no single key to multiply
    const adds = ["alibi", "relative", "syntax"].includes(about.settings.positions?.kind); // position encodings that are added to scores
    const full = (about.settings.attention?.kind ?? "full") === "full";
    const ahead = place.startsWith("decoder.") && place.endsWith(".attention"); // the look-ahead mask
    const [rows, columns] = weights.labels;
    const say_ = readout();
    root.append(
      say(
        "The score of a query and a key is their dot product. It is divided by √d_k so that it does not grow with the width, and set to −∞ where masked. Softmax turns each row into weights that sum to 1.",
      ),
      formula(`softmax(q·kᵀ / √${width})`),
      menus(placeMenu(some, place), headMenu(count, head)),
    );
    const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
      for (const one of four) one.mark(row, column);
      const [score, scaled_, masked_] = [raw, scaled, masked].map((one) => one.values[row][column]);
      const added = adds ? scaled_ - score * factor : 0;
      const hidden = full ? ahead && column > row : masked_ === null; // for other attention patterns, use the model's mask
      const shares = softmax(masked.values[row]);
      /** @type {import("../readout.js").Sum[]} */
      const sums = [
        {
          name: "÷ √d_k",
          how: `${exact(score)} × ${factor.toFixed(4)}${added ? ` + ${exact(added)} (position bias)` : ""}`,
          mine: score * factor + added,
          theirs: adds ? undefined : scaled_, // the position bias is taken from the model, so there is nothing to check
        },
        {
          name: "mask",
          how: hidden ? "−∞: masked" : "not masked",
          mine: hidden ? null : scaled_,
          theirs: masked_,
        },
        {
          name: "softmax",
          how: masked_ === null ? "e^−∞ = 0" : powers(masked.values[row], column),
          mine: shares[column],
          theirs: weights.values[row][column],
        },
      ];
      if (!mixed)
        sums.unshift({
          name: "q · k",
          how: terms(q.values[row], k.values[column]),
          mine: dot(q.values[row], k.values[column]),
          theirs: score,
        });
      say_.show(`${rows[row]} → ${columns?.[column] ?? column}`, sums);
    };
    const both = { rows, columns, onCell, onPin: pin };
    const four = [
      matrix({ title: "1 · scores", note: "q · kᵀ", values: raw.values, ...both }),
      matrix({ title: "2 · scaled", note: "÷ √d_k", values: scaled.values, ...both }),
      matrix({ title: "3 · masked", note: "−∞ where masked", values: masked.values, ...both }),
      matrix({ title: "4 · weights", note: "each row sums to 1", values: weights.values, top: 1, ...both }),
    ];
    root.append(beside(...four.map((one) => one.element)), say_.element);
    onCell(Math.min(state.row, rows.length - 1), Math.min(state.column, raw.values[0].length - 1));
  },
};
