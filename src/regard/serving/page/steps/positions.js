// Where a token stands: waves of many lengths, added to its vector.

import { wave } from "../arithmetic.js";
import { s } from "../dom.js";
import { beside, matrix } from "../matrix.js";
import { exact } from "../numbers.js";
import { formula, menu, menus, nearest, pin, places, say, span, spanMenu } from "../places.js";
import { picture } from "../picture.js";
import { readout } from "../readout.js";

export const positions = {
  id: "positions",
  title: "Positions",
  section: "§3.5",
  here: (/** @type {any} */ { trace, state }) => {
    const stack = nearest(places(trace, "lookup"), state.at).split(".")[0];
    return trace.has(`${stack}.embedding.positions`) ? [`${stack}.positions`] : [`${stack}.attention`];
  },
  exists: (/** @type {any} */ trace) => trace.outline.model.heads !== null && places(trace, "lookup").length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state, about }) {
    const some = places(trace, "positions");
    const kind = about.settings.positions?.kind ?? "none";
    root.append(
      say(
        "Attention by itself does not know order: shuffle the tokens, and every token still gets the same. So each is told where it stands.",
      ),
    );
    if (!some.length) {
      root.append(
        say(
          `This model has no position vectors: its positions are of the kind “${kind}”, and act inside attention instead.`,
        ),
      );
      return;
    }
    const place = nearest(some, state.at);
    const { width } = trace.outline.model;
    const columns = span(state, width);
    const [scaled, vectors, sum] = await Promise.all(
      ["scaled", "positions", "sum"].map((point) => trace.tensor(`${place}.${point}`, { columns })),
    );
    const layout = about.settings.positions?.layout ?? "interleaved";
    const sines = kind === "sinusoidal";
    const rows = sum.labels[0];
    const values = vectors.values.slice(0, rows.length);
    root.append(
      formula(
        sines
          ? `PE(pos, 2i) = sin(pos / 10000^(2i/${width}))   PE(pos, 2i+1) = cos(pos / 10000^(2i/${width}))`
          : "x + P[pos], where P is learned",
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
        spanMenu(state, width),
      ),
    );
    const say_ = readout();
    const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
      for (const one of both) one.mark(row, column);
      const unit = column + columns[0];
      const [x, p] = [scaled.values[row][column], values[row][column]];
      const formula_ = sines
        ? [
            {
              name: "PE",
              how: `${(layout === "interleaved" ? unit % 2 : Number(unit >= width / 2)) ? "cos" : "sin"}(${row} / 10000^(${2 * (layout === "interleaved" ? Math.floor(unit / 2) : unit % (width / 2))}/${width}))`,
              mine: wave(row, unit, width, layout),
              theirs: p,
            },
          ]
        : [];
      say_.show(`${rows[row]}, position ${row}, unit ${unit}`, [
        ...formula_,
        { name: "x + PE", how: `${exact(x)} + ${exact(p)}`, mine: x + p, theirs: sum.values[row][column] },
      ]);
    };
    const onPin = (/** @type {number} */ row, /** @type {number} */ column) => pin(row, column + columns[0]);
    const both = [
      matrix({
        title: "Positions",
        note: "a row for each place",
        values,
        rows,
        from: columns[0],
        onCell,
        onPin,
        top: sines ? 1 : undefined,
      }),
      matrix({ title: "Embedding + position", values: sum.values, rows, from: columns[0], onCell, onPin }),
    ];
    if (sines) root.append(waves(values, columns[0], width, layout));
    root.append(beside(...both.map((one) => one.element)), say_.element);
    onCell(Math.min(state.row, rows.length - 1), Math.min(state.column - columns[0], values[0].length - 1));
  },
};

/** A few units over all places: lines are the formula, dots what the model added. @param {number[][]} values @param {number} from @param {number} width @param {string} layout */
function waves(values, from, width, layout) {
  const units = [0, 2, 4, 8].filter((unit) => unit < values[0].length);
  const last = Math.max(1, values.length - 1);
  const [across, high, left] = [660, 150, 34];
  const x = (/** @type {number} */ place) => left + (place / last) * (across - left - 90);
  const y = (/** @type {number} */ value) => 12 + ((1 - value) / 2) * (high - 34);
  const lines = units.map((unit, n) => {
    const smooth = Array.from({ length: 201 }, (_, one) => (one / 200) * last);
    const path = smooth
      .map(
        (place, one) =>
          `${one ? "L" : "M"}${x(place).toFixed(1)} ${y(wave(place, unit + from, width, layout)).toFixed(1)}`,
      )
      .join("");
    const colour = `c${n % 4}`;
    return s(
      "g",
      { class: `wave ${colour}` },
      s("path", { d: path }),
      values.map((row, place) => s("circle", { cx: x(place), cy: y(row[unit]), r: 3.5 })),
      s("text", { x: x(last) + 10, y: y(values[last][unit]) + 4 }, `unit ${unit + from}`),
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
      "aria-label": "Waves of positions",
    },
    [1, 0, -1].map((value) =>
      s(
        "g",
        { class: "axis" },
        s("line", { x1: left, x2: x(last), y1: y(value), y2: y(value) }),
        s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, String(value)),
      ),
    ),
    values.map((_, place) =>
      s("text", { class: "label", x: x(place), y: high - 4, "text-anchor": "middle" }, String(place)),
    ),
    lines,
  );
  return picture({
    title: "Waves",
    note: "dots are what the model adds at each position; lines the formula",
    svg,
    table: () => ({
      head: ["position", ...units.map((unit) => `unit ${unit + from}`)],
      rows: values.map((row, n) => [String(n), ...units.map((unit) => row[unit])]),
    }),
  });
}
