// Keep the explanation of a cell visible while the cell is hovered, touched or focused: it floats above or below the
// cell, and covers neither the cell nor the sentence above the step.

import { h } from "./dom.js";

const MARGIN = 12; // pixels between the panel and the cell, the sentence and the edges of the window
const LARGE_SCREEN = "(min-width: 900px) and (min-height: 640px)"; // on small ones, the panel is next to the cell

let slot = h("div"); // slot of the panel in the current view; a view has one

addEventListener("scroll", () => float(), { passive: true });
let touching = false; // until the touched cell is known, the panel could cover it
document.addEventListener("pointerover", ({ target, pointerType }) => {
  touching = pointerType === "touch";
  if (isExplained(target)) float();
  else if (!(target instanceof Node && slot.contains(target))) dock();
});
for (const event of ["click", "pointercancel"]) document.addEventListener(event, () => (touching = false), { capture: true });
document.addEventListener("click", ({ target }) => isExplained(target) && float());
document.addEventListener("focusin", ({ target }) => {
  if (isExplained(target)) return float();
  dock();
  if (target instanceof Element && slot.contains(target)) target.scrollIntoView({ block: "nearest" });
});

/**
 * Wrap an element in a slot from which it can float.
 * @param {HTMLElement} element
 * @returns {HTMLElement}
 */
export function floatingSlot(element) {
  slot = h("div", {}, element);
  new MutationObserver(float).observe(element, { childList: true });
  return slot;
}

/** Float the panel if its slot is not in the viewport. */
function float() {
  dock();
  const cell = activeCell();
  if (!cell || touching || slot.contains(document.activeElement)) return;
  const { left, top, bottom, width, height } = slot.getBoundingClientRect();
  if (top >= 0 && bottom <= innerHeight) return;
  const room = freeRoom(cell);
  const below = innerHeight - cell.bottom - 2 * MARGIN;
  const above = cell.top - room.top - 2 * MARGIN;
  if (Math.max(above, below) < 0 || cell.bottom < 0 || cell.top > innerHeight) return;
  slot.style.setProperty("min-height", `${height}px`); // so that the content below does not move
  const panel = slot.firstElementChild;
  panel.classList.add("floating");
  const size = { left, width, "max-height": Math.max(above, below) };
  for (const [name, value] of Object.entries(size)) panel.style.setProperty(name, `${value}px`);
  const needed = panel.getBoundingClientRect().height; // a floating panel may be lower than its slot
  const isLarge = matchMedia(LARGE_SCREEN).matches;
  const isAbove = above > below || (!isLarge && above >= needed); // a hand covers what is below a finger
  const y = isAbove
    ? isLarge
      ? room.top + MARGIN
      : cell.top - MARGIN - Math.min(needed, above)
    : isLarge
      ? innerHeight - MARGIN - Math.min(needed, below)
      : cell.bottom + MARGIN;
  panel.style.setProperty("max-height", `${isAbove ? above : below}px`);
  panel.style.setProperty("top", `${y}px`);
}

/** Where the space above a cell begins: below the sentence, if that is visible. @param {DOMRect} cell */
function freeRoom(cell) {
  const sentence = slot.closest(".workbench")?.querySelector(".summary-line")?.getBoundingClientRect();
  return { top: sentence && sentence.bottom > 0 && sentence.bottom < cell.top ? sentence.bottom : 0 };
}

/** Whether an element is in a figure whose cells the panel explains. @param {EventTarget | null} target */
function isExplained(target) {
  const figure = target instanceof Element && target.closest(".picture");
  return Boolean(figure && slot.parentElement?.contains(figure));
}

/** Put the panel back into its slot. */
function dock() {
  slot.firstElementChild?.classList.remove("floating");
  slot.firstElementChild?.removeAttribute("style");
  slot.style.removeProperty("min-height");
}

/** Bounding box of the cell that is hovered or focused. */
function activeCell() {
  const figure = slot.parentElement?.querySelector(".picture:hover, .picture:focus-within");
  return (figure?.querySelector(".cursor") ?? figure)?.getBoundingClientRect();
}
