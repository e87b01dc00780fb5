// Step: mixture of experts: the router, the chosen experts and the sum of their outputs.

import { computationDetails, matrixProduct } from "../computation_details.js";
import { latestOnly } from "../live_request.js";
import { formula, locationMenu, locationsWith, menus, nearestLocation, paragraph, selectCell } from "../locations.js";
import { matrix, sideBySide } from "../matrix.js";
import { exact } from "../numbers.js";

const locationsOf = (/** @type {any} */ trace) => locationsWith(trace, "gates", "expert_outputs");

export const experts = {
  id: "experts",
  title: "Experts",
  section: "",
  here: (/** @type {any} */ { trace, state }) => [
    nearestLocation(locationsOf(trace), state.at).replace(/\.\d+\./, "."),
  ],
  exists: (/** @type {any} */ trace) => locationsOf(trace).length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state, about }) {
    const location = nearestLocation(locationsOf(trace), state.at);
    const points = ["logits", "probabilities", "gates"];
    const [logits, probabilities, gates] = await Promise.all(
      points.map((point) => trace.tensor(`${location}.${point}`)),
    );
    const rows = gates.labels[0];
    const { experts: count, experts_per_token: chosen } = about.settings;
    const details = computationDetails();
    root.append(
      paragraph(
        `Each token is computed by ${chosen} of ${count} feed-forward layers, the experts, which a router chooses for it. Their outputs are multiplied by gates and added; the gates are the probabilities of the chosen experts, divided by their sum.`,
      ),
      formula("p = softmax(x · W_r)     g_e = p_e / Σ p of the chosen experts     y = Σ_e g_e · FFN_e(x)"),
      menus(locationMenu(locationsOf(trace), location)),
    );
    const request = (/** @type {number} */ row, /** @type {number} */ expert) =>
      Promise.all([
        trace.product(`${location}.logits`, row, expert),
        trace.tensor(`${location}_residual.added`, { rows: [row, row + 1], columns: [0, 1] }),
        ...gates.values[row].map((/** @type {number} */ _, /** @type {number} */ n) =>
          trace.tensor(`${location}.expert_outputs[${n}]`, { rows: [row, row + 1], columns: [0, 1] }),
        ),
      ]);
    const explain = latestOnly(request, ([logit, added, ...outputs], row, expert) => {
      const [scores, p, g] = [logits, probabilities, gates].map((tensor) => tensor.values[row]);
      const exponentials = scores.map((/** @type {number} */ score) => Math.exp(score));
      const total = sum(exponentials);
      const used = p.filter((/** @type {number} */ _, /** @type {number} */ n) => g[n] > 0);
      const terms = g
        .map((/** @type {number} */ gate, /** @type {number} */ n) => [gate, outputs[n].values[0][0]])
        .filter((/** @type {number[]} */ [gate]) => gate > 0);
      details.show(`${rows[row]}, expert ${expert}`, [
        matrixProduct("x · W_r", logit),
        {
          name: "probability",
          expression: `exp(${exact(scores[expert])}) / ${exact(total)}`,
          computed: exponentials[expert] / total,
          modelValue: p[expert],
        },
        {
          name: "gate",
          expression: g[expert] > 0 ? `${exact(p[expert])} / (${used.map(exact).join(" + ")})` : "0: not chosen",
          computed: g[expert] > 0 ? p[expert] / sum(used) : 0,
          modelValue: g[expert],
        },
        {
          name: "y, unit 0",
          expression: terms.map((/** @type {number[]} */ [gate, output]) => `${exact(gate)} · ${exact(output)}`).join(" + "),
          computed: sum(terms.map((/** @type {number[]} */ [gate, output]) => gate * output)),
          modelValue: added.values[0][0],
        },
      ]);
    });
    const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
      for (const item of drawn) item.mark(row, column);
      return explain(row, column);
    };
    const shared = { rows, onCell, onPin: (/** @type {number} */ row, /** @type {number} */ column) => selectCell(row, column) };
    const drawn = [
      matrix({ title: "probability of each expert", values: probabilities.values, top: 1, ...shared }),
      matrix({ title: "gates", values: gates.values, top: 1, ...shared }),
    ];
    root.append(sideBySide(...drawn.map((item) => item.element)), details.element);
    await onCell(Math.min(state.row, rows.length - 1), Math.min(state.column, gates.values[0].length - 1));
  },
};

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);
