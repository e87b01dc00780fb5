// A small matrix without numbers.

import { s } from "./dom.js";
import { shades } from "./matrix.js";

/** @param {number[][]} values weights from 0 to 1 */
export function thumbnail(values) {
  const [width, height] = [values[0].length, values.length];
  const strong = values.map((row) => row.map((value) => Math.sqrt(Math.max(0, value)))); // so that small weights are visible too
  return s(
    "svg",
    { class: "thumbnail", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "ground", width, height }),
    shades(strong, (y, x) => ({ x, y, width: 1, height: 1 }), 1),
  );
}
