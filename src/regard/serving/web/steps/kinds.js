// Step: the three kinds of attention side by side.

import { caution } from "../caution.js";
import { h } from "../dom.js";
import { matrix } from "../matrix.js";
import { axes, heads, headMenu, menu, menus, places, say } from "../places.js";
import { readout } from "../readout.js";
import { note } from "../state.js";

const KINDS = [
  ["encoder", "attention", "Encoder self-attention", "Every source token attends to all source tokens."],
  [
    "decoder",
    "attention",
    "Masked self-attention",
    "Every target token attends to itself and earlier tokens; later ones are masked.",
  ],
  [
    "decoder",
    "cross_attention",
    "Cross-attention",
    "Target tokens attend to the source: queries come from the decoder, keys and values from the encoder.",
  ],
];

export const kinds = {
  id: "kinds",
  title: "Kinds of attention",
  section: "§3.2.3",
  here: (/** @type {any} */ { trace }) =>
    KINDS.map(([stack, part]) => `${stack}.${part}`).filter((name) =>
      places(trace, "weights").some((place) => place.replace(/\.\d+\./, ".") === name),
    ),
  exists: (/** @type {any} */ trace) => places(trace, "weights").length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state }) {
    const some = places(trace, "weights");
    const layers = [...new Set(some.map((place) => place.split(".")[1]).filter((part) => /^\d+$/.test(part)))];
    const asked = state.at.split(".")[1];
    const layer = layers.includes(asked) ? asked : layers[0];
    const found = KINDS.flatMap(([stack, part, title, about]) => {
      const place = [`${stack}.${layer}.${part}`, `${stack}.${part}`].find((one) => some.includes(one));
      return place ? [{ place, title, about }] : [];
    });
    let at = (found.find(({ place }) => place === state.at) ?? found[0]).place; // location of the selected cell
    const count = Math.max(1, ...found.map(({ place }) => heads(trace, place)));
    root.append(
      say(
        found.length > 1
          ? "All kinds use the same formula; they differ in where queries, keys and values come from, and in the mask."
          : "This network has one kind of attention.",
      ),
    );
    root.append(
      menus(
        layers.length > 1 &&
          menu(
            "layer",
            "Layer",
            layers.map((one) => [one, one]),
            layer,
            (one) => ({ at: at.replace(/\.\d+\./, `.${one}.`) }),
          ),
        count > 1 && headMenu(count, Math.min(state.head, count - 1)),
      ),
    );
    const told = readout();
    const drawn = await Promise.all(
      found.map(async ({ place, title, about }) => {
        const weights = await trace.tensor(`${place}.weights[${Math.min(state.head, heads(trace, place) - 1)}]`);
        const mixture = axes(trace, `${place}.weights`).at(-1) === "mixture";
        const [rows, keys] = weights.labels;
        const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
          for (const one of drawn) one.hide();
          picture.mark(row, column);
          const key = mixture ? `mixture ${column}` : keys[column];
          told.show(`${title}: ${rows[row]} attends to ${key}`, [{ name: "weight", mine: weights.values[row][column] }]);
        };
        const columns = mixture ? null : keys;
        const onPin = (/** @type {number} */ row, /** @type {number} */ column) => {
          at = place;
          note({ at, row, column });
        };
        const picture = matrix({ title, values: weights.values, rows, columns, top: 1, small: true, onCell, onPin });
        return { ...picture, place, about, onCell, size: [rows.length, weights.values[0].length] };
      }),
    );
    root.append(
      h(
        "div",
        { class: "beside" },
        drawn.map(({ element, about }) => h("div", { class: "kind-of" }, element, h("p", { class: "note" }, about))),
      ),
      told.element,
      caution(trace.outline.steps.length > 0),
    );
    for (const { place, onCell, size } of drawn)
      if (place === at) onCell(Math.min(state.row, size[0] - 1), Math.min(state.column, size[1] - 1));
  },
};
