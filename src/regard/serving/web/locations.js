// Locations of trace points in the network (such as decoder.1.cross_attention), and the menus that select one.

import { formatFormula, h } from "./dom.js";
import { linkTo, navigate, updateUrl } from "./state.js";

/** @typedef {import("./api.js").Trace} Trace */
/** @typedef {import("./state.js").State} State */
/** @typedef {{trace: Trace, state: State, about: any}} StepContext */

const NAMES = /** @type {Record<string, string>} */ ({
  attention: "self-attention",
  cross_attention: "cross-attention",
  feed_forward: "feed-forward",
  forwards: "forwards",
  backwards: "backwards",
});

/** Locations that have all of these points, in order. @param {Trace} trace @param {...string} points */
export function locationsWith(trace, ...points) {
  /** @type {string[]} */
  const candidates = trace.outline.points
    .filter((/** @type {any} */ point) => point.point === points[0])
    .map((/** @type {any} */ point) => point.name.slice(0, -points[0].length - 1));
  return candidates.filter((location) => points.every((point) => trace.has(`${location}.${point}`)));
}

/** The axes of a point. @param {Trace} trace @param {string} name @returns {string[]} */
export function axes(trace, name) {
  return trace.outline.points.find((/** @type {any} */ point) => point.name === name)?.axes ?? [];
}

/** Of some locations, the selected one or the nearest: in the same layer, else in the same stack. @param {string[]} locations @param {string} at */
export function nearestLocation(locations, at) {
  const parts = at.split(".");
  for (let shared = parts.length; shared > 0; shared -= 1) {
    const start = parts.slice(0, shared).join(".");
    const match = locations.find((location) => location === start || location.startsWith(`${start}.`));
    if (match) return match;
  }
  return locations[0];
}

/** decoder.1.cross_attention → decoder · layer 1 · cross-attention @param {string} location */
export function locationName(location) {
  return location
    .split(".")
    .map((part) => (/^\d+$/.test(part) ? `layer ${part}` : (NAMES[part] ?? part.replaceAll("_", " "))))
    .join(" · ");
}

/** Number of attention heads at a location. @param {Trace} trace @param {string} location */
export function headCount(trace, location) {
  const matrix = trace.outline.matrices.find((/** @type {any} */ candidate) => candidate.name === `${location}.W_q`);
  return matrix?.heads ?? 1;
}

/**
 * A menu; the selected value is stored in the URL, and the page is updated.
 * @param {string} id @param {string} label @param {[any, string][]} options @param {any} chosen @param {(value: string) => Partial<State>} change
 */
export function menu(id, label, options, chosen, change) {
  const select = h(
    "select",
    { id, on: { change: () => navigate(change(select.value)) } },
    options.map(([value, text]) => h("option", { value, selected: String(value) === String(chosen) }, text)),
  );
  return h("label", { class: "menu", for: id }, h("span", {}, label), select);
}

/** @param {string[]} locations @param {string} chosen */
export function locationMenu(locations, chosen) {
  return menu(
    "location",
    "Layer",
    locations.map((location) => [location, locationName(location)]),
    chosen,
    (at) => ({ at, row: 0, column: 0 }),
  );
}

/** @param {number} count @param {number} chosen */
export function headMenu(count, chosen) {
  return menu(
    "head",
    "Head",
    Array.from({ length: count }, (_, n) => [n, String(n)]),
    chosen,
    (head) => ({ head: Number(head) }),
  );
}

/** Range of the units of a vector that are shown. @param {State} state @param {number} width @param {number} [size] @returns {[number, number]} */
export function unitRange(state, width, size = 16) {
  const start = Math.min(Math.floor(state.column / size) * size, Math.max(0, Math.floor((width - 1) / size) * size));
  return [start, Math.min(width, start + size)];
}

/** @param {State} state @param {number} width @param {number} [size] */
export function unitRangeMenu(state, width, size = 16) {
  if (width <= size) return null;
  const options = /** @type {[any, string][]} */ (
    Array.from({ length: Math.ceil(width / size) }, (_, n) => [
      n * size,
      `${n * size} – ${Math.min(width, (n + 1) * size) - 1}`,
    ])
  );
  return menu("span", "Units", options, unitRange(state, width, size)[0], (start) => ({ column: Number(start) }));
}

/** Store the selected cell in the URL. @param {number} row @param {number} column */
export function selectCell(row, column) {
  updateUrl({ row, column });
}

/** @param {...any} menus */
export function menus(...menus) {
  return h("div", { class: "menus" }, ...menus);
}

/** @param {...(string | Node)} text */
export function paragraph(...text) {
  return h("p", { class: "paragraph" }, ...text.map((part) => (typeof part === "string" ? formatFormula(part) : part)));
}

/** A formula. @param {string} text */
export function formula(text) {
  return h("p", { class: "formula" }, formatFormula(text));
}

/** Warning shown next to attention weights. @param {boolean} [linked] whether to link to the step with the switches */
export function attentionWarning(linked = true) {
  return h(
    "p",
    { class: "attention-warning" },
    h("b", {}, "Attention is not explanation. "),
    "Attention weights show which tokens a head attends to, not what the output depends on: a head with sharp attention may not affect the output at all. To find out, ",
    linked ? h("a", linkTo({ step: "switchboard" }), "switch it off") : "switch it off",
    " and compare the output.",
  );
}
