// List of candidate tokens with their probabilities as bars.

import { h } from "./dom.js";
import { percent } from "./numbers.js";

/**
 * @param {{id: number, token: string, probability: number}[]} tokens @param {number} chosen id of the selected token
 * @param {(id: number) => void} [onChoose]
 */
export function candidates(tokens, chosen, onChoose) {
  return h(
    "ol",
    { class: "candidates" },
    tokens.map(({ id, token, probability }) => {
      const inside = [
        h("code", { dir: "auto" }, token),
        h("span", { class: "bar" }, h("span", { style: { width: `${100 * probability}%` } })),
        h("span", { class: "percentage" }, percent(probability)),
      ];
      const kind = id === chosen ? "candidate chosen" : "candidate";
      return h(
        "li",
        {},
        onChoose
          ? h("button", { type: "button", class: kind, on: { click: () => onChoose(id) } }, inside)
          : h("div", { class: kind }, inside),
      );
    }),
  );
}
