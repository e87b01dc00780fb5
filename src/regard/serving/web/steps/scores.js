// Step: scores, scaling by √d_k, mask and softmax as four matrices, with the calculation of each cell.

import { dot, softmax } from "../arithmetic.js";
import { computationDetails, productTerms, softmaxTerms } from "../computation_details.js";
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
import { exact } from "../numbers.js";

const POINTS = ["q", "k", "scores", "scaled", "masked", "weights"];

export const scores = {
  id: "scores",
  title: "Scores to weights",
  section: "§3.2.1",
  here: (/** @type {any} */ { trace, state }) => [
    nearestLocation(locationsWith(trace, "scores", "q"), state.at).replace(/\.\d+\./, "."),
  ],
  exists: (/** @type {any} */ trace) => locationsWith(trace, "scores", "q", "weights").length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state, about }) {
    const locations = locationsWith(trace, "scores", "q", "weights");
    const location = nearestLocation(locations, state.at);
    const count = headCount(trace, location);
    const head = Math.min(state.head, count - 1);
    const [q, k, raw, scaled, masked, weights] = await Promise.all(
      POINTS.map((point) => trace.tensor(`${location}.${point}[${head}]`)),
    );
    const width = q.shape[1];
    const factor = about.settings.scale_scores === false ? 1 : 1 / Math.sqrt(width);
    const mixed = axes(trace, `${location}.scores`).at(-1) === "mixture"; // keys are mixtures of tokens (Linformer), so there is no single key to multiply
    const hasBias = ["alibi", "relative", "syntax"].includes(about.settings.positions?.kind); // position encodings that are added to scores
    const full = (about.settings.attention?.kind ?? "full") === "full";
    const ahead = location.startsWith("decoder.") && location.endsWith(".attention"); // the causal mask
    const [rows, columns] = weights.labels;
    const details = computationDetails();
    root.append(
      paragraph(
        "The score of a query and a key is their dot product. It is divided by √d_k so that it does not grow with the width, and set to −∞ where masked. Softmax turns each row into weights that sum to 1.",
      ),
      formula(`softmax(q·kᵀ / √${width})`),
      menus(locationMenu(locations, location), headMenu(count, head)),
    );
    const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
      for (const item of matrices) item.mark(row, column);
      const [score, scaled_, masked_] = [raw, scaled, masked].map((item) => item.values[row][column]);
      const added = hasBias ? scaled_ - score * factor : 0;
      const hidden = full ? ahead && column > row : masked_ === null; // for other attention patterns, use the model's mask
      const probabilities = softmax(masked.values[row]);
      /** @type {import("../computation_details.js").Calculation[]} */
      const calculations = [
        {
          name: "÷ √d_k",
          expression: `${exact(score)} × ${factor.toFixed(4)}${added ? ` + ${exact(added)} (position bias)` : ""}`,
          computed: score * factor + added,
          modelValue: hasBias ? undefined : scaled_, // the position bias is taken from the model, so there is nothing to check
        },
        {
          name: "mask",
          expression: hidden ? "−∞: masked" : "not masked",
          computed: hidden ? null : scaled_,
          modelValue: masked_,
        },
        {
          name: "softmax",
          expression: masked_ === null ? "e^−∞ = 0" : softmaxTerms(masked.values[row], column),
          computed: probabilities[column],
          modelValue: weights.values[row][column],
        },
      ];
      if (!mixed)
        calculations.unshift({
          name: "q · k",
          expression: productTerms(q.values[row], k.values[column]),
          computed: dot(q.values[row], k.values[column]),
          modelValue: score,
        });
      details.show(`${rows[row]} → ${columns?.[column] ?? column}`, calculations);
    };
    const both = { rows, columns, onCell, onPin: selectCell };
    const matrices = [
      matrix({ title: "1 · scores", note: "q · kᵀ", values: raw.values, ...both }),
      matrix({ title: "2 · scaled", note: "÷ √d_k", values: scaled.values, ...both }),
      matrix({ title: "3 · masked", note: "−∞ where masked", values: masked.values, ...both }),
      matrix({ title: "4 · weights", note: "each row sums to 1", values: weights.values, top: 1, ...both }),
    ];
    root.append(sideBySide(...matrices.map((item) => item.element)), details.element);
    onCell(Math.min(state.row, rows.length - 1), Math.min(state.column, raw.values[0].length - 1));
  },
};
