// Step: all heads of an attention layer, concatenated and projected by W_O.

import { dot } from "../arithmetic.js";
import { computationDetails, factors, matrixProduct } from "../computation_details.js";
import { h, s } from "../dom.js";
import { figure } from "../figure.js";
import { latestOnly } from "../live_request.js";
import {
  attentionWarning,
  formula,
  headCount,
  locationMenu,
  locationsWith,
  menus,
  nearestLocation,
  paragraph,
  selectCell,
  unitRange,
  unitRangeMenu,
} from "../locations.js";
import { matrix, shadePaths, sideBySide } from "../matrix.js";
import { exact } from "../numbers.js";
import { navigate } from "../state.js";

export const heads = {
  id: "heads",
  title: "Heads and W_O",
  section: "§3.2.2",
  here: (/** @type {any} */ { trace, state }) => [
    nearestLocation(locationsWith(trace, "concatenation", "weights"), state.at).replace(/\.\d+\./, "."),
  ],
  exists: (/** @type {any} */ trace) => locationsWith(trace, "concatenation", "weights").length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state }) {
    const locations = locationsWith(trace, "concatenation", "weights");
    const location = nearestLocation(locations, state.at);
    const count = headCount(trace, location);
    const head = Math.min(state.head, count - 1);
    const { width } = trace.outline.model;
    const columns = unitRange(state, width);
    const result = `${location}_residual.added`;
    const [concatenation, added, ...weights] = await Promise.all([
      trace.tensor(`${location}.concatenation`),
      trace.tensor(result, { columns }),
      ...Array.from({ length: count }, (_, n) => trace.tensor(`${location}.weights[${n}]`)),
    ]);
    const rows = added.labels[0];
    const headWidth = concatenation.shape[1] / count;
    root.append(
      paragraph(
        `${count} heads attend in parallel, each with its own W_q, W_k and W_v, so that a token can attend to several things at once. Their outputs are concatenated and projected by W_O.`,
      ),
      formula("MultiHead = Concat(head₀, …) · W_O"),
      menus(locationMenu(locations, location), unitRangeMenu(state, width)),
      gallery(weights, head),
      attentionWarning(trace.outline.steps.length > 0),
    );
    const details = computationDetails();
    const request = (/** @type {number} */ row, /** @type {number} */ column) =>
      trace.product(result, row, column + columns[0]);
    const onCell = latestOnly(request, (cell, row, column) => {
      const { left, right } = factors(cell);
      const units = [head * headWidth, (head + 1) * headWidth];
      const part = dot(left.slice(...units), right.slice(...units));
      details.show(`${rows[row]}, unit ${column + columns[0]}: head ${head} contributes ${exact(part)}`, [
        matrixProduct("Concat · W_O", cell),
      ]);
    });
    const chosen = concatenation.values.map((/** @type {number[]} */ row) => row.slice(head * headWidth, (head + 1) * headWidth));
    const shown = matrix({
      title: "Concat · W_O",
      note: "output of attention",
      values: added.values,
      rows,
      from: columns[0],
      onCell,
      onPin: (row, column) => selectCell(row, column + columns[0]),
    });
    root.append(
      sideBySide(
        matrix({
          title: `Weights of head ${head}`,
          values: weights[head].values,
          rows,
          columns: weights[head].labels[1],
          top: 1,
        }).element,
        matrix({
          title: `Output of head ${head}`,
          note: `units ${head * headWidth} – ${(head + 1) * headWidth - 1} of ${concatenation.shape[1]}`,
          values: chosen,
          rows,
          from: head * headWidth,
        }).element,
      ),
      shown.element,
      details.element,
    );
    const [row, column] = [
      Math.min(state.row, rows.length - 1),
      Math.min(state.column - columns[0], added.values[0].length - 1),
    ];
    shown.mark(row, column);
    await onCell(row, column);
  },
};

/** Thumbnails of all heads; select one to enlarge it. @param {any[]} weights @param {number} chosen */
function gallery(weights, chosen) {
  const title = "Weights of every head";
  const thumbs = weights.map((head, n) =>
    h(
      "button",
      {
        type: "button",
        id: `head-${n}`,
        class: "thumb",
        "aria-pressed": String(n === chosen),
        "aria-label": `Head ${n}`,
        on: { click: () => navigate({ head: n }) },
      },
      thumbnail(head.values),
      h("span", {}, `head ${n}`),
    ),
  );
  const [rows, keys] = weights[0].labels;
  return figure({
    title,
    shown: h("div", { class: "gallery", role: "group", "aria-label": title }, thumbs),
    table: () => ({
      head: ["", ...(keys ?? weights[0].values[0].map((/** @type {number} */ _, /** @type {number} */ n) => String(n)))],
      rows: weights.flatMap((head, n) =>
        head.values.map((/** @type {number[]} */ row, /** @type {number} */ r) => [`head ${n}, ${rows[r]}`, ...row]),
      ),
    }),
  });
}

/** A small matrix without numbers. @param {number[][]} values weights from 0 to 1 */
function thumbnail(values) {
  const [width, height] = [values[0].length, values.length];
  const emphasized = values.map((row) => row.map((value) => Math.sqrt(Math.max(0, value)))); // so that small weights are visible too
  return s(
    "svg",
    { class: "thumbnail", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "ground", width, height }),
    shadePaths(emphasized, (y, x) => ({ x, y, width: 1, height: 1 }), 1),
  );
}
