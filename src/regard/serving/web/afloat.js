// What explains a cell, kept in sight while one points at it: afloat above or below the cell, never over it.

import { h } from "./dom.js";

const EDGE = 12; // pixels between it and the window
const ROOM = "(min-width: 900px) and (min-height: 640px)"; // on small screens it would leave no place for the cell

let place = h("div"); // of what explains cells in the view that is shown; a view has one

addEventListener("scroll", () => settle(), { passive: true });
document.addEventListener("pointerover", ({ target }) => (explained(target) ? settle() : land()));
document.addEventListener("focusin", ({ target }) => {
  if (explained(target)) return settle();
  land();
  if (target instanceof Element && place.contains(target)) target.scrollIntoView({ block: "nearest" });
});

/**
 * A place in the page for an element that may leave it for a while.
 * @param {HTMLElement} element
 * @returns {HTMLElement}
 */
export function berth(element) {
  place = h("div", {}, element);
  new MutationObserver(settle).observe(element, { childList: true });
  return place;
}

/** Put it where it can be seen, and the cell too. */
function settle() {
  land();
  const cell = pointedAt();
  if (!cell || !matchMedia(ROOM).matches || place.contains(document.activeElement)) return;
  const { left, top, bottom, width, height } = place.getBoundingClientRect();
  if (top >= 0 && bottom <= innerHeight) return;
  place.style.setProperty("min-height", `${height}px`); // so that nothing below it moves
  place.firstElementChild.classList.add("afloat");
  const side = cell.top + cell.bottom > innerHeight ? "top" : "bottom";
  for (const [name, value] of Object.entries({ left, width, [side]: EDGE }))
    place.firstElementChild.style.setProperty(name, `${value}px`);
}

/** Whether something is in a picture whose cells are explained. @param {EventTarget | null} target */
function explained(target) {
  const picture = target instanceof Element && target.closest(".picture");
  return Boolean(picture && place.parentElement?.contains(picture));
}

/** Back to its place. */
function land() {
  place.firstElementChild?.classList.remove("afloat");
  place.firstElementChild?.removeAttribute("style");
  place.style.removeProperty("min-height");
}

/** Where the cell is that is pointed at, with the pointer or the keyboard. */
function pointedAt() {
  const picture = place.parentElement?.querySelector(".picture:hover, .picture:focus-within");
  return (picture?.querySelector(".cursor") ?? picture)?.getBoundingClientRect();
}
