// Ids become vectors: rows of the embedding matrix, times √d.

import { beside, matrix } from "../matrix.js";
import { exact } from "../numbers.js";
import { formula, menu, menus, nearest, pin, places, say, span, spanMenu } from "../places.js";
import { readout } from "../readout.js";

export const embedding = {
  id: "embedding",
  title: "Embeddings × √d",
  section: "§3.4",
  here: (/** @type {any} */ { trace, state }) => [nearest(places(trace, "lookup"), state.at)],
  exists: (/** @type {any} */ trace) => places(trace, "lookup").length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state, about }) {
    const some = places(trace, "lookup");
    const place = nearest(some, state.at);
    const { width } = trace.outline.model;
    const columns = span(state, width);
    const [looked, scaled] = await Promise.all(
      ["lookup", "scaled"].map((point) => trace.tensor(`${place}.${point}`, { columns })),
    );
    const factor = about.settings.scale_embeddings === false ? 1 : Math.sqrt(looked.shape[1]);
    const say_ = readout();
    root.append(
      say(
        "Every id has a row of the embedding matrix: ",
        String(width),
        " learned numbers that say what the token is like. They are small, and are multiplied by √d so that the positions added next do not drown them.",
      ),
      formula(
        factor === 1
          ? "x = E[id]   (this model leaves out × √d)"
          : `x = E[id] · √${looked.shape[1]} = E[id] · ${factor.toFixed(4)}`,
      ),
      menus(
        some.length > 1 &&
          menu(
            "place",
            "Where",
            some.map((one) => [one, one.split(".")[0]]),
            place,
            (at) => ({ at }),
          ),
        spanMenu(state, looked.shape[1]),
      ),
    );
    const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
      for (const one of both) one.mark(row, column);
      const raw = looked.values[row][column];
      say_.show(`${looked.labels[0][row]}, unit ${column + columns[0]}`, [
        {
          name: "x",
          how: `${exact(raw)} × ${factor.toFixed(4)}`,
          mine: raw * factor,
          theirs: scaled.values[row][column],
        },
      ]);
    };
    const onPin = (/** @type {number} */ row, /** @type {number} */ column) => pin(row, column + columns[0]);
    const both = [
      matrix({
        title: "Rows of E",
        note: "one for each token",
        values: looked.values,
        rows: looked.labels[0],
        from: columns[0],
        onCell,
        onPin,
      }),
      matrix({ title: "× √d", values: scaled.values, rows: looked.labels[0], from: columns[0], onCell, onPin }),
    ];
    root.append(beside(...both.map((one) => one.element)), say_.element);
    onCell(
      Math.min(state.row, looked.values.length - 1),
      Math.min(state.column - columns[0], looked.values[0].length - 1),
    );
  },
};
