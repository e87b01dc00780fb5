// A picture as a file: SVG with its colours written into it, or PNG.

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

/** The SVG text of a picture, which needs no style sheet. @param {SVGSVGElement} picture */
export function asSvg(picture) {
  const copy = /** @type {SVGSVGElement} */ (picture.cloneNode(true));
  const [theirs, ours] = [picture, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  theirs.forEach((element, n) => {
    const style = getComputedStyle(element);
    for (const name of WRITTEN) {
      const value = style.getPropertyValue(name);
      if (value) ours[n].setAttribute(name, value);
    }
    for (const name of ["class", "tabindex", "role"]) ours[n].removeAttribute(name);
  });
  const { width, height } = picture.viewBox.baseVal;
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}

/** @param {SVGSVGElement} picture @param {string} name */
export function saveSvg(picture, name) {
  save(new Blob([asSvg(picture)], { type: "image/svg+xml" }), `${name}.svg`);
}

/** @param {SVGSVGElement} picture @param {string} name */
export async function savePng(picture, name) {
  const { width, height } = picture.viewBox.baseVal;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(asSvg(picture))}`;
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
