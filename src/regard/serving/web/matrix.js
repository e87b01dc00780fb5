// A matrix as a heat map: blue for positive values, orange for negative, gray where masked. Arrow keys move between cells.

import { h, s } from "./dom.js";
import { figure } from "./figure.js";
import { short } from "./numbers.js";

const WIDE = 160; // maximum number of columns drawn
const LABEL = 78;
const SHADES = 48; // levels of each color

/**
 * @typedef {object} Matrix
 * @property {string} title
 * @property {string} [note]
 * @property {(number | null)[][]} values
 * @property {string[]} rows
 * @property {string[] | null} [columns] column labels; numbers if missing
 * @property {number} [top] value of the strongest color; the largest absolute value if missing
 * @property {(row: number, column: number) => void} [onCell] called when a cell is hovered or focused
 * @property {(row: number, column: number) => void} [onPin] called when a cell is selected
 * @property {number} [from] the number of the first column
 * @property {number} [digits] decimals
 * @property {boolean} [small] never write numbers into the cells
 */

/**
 * The figure, and functions that mark a cell and hide the mark.
 * @param {Matrix} options
 * @returns {{element: HTMLElement, mark: (row: number, column: number) => void, hide: () => void}}
 */
export function matrix(options) {
  const { values, rows, onCell, onPin, from = 0 } = options;
  const digits = values.flat().every(Number.isInteger) ? 0 : (options.digits ?? 2);
  const count = values[0]?.length ?? 0;
  const columns = options.columns ?? Array.from({ length: count }, (_, n) => String(n + from));
  const labeled = options.columns !== null && options.columns !== undefined;
  const numbers = count <= 16 && !options.small;
  const isWide = values.flat().some((value) => short(value, digits).length > 4); // such as −10.4
  const [width, height] = numbers ? [digits > 2 ? 54 : count > 8 && !isWide ? 35 : 41, 26] : [labeled ? 16 : 11, 18];
  const left = Math.min(112, 14 + 7.6 * Math.max(1, ...rows.map((row) => row.length)));
  const above = labeled ? LABEL : 20;
  const top = options.top ?? Math.max(1e-9, ...values.flat().map((value) => Math.abs(value ?? 0)));
  const boxOf = (/** @type {number} */ r, /** @type {number} */ c) => ({
    x: left + c * width,
    y: above + r * height,
    width: width - 1.5,
    height: height - 1.5,
  });
  const seen = values.map((row) => row.slice(0, WIDE));
  const whole = { x: left, y: above, width: Math.min(count, WIDE) * width - 1.5, height: rows.length * height - 1.5 };
  const cells = numbers
    ? values.flatMap((row, r) => row.flatMap((value, c) => cell(value, boxOf(r, c), top, digits)))
    : [s("rect", { class: "ground", rx: 4, ...whole }), ...shadePaths(seen, boxOf, top)];
  const cursor = s("rect", { class: "cursor", width: width - 1, height: height - 1, rx: 3, visibility: "hidden" });
  const shown = Math.min(count, WIDE);
  const size = [left + shown * width + (labeled ? 38 : 6), above + rows.length * height + 4];
  const svg = s(
    "svg",
    {
      class: "matrix",
      viewBox: `0 0 ${size[0]} ${size[1]}`,
      width: size[0],
      height: size[1],
      "aria-label": `${options.title}, ${rows.length} by ${count}`,
      role: onCell ? "application" : "img",
      tabindex: onCell ? "0" : null,
    },
    s("title", {}, options.title),
    columns
      .slice(0, WIDE)
      .map((text, c) => columnLabel(text, left + c * width + width / 2, above, labeled, !numbers && c % 8 !== 0)),
    rows.map((text, r) =>
      s(
        "text",
        { class: "label", x: left - 7, y: above + r * height + height / 2 + 4, "text-anchor": "end" },
        truncate(text, 13),
      ),
    ),
    s("g", {}, cells),
    cursor,
  );
  let at = [0, 0];
  const mark = (/** @type {number} */ row, /** @type {number} */ column) => {
    at = [Math.min(row, rows.length - 1), Math.min(column, shown - 1)];
    cursor.setAttribute("x", String(left + at[1] * width));
    cursor.setAttribute("y", String(above + at[0] * height));
    cursor.setAttribute("visibility", "visible");
  };
  if (onCell) {
    const point = (/** @type {number} */ row, /** @type {number} */ column) => {
      const unchanged = cursor.getAttribute("visibility") === "visible" && row === at[0] && column === at[1];
      if (unchanged) return;
      mark(row, column);
      onCell(at[0], at[1]);
    };
    const cellAt = (/** @type {PointerEvent} */ event) => {
      const box = svg.getBoundingClientRect();
      const scale = size[0] / box.width;
      return [
        Math.floor(((event.clientY - box.top) * scale - above) / height),
        Math.floor(((event.clientX - box.left) * scale - left) / width),
      ];
    };
    const inside = (/** @type {number[]} */ [row, column]) =>
      row >= 0 && row < rows.length && column >= 0 && column < shown;
    svg.addEventListener(
      "pointermove",
      (/** @type {PointerEvent} */ event) => inside(cellAt(event)) && point(...two(cellAt(event))),
    );
    svg.addEventListener("click", (/** @type {PointerEvent} */ event) => {
      if (!inside(cellAt(event))) return;
      point(...two(cellAt(event)));
      onPin?.(at[0], at[1]);
    });
    svg.addEventListener("focus", () => point(at[0], at[1]));
    svg.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[
        event.key
      ] ?? [0, 0];
      if (event.key === "Enter") onPin?.(at[0], at[1]);
      if (!down && !right) return;
      event.preventDefault();
      point(Math.max(0, Math.min(rows.length - 1, at[0] + down)), Math.max(0, Math.min(shown - 1, at[1] + right)));
      onPin?.(at[0], at[1]);
      cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
  }
  const note = count > WIDE ? `${options.note ? `${options.note} · ` : ""}the first ${WIDE} of ${count}` : options.note;
  const element = figure({
    title: options.title,
    note,
    shown: svg,
    table: () => ({ head: ["", ...columns], rows: values.map((row, n) => [rows[n], ...row]) }),
  });
  element.style.setProperty("--wide", `${size[0]}px`);
  const hide = () => cursor.setAttribute("visibility", "hidden");
  return { element, mark, hide };
}

/** @param {number[]} pair @returns {[number, number]} */
function two(pair) {
  return [pair[0], pair[1]];
}

/** @typedef {{x: number, y: number, width: number, height: number}} Box */

/** Color strength of a value, from 0 to 1. @param {number | null} value @param {number} top */
function strength(value, top) {
  return Math.min(1, Math.abs(value ?? 0) / top);
}

const DARK_TEXT = 0.645; // opacity of a cell from which black text has more contrast than white text, also on the dark page

/** Opacity of the color of a cell. @param {number} weight strength of its value */
function opacity(weight) {
  return 0.06 + 0.86 * weight;
}

/** A cell with its number in it. @param {number | null} value @param {Box} box @param {number} top @param {number} digits */
function cell(value, box, top, digits) {
  const weight = strength(value, top);
  return [
    s("rect", { class: value === null ? "masked" : "ground", rx: 4, ...box }),
    weight > 0.004 &&
      s("rect", {
        class: (value ?? 0) < 0 ? "below" : "above",
        "fill-opacity": opacity(weight).toFixed(3),
        rx: 4,
        ...box,
      }),
    s(
      "text",
      {
        class: opacity(weight) > DARK_TEXT ? "number strong" : value === null ? "number none" : "number",
        x: box.x + box.width / 2,
        y: box.y + box.height / 2 + 4.25,
        "text-anchor": "middle",
      },
      short(value, digits),
    ),
  ];
}

/**
 * Cells without numbers. There may be ten thousand, so cells of the same shade share a path.
 * @param {(number | null)[][]} values @param {(row: number, column: number) => Box} boxOf @param {number} top
 */
export function shadePaths(values, boxOf, top) {
  /** @type {Map<string, string>} */
  const paths = new Map();
  values.forEach((row, r) =>
    row.forEach((value, c) => {
      const level = Math.round(SHADES * strength(value, top));
      if (!level && value !== null) return;
      const shade = value === null ? "masked" : `${value < 0 ? "below" : "above"} ${level}`;
      const { x, y, width, height } = boxOf(r, c);
      paths.set(shade, `${paths.get(shade) ?? ""}M${x} ${y}h${width}v${height}h${-width}z`);
    }),
  );
  return [...paths].map(([shade, d]) => {
    const [kind, level] = shade.split(" ");
    return s("path", { class: kind, "fill-opacity": level && opacity(Number(level) / SHADES).toFixed(3), d });
  });
}

/** @param {string} text @param {number} x @param {number} above @param {boolean} labeled @param {boolean} silent */
function columnLabel(text, x, above, labeled, silent) {
  if (labeled)
    return s("text", { class: "label", transform: `translate(${x} ${above - 7}) rotate(-60)` }, truncate(text, 11));
  return silent ? null : s("text", { class: "label", x, y: above - 7, "text-anchor": "middle" }, text);
}

/** @param {string} text @param {number} most */
export function truncate(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Matrices side by side. @param {...HTMLElement} elements */
export function sideBySide(...elements) {
  return h("div", { class: "side-by-side" }, ...elements);
}
