// Keep the explanation of a cell visible while the cell is hovered: it floats above or below the cell, never over it.

import { h } from "./dom.js";

const MARGIN = 12; // pixels between the panel and the edge of the window
const LARGE_SCREEN = "(min-width: 900px) and (min-height: 640px)"; // on small screens it would cover the cell

let slot = h("div"); // slot of the panel in the current view; a view has one

addEventListener("scroll", () => float(), { passive: true });
document.addEventListener("pointerover", ({ target }) => (isExplained(target) ? float() : dock()));
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
  if (!cell || !matchMedia(LARGE_SCREEN).matches || slot.contains(document.activeElement)) return;
  const { left, top, bottom, width, height } = slot.getBoundingClientRect();
  if (top >= 0 && bottom <= innerHeight) return;
  slot.style.setProperty("min-height", `${height}px`); // so that the content below does not move
  slot.firstElementChild.classList.add("floating");
  const side = cell.top + cell.bottom > innerHeight ? "top" : "bottom";
  for (const [name, value] of Object.entries({ left, width, [side]: MARGIN }))
    slot.firstElementChild.style.setProperty(name, `${value}px`);
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
