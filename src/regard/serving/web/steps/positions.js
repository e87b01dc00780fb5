// Step: position encodings, added to the embeddings.

import { frequencyOf, sinusoid } from "../arithmetic.js";
import { s } from "../dom.js";
import { figure } from "../figure.js";
import { formula, locationsWith, nearestLocation, paragraph } from "../locations.js";
import { exact, short } from "../numbers.js";
import { embeddingView, linkedMatrices } from "./vectors.js";

/** Description of position encodings that do not add vectors. @type {Record<string, string>} */
const DESCRIPTIONS = {
  none: "This model has no position encoding. Only the causal mask of a decoder provides information about order.",
  rotary:
    "Rotary position embeddings: queries and keys are rotated by an angle proportional to their position, so that scores depend on the distance between tokens. See “Queries, keys, values”.",
  alibi:
    "ALiBi: a penalty proportional to the distance of the key is subtracted from every score, with a different slope per head. See “Scores to weights”.",
  relative:
    "Relative positions: a learned key and value for every distance between two tokens. See “Scores to weights” and “Weighted sum”.",
};

export const positions = {
  id: "positions",
  title: "Positions",
  section: "§3.5",
  here: (/** @type {any} */ { trace, state }) => {
    const stack = nearestLocation(locationsWith(trace, "lookup"), state.at).split(".")[0];
    return trace.has(`${stack}.embedding.positions`) ? [`${stack}.positions`] : [`${stack}.attention`];
  },
  exists: (/** @type {any} */ trace) => trace.outline.model.heads !== null && locationsWith(trace, "lookup").length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, here) {
    const { trace, state, about } = here;
    const { kind = "none", layout = "interleaved" } = about.settings.positions ?? {};
    root.append(
      paragraph(
        "Attention is invariant to the order of the tokens it attends to, so their positions are encoded separately.",
      ),
    );
    if (!locationsWith(trace, "positions").length) {
      root.append(paragraph(DESCRIPTIONS[kind] ?? `Position encoding “${kind}”, applied inside attention.`));
      return;
    }
    const view = await embeddingView(here, "positions");
    const { width, columns } = view;
    const [scaled, vectors, sum] = await view.tensors("scaled", "positions", "sum");
    const sines = kind === "sinusoidal";
    const rows = sum.labels[0];
    const values = vectors.values.slice(0, rows.length);
    const explain = (/** @type {number} */ row, /** @type {number} */ column, /** @type {number} */ unit) => {
      const [x, p] = [scaled.values[row][column], values[row][column]];
      const added = { name: "x + PE", expression: `${exact(x)} + ${exact(p)}`, computed: x + p, modelValue: sum.values[row][column] };
      if (!sines) return [added];
      const { pair, odd } = frequencyOf(unit, width, layout);
      const expression = `${odd ? "cos" : "sin"}(${row} / 10000^(${2 * pair}/${width}))`;
      return [{ name: "PE", expression, computed: sinusoid(row, unit, width, layout), modelValue: p }, added];
    };
    root.append(
      formula(
        sines
          ? `PE(pos, 2i) = sin(pos / 10000^(2i/${width}))     PE(pos, 2i+1) = cos(pos / 10000^(2i/${width}))`
          : "x + P[pos], where P is learned",
      ),
      view.menus,
      sines ? sinusoids(values, columns[0], width, layout) : "",
      ...linkedMatrices(
        state,
        columns,
        rows,
        [
          { title: "Positions", note: "one row per position", values, top: sines ? 1 : undefined },
          { title: "Embedding + position", values: sum.values },
        ],
        explain,
      ),
    );
  },
};

/** Heights of labels, moved so that neighbors are at least a gap apart and none is below the bottom. @param {number[]} heights @param {number} gap @param {number} bottom */
function apart(heights, gap, bottom) {
  const moved = [...heights];
  const order = heights.map((_, n) => n).sort((a, b) => heights[a] - heights[b]);
  order.forEach((n, place) => place && (moved[n] = Math.max(moved[n], moved[order[place - 1]] + gap)));
  order.reverse().forEach((n, place) => (moved[n] = Math.min(moved[n], place ? moved[order[place - 1]] - gap : bottom)));
  return moved;
}

/** A few units over all positions: lines show the formula, dots the model's values. @param {number[][]} values @param {number} from @param {number} width @param {string} layout */
function sinusoids(values, from, width, layout) {
  const units = [0, 2, 4, 8].filter((unit) => unit < values[0].length);
  const last = Math.max(1, values.length - 1);
  const [across, high, left] = [660, 150, 34];
  const x = (/** @type {number} */ position) => left + (position / last) * (across - left - 90);
  const y = (/** @type {number} */ value) => 12 + ((1 - value) / 2) * (high - 34);
  const labels = apart(units.map((unit) => y(values[last][unit]) + 4), 13, high - 22);
  const lines = units.map((unit, n) => {
    const smooth = Array.from({ length: 201 }, (_, index) => (index / 200) * last);
    const path = smooth
      .map(
        (position, index) =>
          `${index ? "L" : "M"}${x(position).toFixed(1)} ${y(sinusoid(position, unit + from, width, layout)).toFixed(1)}`,
      )
      .join("");
    const color = `c${n % 4}`;
    return s(
      "g",
      { class: `wave ${color}` },
      s("path", { d: path }),
      values.map((row, position) => s("circle", { cx: x(position), cy: y(row[unit]), r: 3.5 })),
      s("text", { x: x(last) + 10, y: labels[n] }, `unit ${unit + from}`),
    );
  });
  const svg = s(
    "svg",
    {
      class: "waves",
      viewBox: `0 0 ${across} ${high}`,
      width: across,
      height: high,
      role: "img",
      "aria-label": "Sinusoids of position encodings",
    },
    [1, 0, -1].map((value) =>
      s(
        "g",
        { class: "axis" },
        s("line", { x1: left, x2: x(last), y1: y(value), y2: y(value) }),
        s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, short(value, 0)),
      ),
    ),
    values.map((_, position) =>
      position % Math.ceil(values.length / 24)
        ? null
        : s("text", { class: "label", x: x(position), y: high - 4, "text-anchor": "middle" }, String(position)),
    ),
    lines,
  );
  return figure({
    title: "Sinusoids",
    note: "dots: values of the model; lines: formula",
    shown: svg,
    table: () => ({
      head: ["position", ...units.map((unit) => `unit ${unit + from}`)],
      rows: values.map((row, n) => [String(n), ...units.map((unit) => row[unit])]),
    }),
  });
}
