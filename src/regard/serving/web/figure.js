// A figure with its caption, its values as a table, and buttons to save it.

import { formatFormula, h } from "./dom.js";
import { exact } from "./numbers.js";
import { savePng, saveSvg } from "./save_image.js";

/**
 * @param {object} options
 * @param {string} options.title
 * @param {string} [options.note]
 * @param {Element} options.shown an SVG, or an HTML element
 * @param {() => {head: string[], rows: any[][]}} options.table the values of the figure
 * @returns {HTMLElement}
 */
export function figure({ title, note, shown, table }) {
  const tableDetails = h("details", { class: "table-details" }, h("summary", {}, "Table"));
  tableDetails.addEventListener("toggle", () => {
    if (tableDetails.open && tableDetails.children.length === 1) tableDetails.append(dataTable(title, table()));
  });
  return h(
    "figure",
    { class: "picture" },
    h("figcaption", {}, h("b", {}, formatFormula(title)), note && h("span", { class: "unit" }, formatFormula(note))),
    shown instanceof SVGSVGElement ? canvas(title, shown) : shown,
    h(
      "div",
      { class: "tools" },
      tableDetails,
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
export function dataTable(title, { head, rows }) {
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
          head.map((cell, n) => (cell || n ? h("th", { scope: "col" }, cell) : h("td"))),
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
            rest.map((cell) => h("td", {}, typeof cell === "string" ? cell : exact(cell))),
          ),
        ),
      ),
    ),
  );
}
