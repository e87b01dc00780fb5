// Keep the explanation of a cell visible while the cell is hovered: it floats above or below the cell, never over it.

import { h } from "./dom.js";

const EDGE = 12; // pixels between the panel and the edge of the window
const ROOM = "(min-width: 900px) and (min-height: 640px)"; // on small screens it would cover the cell

let place = h("div"); // slot of the panel in the current view; a view has one

addEventListener("scroll", () => settle(), { passive: true });
document.addEventListener("pointerover", ({ target }) => (explained(target) ? settle() : land()));
document.addEventListener("focusin", ({ target }) => {
  if (explained(target)) return settle();
  land();
  if (target instanceof Element && place.contains(target)) target.scrollIntoView({ block: "nearest" });
});

/**
 * Wrap an element in a slot from which it can float.
 * @param {HTMLElement} element
 * @returns {HTMLElement}
 */
export function berth(element) {
  place = h("div", {}, element);
  new MutationObserver(settle).observe(element, { childList: true });
  return place;
}

/** Float the panel if its slot is not in the viewport. */
function settle() {
  land();
  const cell = pointedAt();
  if (!cell || !matchMedia(ROOM).matches || place.contains(document.activeElement)) return;
  const { left, top, bottom, width, height } = place.getBoundingClientRect();
  if (top >= 0 && bottom <= innerHeight) return;
  place.style.setProperty("min-height", `${height}px`); // so that the content below does not move
  place.firstElementChild.classList.add("afloat");
  const side = cell.top + cell.bottom > innerHeight ? "top" : "bottom";
  for (const [name, value] of Object.entries({ left, width, [side]: EDGE }))
    place.firstElementChild.style.setProperty(name, `${value}px`);
}

/** Whether an element is in a figure whose cells the panel explains. @param {EventTarget | null} target */
function explained(target) {
  const picture = target instanceof Element && target.closest(".picture");
  return Boolean(picture && place.parentElement?.contains(picture));
}

/** Put the panel back into its slot. */
function land() {
  place.firstElementChild?.classList.remove("afloat");
  place.firstElementChild?.removeAttribute("style");
  place.style.removeProperty("min-height");
}

/** Bounding box of the cell that is hovered or focused. */
function pointedAt() {
  const picture = place.parentElement?.querySelector(".picture:hover, .picture:focus-within");
  return (picture?.querySelector(".cursor") ?? picture)?.getBoundingClientRect();
}
