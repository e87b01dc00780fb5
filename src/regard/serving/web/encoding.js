// One-line summary of an encoder's trace, which has no output text.

import { h } from "./dom.js";
import { percent } from "./numbers.js";

/** @param {any} outline @returns {any[]} */
export function encoded({ text, head, source, model }) {
  const arrow = h("span", { class: "arrow", "aria-hidden": "true" }, " → ");
  if (head?.kind === "classes") {
    const [best] = head.predictions[0].candidates;
    return [
      h("span", {}, text),
      arrow,
      h("b", {}, best.token),
      h("span", { class: "unit" }, ` ${percent(best.probability)}`),
    ];
  }
  const count = source.tokens.length;
  return [h("span", {}, text), arrow, h("b", {}, `${count} vectors of ${model.width} numbers`)];
}
