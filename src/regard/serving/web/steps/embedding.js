// Step: embedding lookup, scaled by √d.

import { exact } from "../numbers.js";
import { formula, nearest, places, say } from "../places.js";
import { embedded, walked } from "./vectors.js";

export const embedding = {
  id: "embedding",
  title: "Embeddings × √d",
  section: "§3.4",
  here: (/** @type {any} */ { trace, state }) => [nearest(places(trace, "lookup"), state.at)],
  exists: (/** @type {any} */ trace) => places(trace, "lookup").length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, here) {
    const { trace, state, about } = here;
    const view = await embedded(here, "lookup");
    const [looked, scaled] = await view.tensors("lookup", "scaled");
    const width = looked.shape[1];
    const factor = about.settings.scale_embeddings === false ? 1 : Math.sqrt(width);
    const added = places(trace, "positions").length > 0;
    root.append(
      say(
        `Every id selects a row of the embedding matrix: ${width} learned values.`,
        factor === 1
          ? ""
          : ` They are multiplied by √d${added ? " so that the position encodings added next do not dominate them" : ""}.`,
      ),
      formula(
        factor === 1 ? "x = E[id]   (no scaling by √d in this model)" : `x = E[id] · √${width} = E[id] · ${factor.toFixed(4)}`,
      ),
      view.menus,
      ...walked(
        state,
        view.columns,
        looked.labels[0],
        [
          { title: "Rows of E", note: "one per token", values: looked.values },
          { title: factor === 1 ? "x" : "× √d", values: scaled.values },
        ],
        (row, column) => [
          {
            name: "x",
            how: `${exact(looked.values[row][column])} × ${factor.toFixed(4)}`,
            mine: looked.values[row][column] * factor,
            theirs: scaled.values[row][column],
          },
        ],
      ),
    );
  },
};
