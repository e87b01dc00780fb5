// Save a figure as SVG with inline styles, or as PNG.

import { s } from "./dom.js";

const WRITTEN = [
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
const OF_THE_PAGE = ["class", "tabindex", "role", "href"]; // attributes without meaning in a file
const MARGIN = 12; // pixels around a part of the page
const ASCENT = 0.79; // fraction of the line height above the baseline

/** @typedef {(box: DOMRect) => {x: number, y: number, width: number, height: number}} Placed */

/** A figure as SVG that needs no style sheet. @param {Element} picture @returns {SVGSVGElement} */
function drawing(picture) {
  if (!(picture instanceof SVGSVGElement)) return traced(picture);
  const { width, height } = picture.viewBox.baseVal;
  return sized(inlined(picture), { width, height });
}

/** A copy with inline styles. @param {SVGSVGElement} picture */
function inlined(picture) {
  const copy = /** @type {SVGSVGElement} */ (picture.cloneNode(true));
  const [theirs, ours] = [picture, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  theirs.forEach((element, n) => {
    const style = getComputedStyle(element);
    for (const name of WRITTEN) {
      const value = style.getPropertyValue(name);
      if (value) ours[n].setAttribute(name, plain(value));
    }
    for (const name of OF_THE_PAGE) ours[n].removeAttribute(name);
  });
  return copy;
}

/** An HTML element redrawn as SVG: its boxes and words at their positions. @param {Element} part */
function traced(part) {
  const { left, top, width, height } = part.getBoundingClientRect();
  /** @type {Placed} */
  const at = (box) => ({
    x: box.left - left + MARGIN,
    y: box.top - top + MARGIN,
    width: box.width,
    height: box.height,
  });
  const size = { width: Math.ceil(width) + 2 * MARGIN, height: Math.ceil(height) + 2 * MARGIN };
  return sized(s("svg", { viewBox: `0 0 ${size.width} ${size.height}` }, shapes(part, at)), size);
}

/** @param {Node} node @param {Placed} at @returns {Element[]} */
function shapes(node, at) {
  if (node instanceof Text) return words(node, at);
  if (!(node instanceof Element)) return [];
  const place = at(node.getBoundingClientRect());
  if (node instanceof SVGSVGElement) return [sized(inlined(node), place)];
  return [...box(node, place), ...[...node.childNodes].flatMap((child) => shapes(child, at))];
}

/** Background and border of an element, if visible. @param {Element} element @param {{width: number}} place */
function box(element, place) {
  const style = getComputedStyle(element);
  const line = Number.parseFloat(style.borderTopWidth);
  const bare = !line && /, 0\)$/.test(style.backgroundColor);
  if (bare || !place.width || style.display === "none") return [];
  return [
    s("rect", {
      ...place,
      rx: Number.parseFloat(style.borderTopLeftRadius) || null,
      fill: plain(style.backgroundColor),
      stroke: line ? plain(style.borderTopColor) : null,
      "stroke-width": line || null,
      "stroke-dasharray": style.borderTopStyle === "dashed" ? "4 3" : null,
      opacity: style.opacity,
    }),
  ];
}

/** @param {Text} text @param {Placed} at */
function words(text, at) {
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
        fill: plain(style.color),
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
function sized(svg, size) {
  for (const [name, value] of Object.entries(size)) svg.setAttribute(name, String(value));
  return svg;
}

/** A color(srgb …) value as rgba(…), which all programs can read; others stay unchanged. @param {string} value */
function plain(value) {
  const [, red, green, blue, alpha = "1"] = /^color\(srgb (\S+) (\S+) (\S+?)(?: \/ (\S+))?\)$/.exec(value) ?? [];
  if (!red) return value;
  return `rgba(${[red, green, blue].map((one) => Math.round(255 * Number(one))).join(", ")}, ${alpha})`;
}

/** @param {SVGSVGElement} svg */
function asText(svg) {
  return new XMLSerializer().serializeToString(svg);
}

/** @param {Element} picture @param {string} name */
export function saveSvg(picture, name) {
  save(new Blob([asText(drawing(picture))], { type: "image/svg+xml" }), `${name}.svg`);
}

/** @param {Element} picture @param {string} name */
export async function savePng(picture, name) {
  const svg = drawing(picture);
  const { width, height } = svg.viewBox.baseVal;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(asText(svg))}`;
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
