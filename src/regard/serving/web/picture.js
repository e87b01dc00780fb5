// A figure with its caption, its values as a table, and buttons to save it.

import { h } from "./dom.js";
import { savePng, saveSvg } from "./export.js";
import { maths } from "./maths.js";
import { exact } from "./numbers.js";

/**
 * @param {object} given
 * @param {string} given.title
 * @param {string} [given.note]
 * @param {Element} given.shown an SVG, or an HTML element
 * @param {() => {head: string[], rows: any[][]}} given.table the values of the figure
 * @returns {HTMLElement}
 */
export function picture({ title, note, shown, table }) {
  const behind = h("details", { class: "behind" }, h("summary", {}, "Table"));
  behind.addEventListener("toggle", () => {
    if (behind.open && behind.children.length === 1) behind.append(tabular(title, table()));
  });
  return h(
    "figure",
    { class: "picture" },
    h("figcaption", {}, h("b", {}, maths(title)), note && h("span", { class: "unit" }, maths(note))),
    shown instanceof SVGSVGElement ? canvas(title, shown) : shown,
    h(
      "div",
      { class: "tools" },
      behind,
      h(
        "button",
        { type: "button", "aria-label": `Save ${title} as SVG`, on: { click: () => saveSvg(shown, title) } },
        "SVG",
      ),
      h(
        "button",
        { type: "button", "aria-label": `Save ${title} as PNG`, on: { click: () => savePng(shown, title) } },
        "PNG",
      ),
    ),
  );
}

/** Scrollable container of a large SVG. @param {string} title @param {SVGSVGElement} svg */
function canvas(title, svg) {
  const tabindex = svg.hasAttribute("tabindex") ? null : "0";
  return h("div", { class: "canvas", tabindex, role: "group", "aria-label": title }, svg);
}

/** @param {string} title @param {{head: string[], rows: any[][]}} content */
export function tabular(title, { head, rows }) {
  return h(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": `Table: ${title}` },
    h(
      "table",
      { class: "numbers" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((one, n) => (one || n ? h("th", { scope: "col" }, one) : h("td"))),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map(([first, ...rest]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, first),
            rest.map((one) => h("td", {}, typeof one === "string" ? one : exact(one))),
          ),
        ),
      ),
    ),
  );
}
