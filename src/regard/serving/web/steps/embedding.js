// Step: embedding lookup, scaled by √d.

import { formula, locationsWith, nearestLocation, paragraph } from "../locations.js";
import { exact } from "../numbers.js";
import { embeddingView, linkedMatrices } from "./vectors.js";

export const embedding = {
  id: "embedding",
  title: "Embeddings × √d",
  section: "§3.4",
  here: (/** @type {any} */ { trace, state }) => [nearestLocation(locationsWith(trace, "lookup"), state.at)],
  exists: (/** @type {any} */ trace) => locationsWith(trace, "lookup").length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, here) {
    const { trace, state, about } = here;
    const view = await embeddingView(here, "lookup");
    const [lookup, scaled] = await view.tensors("lookup", "scaled");
    const width = lookup.shape[1];
    const factor = about.settings.scale_embeddings === false ? 1 : Math.sqrt(width);
    const added = locationsWith(trace, "positions").length > 0;
    root.append(
      paragraph(
        `Every id selects a row of the embedding matrix: ${width} learned values.`,
        factor === 1
          ? ""
          : ` They are multiplied by √d${added ? " so that the position encodings added next do not dominate them" : ""}.`,
      ),
      formula(
        factor === 1 ? "x = E[id]   (no scaling by √d in this model)" : `x = E[id] · √${width} = E[id] · ${factor.toFixed(4)}`,
      ),
      view.menus,
      ...linkedMatrices(
        state,
        view.columns,
        lookup.labels[0],
        [
          { title: "Rows of E", note: "one per token", values: lookup.values },
          { title: factor === 1 ? "x" : "× √d", values: scaled.values },
        ],
        (row, column) => [
          {
            name: "x",
            expression: `${exact(lookup.values[row][column])} × ${factor.toFixed(4)}`,
            computed: lookup.values[row][column] * factor,
            modelValue: scaled.values[row][column],
          },
        ],
      ),
    );
  },
};
