// Step: the three kinds of attention side by side.

import { computationDetails } from "../computation_details.js";
import { h } from "../dom.js";
import { attentionWarning, axes, headCount, headMenu, locationsWith, menu, menus, paragraph } from "../locations.js";
import { matrix } from "../matrix.js";
import { updateUrl } from "../state.js";

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

export const attentionKinds = {
  id: "kinds",
  title: "Kinds of attention",
  section: "§3.2.3",
  here: (/** @type {any} */ { trace }) =>
    KINDS.map(([stack, part]) => `${stack}.${part}`).filter((name) =>
      locationsWith(trace, "weights").some((location) => location.replace(/\.\d+\./, ".") === name),
    ),
  exists: (/** @type {any} */ trace) => locationsWith(trace, "weights").length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state }) {
    const locations = locationsWith(trace, "weights");
    const layers = [...new Set(locations.map((location) => location.split(".")[1]).filter((part) => /^\d+$/.test(part)))];
    const requestedLayer = state.at.split(".")[1];
    const layer = layers.includes(requestedLayer) ? requestedLayer : layers[0];
    const kindsShown = KINDS.flatMap(([stack, part, title, about]) => {
      const location = [`${stack}.${layer}.${part}`, `${stack}.${part}`].find((name) => locations.includes(name));
      return location ? [{ location, title, about }] : [];
    });
    let at = (kindsShown.find(({ location }) => location === state.at) ?? kindsShown[0]).location; // location of the selected cell
    const count = Math.max(1, ...kindsShown.map(({ location }) => headCount(trace, location)));
    root.append(
      paragraph(
        kindsShown.length > 1
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
            layers.map((number) => [number, number]),
            layer,
            (number) => ({ at: at.replace(/\.\d+\./, `.${number}.`) }),
          ),
        count > 1 && headMenu(count, Math.min(state.head, count - 1)),
      ),
    );
    const details = computationDetails();
    const drawn = await Promise.all(
      kindsShown.map(async ({ location, title, about }) => {
        const weights = await trace.tensor(`${location}.weights[${Math.min(state.head, headCount(trace, location) - 1)}]`);
        const mixture = axes(trace, `${location}.weights`).at(-1) === "mixture";
        const [rows, keys] = weights.labels;
        const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
          for (const other of drawn) other.hide();
          drawnMatrix.mark(row, column);
          const key = mixture ? `mixture ${column}` : keys[column];
          details.show(`${title}: ${rows[row]} attends to ${key}`, [{ name: "weight", computed: weights.values[row][column] }]);
        };
        const columns = mixture ? null : keys;
        const onPin = (/** @type {number} */ row, /** @type {number} */ column) => {
          at = location;
          updateUrl({ at, row, column });
        };
        const drawnMatrix = matrix({ title, values: weights.values, rows, columns, top: 1, small: true, onCell, onPin });
        return { ...drawnMatrix, location, about, onCell, size: [rows.length, weights.values[0].length] };
      }),
    );
    root.append(
      h(
        "div",
        { class: "side-by-side" },
        drawn.map(({ element, about }) => h("div", { class: "attention-kind" }, element, h("p", { class: "note" }, about))),
      ),
      details.element,
      attentionWarning(trace.outline.steps.length > 0),
    );
    for (const { location, onCell, size } of drawn)
      if (location === at) onCell(Math.min(state.row, size[0] - 1), Math.min(state.column, size[1] - 1));
  },
};
