// Links from each step to the lab experiments that test it, with the command to run them.

import { formatFormula, h } from "./dom.js";

/** @type {Record<string, string[]>} by step */
const LABS_BY_STEP = {
  embedding: ["sharing"],
  positions: ["order", "positions"],
  gates: ["steps", "complexity", "gradients", "distance", "memory"],
  scores: ["scaling", "worked-example", "diagonal", "complexity", "quadratic"],
  sum: ["averaging"],
  heads: ["heads"],
  kinds: ["peeking", "alignment"],
  residual: ["depth"],
  feed_forward: ["averaging", "modern"],
  experts: ["modern"],
  output: ["ablations"],
  player: ["peeking"],
  tree: ["beams"],
  switchboard: ["heads", "alignment"],
};

/**
 * Experiments of a step, each with a link to its results; null if there are none.
 * @param {string} step @param {Record<string, string>} labs their claims, by name
 */
export function experimentLinks(step, labs) {
  const names = (LABS_BY_STEP[step] ?? []).filter((name) => name in labs);
  if (!names.length) return null;
  return h(
    "aside",
    { class: "labs", "aria-label": "Experiments" },
    h("p", { class: "note" }, "Experiments:"),
    h("ul", {}, names.map((name) => experiment(name, labs[name]))),
  );
}

/** @param {string} name @param {string} claim */
function experiment(name, claim) {
  return h("li", {}, h("code", {}, `regard lab ${name}`), " ", h("a", { href: `labs#${name}` }, formatFormula(claim)));
}
