// Save a figure as SVG with inline styles, or as PNG.

import { s } from "./dom.js";

const STYLE_PROPERTIES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linecap",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "dominant-baseline",
];
const PAGE_ATTRIBUTES = ["class", "tabindex", "role", "href"]; // attributes without meaning in a file
const MARGIN = 12; // pixels around a part of the page
const ASCENT = 0.79; // fraction of the line height above the baseline

/** @typedef {(box: DOMRect) => {x: number, y: number, width: number, height: number}} ToCanvas */

/** A figure as SVG that needs no style sheet. @param {Element} figure @returns {SVGSVGElement} */
function toSvg(figure) {
  if (!(figure instanceof SVGSVGElement)) return redraw(figure);
  const { width, height } = figure.viewBox.baseVal;
  return setSize(inlineStyles(figure), { width, height });
}

/** A copy with inline styles. @param {SVGSVGElement} figure */
function inlineStyles(figure) {
  const copy = /** @type {SVGSVGElement} */ (figure.cloneNode(true));
  const [originals, copies] = [figure, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  originals.forEach((element, n) => {
    const style = getComputedStyle(element);
    for (const name of STYLE_PROPERTIES) {
      const value = style.getPropertyValue(name);
      if (value) copies[n].setAttribute(name, portableColor(value));
    }
    for (const name of PAGE_ATTRIBUTES) copies[n].removeAttribute(name);
  });
  return copy;
}

/** An HTML element redrawn as SVG: its boxes and words at their positions. @param {Element} part */
function redraw(part) {
  const { left, top, width, height } = part.getBoundingClientRect();
  /** @type {ToCanvas} */
  const at = (box) => ({
    x: box.left - left + MARGIN,
    y: box.top - top + MARGIN,
    width: box.width,
    height: box.height,
  });
  const size = { width: Math.ceil(width) + 2 * MARGIN, height: Math.ceil(height) + 2 * MARGIN };
  return setSize(s("svg", { viewBox: `0 0 ${size.width} ${size.height}` }, shapes(part, at)), size);
}

/** @param {Node} node @param {ToCanvas} at @returns {Element[]} */
function shapes(node, at) {
  if (node instanceof Text) return textElements(node, at);
  if (!(node instanceof Element)) return [];
  const rect = at(node.getBoundingClientRect());
  if (node instanceof SVGSVGElement) return [setSize(inlineStyles(node), rect)];
  return [...box(node, rect), ...[...node.childNodes].flatMap((child) => shapes(child, at))];
}

/** Background and border of an element, if visible. @param {Element} element @param {{width: number}} rect */
function box(element, rect) {
  const style = getComputedStyle(element);
  const line = Number.parseFloat(style.borderTopWidth);
  const bare = !line && /, 0\)$/.test(style.backgroundColor);
  if (bare || !rect.width || style.display === "none") return [];
  return [
    s("rect", {
      ...rect,
      rx: Number.parseFloat(style.borderTopLeftRadius) || null,
      fill: portableColor(style.backgroundColor),
      stroke: line ? portableColor(style.borderTopColor) : null,
      "stroke-width": line || null,
      "stroke-dasharray": style.borderTopStyle === "dashed" ? "4 3" : null,
      opacity: style.opacity,
    }),
  ];
}

/** @param {Text} text @param {ToCanvas} at */
function textElements(text, at) {
  const style = getComputedStyle(/** @type {Element} */ (text.parentElement));
  return [...text.data.matchAll(/\S+/g)].map((word) => {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const { x, y, height } = at(range.getBoundingClientRect());
    return s(
      "text",
      {
        x,
        y: y + ASCENT * height,
        fill: portableColor(style.color),
        "font-family": style.fontFamily,
        "font-size": style.fontSize,
        "font-weight": style.fontWeight,
        "text-decoration": style.textDecorationLine === "none" ? null : style.textDecorationLine,
      },
      word[0],
    );
  });
}

/** @param {SVGSVGElement} svg @param {Record<string, number>} size */
function setSize(svg, size) {
  for (const [name, value] of Object.entries(size)) svg.setAttribute(name, String(value));
  return svg;
}

/** A color(srgb …) value as rgba(…), which all programs can read; others stay unchanged. @param {string} value */
function portableColor(value) {
  const [, red, green, blue, alpha = "1"] = /^color\(srgb (\S+) (\S+) (\S+?)(?: \/ (\S+))?\)$/.exec(value) ?? [];
  if (!red) return value;
  return `rgba(${[red, green, blue].map((channel) => Math.round(255 * Number(channel))).join(", ")}, ${alpha})`;
}

/** @param {SVGSVGElement} svg */
function serialize(svg) {
  return new XMLSerializer().serializeToString(svg);
}

/** @param {Element} figure @param {string} name */
export function saveSvg(figure, name) {
  save(new Blob([serialize(toSvg(figure))], { type: "image/svg+xml" }), `${name}.svg`);
}

/** @param {Element} figure @param {string} name */
export async function savePng(figure, name) {
  const svg = toSvg(figure);
  const { width, height } = svg.viewBox.baseVal;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(serialize(svg))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * width, 2 * height];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.fillStyle = getComputedStyle(document.body).backgroundColor;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => blob && save(blob, `${name}.png`));
}

/** @param {Blob} blob @param {string} name */
function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  URL.revokeObjectURL(link.href);
}
