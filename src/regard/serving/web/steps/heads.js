// Step: all heads of an attention layer, concatenated and projected by W_O.

import { dot } from "../arithmetic.js";
import { caution } from "../caution.js";
import { h } from "../dom.js";
import { beside, matrix } from "../matrix.js";
import {
  formula,
  heads as countHeads,
  menus,
  nearest,
  pin,
  placeMenu,
  places,
  say,
  span,
  spanMenu,
} from "../places.js";
import { newest } from "../newest.js";
import { exact } from "../numbers.js";
import { picture } from "../picture.js";
import { factors, multiplied, readout } from "../readout.js";
import { go } from "../state.js";
import { thumbnail } from "../thumbnail.js";

export const heads = {
  id: "heads",
  title: "Heads and W_O",
  section: "§3.2.2",
  here: (/** @type {any} */ { trace, state }) => [
    nearest(places(trace, "concatenation", "weights"), state.at).replace(/\.\d+\./, "."),
  ],
  exists: (/** @type {any} */ trace) => places(trace, "concatenation", "weights").length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state }) {
    const some = places(trace, "concatenation", "weights");
    const place = nearest(some, state.at);
    const count = countHeads(trace, place);
    const head = Math.min(state.head, count - 1);
    const { width } = trace.outline.model;
    const columns = span(state, width);
    const result = `${place}_residual.added`;
    const [together, added, ...weights] = await Promise.all([
      trace.tensor(`${place}.concatenation`),
      trace.tensor(result, { columns }),
      ...Array.from({ length: count }, (_, n) => trace.tensor(`${place}.weights[${n}]`)),
    ]);
    const rows = added.labels[0];
    const each = together.shape[1] / count;
    root.append(
      say(
        `${count} heads attend in parallel, each with its own W_q, W_k and W_v, so that a token can attend to several things at once. Their outputs are concatenated and projected by W_O.`,
      ),
      formula("MultiHead = Concat(head₀, …) · W_O"),
      menus(placeMenu(some, place), spanMenu(state, width)),
      gallery(weights, head),
      caution(trace.outline.steps.length > 0),
    );
    const say_ = readout();
    const ask = (/** @type {number} */ row, /** @type {number} */ column) =>
      trace.product(result, row, column + columns[0]);
    const onCell = newest(ask, (cell, row, column) => {
      const { left, right } = factors(cell);
      const own = [head * each, (head + 1) * each];
      const part = dot(left.slice(...own), right.slice(...own));
      say_.show(`${rows[row]}, unit ${column + columns[0]}: head ${head} contributes ${exact(part)}`, [
        multiplied("Concat · W_O", cell),
      ]);
    });
    const chosen = together.values.map((/** @type {number[]} */ row) => row.slice(head * each, (head + 1) * each));
    const shown = matrix({
      title: "Concat · W_O",
      note: "output of attention",
      values: added.values,
      rows,
      from: columns[0],
      onCell,
      onPin: (row, column) => pin(row, column + columns[0]),
    });
    root.append(
      beside(
        matrix({
          title: `Weights of head ${head}`,
          values: weights[head].values,
          rows,
          columns: weights[head].labels[1],
          top: 1,
        }).element,
        matrix({
          title: `Output of head ${head}`,
          note: `units ${head * each} – ${(head + 1) * each - 1} of ${together.shape[1]}`,
          values: chosen,
          rows,
          from: head * each,
        }).element,
      ),
      shown.element,
      say_.element,
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
  const thumbs = weights.map((one, n) =>
    h(
      "button",
      {
        type: "button",
        id: `head-${n}`,
        class: "thumb",
        "aria-pressed": String(n === chosen),
        "aria-label": `Head ${n}`,
        on: { click: () => go({ head: n }) },
      },
      thumbnail(one.values),
      h("span", {}, `head ${n}`),
    ),
  );
  const [rows, keys] = weights[0].labels;
  return picture({
    title,
    shown: h("div", { class: "gallery", role: "group", "aria-label": title }, thumbs),
    table: () => ({
      head: ["", ...(keys ?? weights[0].values[0].map((/** @type {number} */ _, /** @type {number} */ n) => String(n)))],
      rows: weights.flatMap((one, n) =>
        one.values.map((/** @type {number[]} */ row, /** @type {number} */ r) => [`head ${n}, ${rows[r]}`, ...row]),
      ),
    }),
  });
}
