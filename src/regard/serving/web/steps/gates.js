// Step: the gates of a recurrent network, token by token.

import { exact } from "../numbers.js";
import { formula, menus, nearest, placeMenu, places, say, span, spanMenu } from "../places.js";
import { walked } from "./vectors.js";

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
  here: (/** @type {any} */ { trace, state }) => [`${nearest(some(trace), state.at).split(".")[0]}.recurrent`],
  exists: (/** @type {any} */ trace) => some(trace).length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state }) {
    const place = nearest(some(trace), state.at);
    const points = trace.outline.points.filter(
      (/** @type {any} */ point) => point.name.startsWith(`${place}.`) && point.axes.at(-1) === "unit",
    );
    const { shape } = await trace.tensor(points[0].name, { rows: [0, 1] });
    const columns = span(state, shape[1], SIZE);
    const found = await Promise.all(points.map((/** @type {any} */ point) => trace.tensor(point.name, { columns })));
    /** @type {Values} */
    const values = Object.fromEntries(
      points.map((/** @type {any} */ point, /** @type {number} */ n) => [point.point, found[n].values]),
    );
    const kind = values.cell ? "lstm" : values.update_gate ? "gru" : "rnn";
    root.append(
      say(
        "A recurrent network processes one token after another and updates its hidden state. ",
        kind === "rnn"
          ? "This one has no gates: at every token, the state is a tanh of a linear function of the previous state and the input."
          : "Its gates are values between 0 and 1 that control, for each unit, what is written, kept and output.",
      ),
      formula(FORMULAS[kind]),
      menus(placeMenu(some(trace), place), spanMenu(state, shape[1], SIZE)),
      ...walked(
        state,
        columns,
        found[0].labels[0],
        points.map((/** @type {any} */ point) => ({
          title: point.point.replaceAll("_", " "),
          note: point.description,
          values: values[point.point],
          top: ["cell", "sum"].includes(point.point) ? undefined : 1,
        })),
        (row, column) => SUMS[kind](values, row, place, column),
      ),
    );
  },
};

/** @typedef {Record<string, number[][]>} Values of each point */

/** Calculation of a unit's state from its gates. @type {Record<string, (values: Values, row: number, place: string, column: number) => import("../readout.js").Sum[]>} */
const SUMS = {
  lstm(values, row, place, column) {
    const [i, f, g, o, cell, hidden] = ["input_gate", "forget_gate", "candidate", "output_gate", "cell", "hidden"].map(
      (point) => values[point][row][column],
    );
    const old = before(values.cell, row, place, column);
    const shown = { name: "h", how: `${exact(o)} · tanh(${exact(cell)})`, mine: o * Math.tanh(cell), theirs: hidden };
    if (old === null) return [shown]; // the initial state came from the encoder
    return [
      { name: "C", how: `${exact(f)} · ${exact(old)} + ${exact(i)} · ${exact(g)}`, mine: f * old + i * g, theirs: cell },
      shown,
    ];
  },
  gru(values, row, place, column) {
    const [z, n, hidden] = ["update_gate", "candidate", "hidden"].map((point) => values[point][row][column]);
    const old = before(values.hidden, row, place, column);
    if (old === null) return [{ name: "h", mine: hidden }];
    const how = `(1 − ${exact(z)}) · ${exact(n)} + ${exact(z)} · ${exact(old)}`;
    return [{ name: "h", how, mine: (1 - z) * n + z * old, theirs: hidden }];
  },
  rnn(values, row, _, column) {
    const [sum, hidden] = ["sum", "hidden"].map((point) => values[point][row][column]);
    return [{ name: "h", how: `tanh(${exact(sum)})`, mine: Math.tanh(sum), theirs: hidden }];
  },
};

/** The state before a token: 0 at the encoder's first token, null (unknown here) at the decoder's first. @param {number[][]} states @param {number} row @param {string} place @param {number} column */
function before(states, row, place, column) {
  const found = states[place.endsWith(".backwards") ? row + 1 : row - 1];
  return found ? found[column] : place.startsWith("encoder.") ? 0 : null;
}

/** @param {any} trace */
function some(trace) {
  return places(trace, "hidden").filter((place) => /\.(forwards|backwards)$/.test(place));
}
