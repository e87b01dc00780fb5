// Layout shared by the views of encoders: the input text on one side, the result on the other.

import { h } from "./dom.js";
import { linkTo } from "./state.js";

/** A text area with its label. @param {string} id @param {string} label @param {any} more */
export function textPane(id, label, more) {
  const field = h("textarea", { id, rows: 4, spellcheck: "true", dir: "auto", ...more });
  return { field, pane: h("div", { class: "pane" }, h("label", { for: id }, label), field) };
}

/** The pane that shows results. @param {string} label */
export function resultPane(label) {
  const out = h("div", { id: "target", class: "result-body", role: "region", "aria-live": "polite", "aria-label": label });
  const latency = h("p", { class: "latency", id: "latency" });
  const inside = h("a", { ...linkTo({ view: "look" }), class: "look-link" }, "Look inside →");
  const foot = h("div", { class: "pane-footer" }, latency, inside);
  return { out, latency, pane: h("div", { class: "pane" }, h("p", { class: "label" }, label), out, foot) };
}

/** Split two texts that are separated by a tab, the input format of `regard classify`. @param {string} text @returns {[string, string]} */
export function splitPair(text) {
  const [first, ...second] = text.split("\t");
  return [first, second.join(" ")];
}

/** @param {string} first @param {string} second */
export function joinPair(first, second) {
  const plain = first.replaceAll("\t", " ");
  return second ? `${plain}\t${second.replaceAll("\t", " ")}` : plain;
}
