// A matrix at a glance, without numbers.

import { h } from "./dom.js";

/** @param {number[][]} values weights from 0 to 1 */
export function thumbnail(values) {
  const canvas = h("canvas", { width: values[0].length, height: values.length, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--c1").trim() || "#2a6fc9";
  context.fillStyle = colour;
  values.forEach((row, y) =>
    row.forEach((value, x) => {
      context.globalAlpha = Math.sqrt(Math.max(0, value));
      context.fillRect(x, y, 1, 1);
    }),
  );
  return canvas;
}
