// Step: the gates of a recurrent network, token by token.

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

const SIZE = 48; // units shown at once
const FORMULAS = /** @type {Record<string, string>} */ ({
  lstm: "C = f ⊙ C_before + i ⊙ C̃     h = o ⊙ tanh(C)",
  gru: "h = (1 − z) ⊙ h̃ + z ⊙ h_before",
  rnn: "h = tanh(W_x x + W_h h_before + b)",
});

export const gates = {
  id: "gates",
  title: "Gates",
  section: "",
  here: (/** @type {any} */ { trace, state }) => [`${nearestLocation(locationsOf(trace), state.at).split(".")[0]}.recurrent`],
  exists: (/** @type {any} */ trace) => locationsOf(trace).length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state }) {
    const location = nearestLocation(locationsOf(trace), state.at);
    const points = trace.outline.points.filter(
      (/** @type {any} */ point) => point.name.startsWith(`${location}.`) && point.axes.at(-1) === "unit",
    );
    const { shape } = await trace.tensor(points[0].name, { rows: [0, 1] });
    const columns = unitRange(state, shape[1], SIZE);
    const tensors = await Promise.all(points.map((/** @type {any} */ point) => trace.tensor(point.name, { columns })));
    /** @type {Values} */
    const values = Object.fromEntries(
      points.map((/** @type {any} */ point, /** @type {number} */ n) => [point.point, tensors[n].values]),
    );
    const kind = values.cell ? "lstm" : values.update_gate ? "gru" : "rnn";
    root.append(
      paragraph(
        "A recurrent network processes one token after another and updates its hidden state. ",
        kind === "rnn"
          ? "This one has no gates: at every token, the state is a tanh of a linear function of the previous state and the input."
          : "Its gates are values between 0 and 1 that control, for each unit, what is written, kept and output.",
      ),
      formula(FORMULAS[kind]),
      menus(locationMenu(locationsOf(trace), location), unitRangeMenu(state, shape[1], SIZE)),
      ...linkedMatrices(
        state,
        columns,
        tensors[0].labels[0],
        points.map((/** @type {any} */ point) => ({
          title: point.point.replaceAll("_", " "),
          note: point.description,
          values: values[point.point],
          top: ["cell", "sum"].includes(point.point) ? undefined : 1,
        })),
        (row, column) => CALCULATIONS[kind](values, row, location, column),
      ),
    );
  },
};

/** @typedef {Record<string, number[][]>} Values of each point */

/** Calculation of a unit's state from its gates. @type {Record<string, (values: Values, row: number, location: string, column: number) => import("../computation_details.js").Calculation[]>} */
const CALCULATIONS = {
  lstm(values, row, location, column) {
    const [i, f, g, o, cell, hidden] = ["input_gate", "forget_gate", "candidate", "output_gate", "cell", "hidden"].map(
      (point) => values[point][row][column],
    );
    const previous = previousState(values.cell, row, location, column);
    const shown = { name: "h", expression: `${exact(o)} · tanh(${exact(cell)})`, computed: o * Math.tanh(cell), modelValue: hidden };
    if (previous === null) return [shown]; // the initial state came from the encoder
    return [
      { name: "C", expression: `${exact(f)} · ${exact(previous)} + ${exact(i)} · ${exact(g)}`, computed: f * previous + i * g, modelValue: cell },
      shown,
    ];
  },
  gru(values, row, location, column) {
    const [z, n, hidden] = ["update_gate", "candidate", "hidden"].map((point) => values[point][row][column]);
    const previous = previousState(values.hidden, row, location, column);
    if (previous === null) return [{ name: "h", computed: hidden }];
    const expression = `(1 − ${exact(z)}) · ${exact(n)} + ${exact(z)} · ${exact(previous)}`;
    return [{ name: "h", expression, computed: (1 - z) * n + z * previous, modelValue: hidden }];
  },
  rnn(values, row, _, column) {
    const [sum, hidden] = ["sum", "hidden"].map((point) => values[point][row][column]);
    return [{ name: "h", expression: `tanh(${exact(sum)})`, computed: Math.tanh(sum), modelValue: hidden }];
  },
};

/** The state before a token: 0 at the encoder's first token, null (unknown here) at the decoder's first. @param {number[][]} states @param {number} row @param {string} location @param {number} column */
function previousState(states, row, location, column) {
  const tensors = states[location.endsWith(".backwards") ? row + 1 : row - 1];
  return tensors ? tensors[column] : location.startsWith("encoder.") ? 0 : null;
}

/** @param {any} trace */
function locationsOf(trace) {
  return locationsWith(trace, "hidden").filter((location) => /\.(forwards|backwards)$/.test(location));
}
