// Requests while the user types: sent after a pause; older ones are aborted.

import { Refused } from "./api.js";
import { h, replace, settled } from "./dom.js";

const PAUSE = 250; // milliseconds without input

/**
 * @typedef {object} Live
 * @property {HTMLElement[]} fields an input event in any of them sends a new request
 * @property {(signal: AbortSignal) => Promise<any> | null} ask null: there is nothing to request
 * @property {(found: any) => void} show called with the response, or null if nothing was requested
 * @property {HTMLElement} out element that shows errors
 * @property {HTMLElement} latency
 */

/** Send a request whenever a field changes; returns a function that sends one now. @param {Live} given @returns {() => Promise<void>} */
export function live({ fields, ask, show, out, latency }) {
  let latest = /** @type {AbortController | null} */ (null);
  const again = async () => {
    latest?.abort();
    const mine = new AbortController();
    latest = mine;
    const began = performance.now();
    try {
      const found = await ask(mine.signal);
      if (latest !== mine) return;
      replace(latency, found && time(performance.now() - began, found.timings?.compute_ms));
      show(found);
    } catch (error) {
      if (error instanceof DOMException) return; // aborted for a newer text
      if (!(error instanceof Refused)) throw error;
      replace(latency);
      replace(out, h("p", { class: "refused", role: "alert" }, error.message));
    }
  };
  const later = settled(again, PAUSE);
  for (const field of fields) field.addEventListener("input", later);
  return again;
}

/** @param {number} all @param {number} [worked] milliseconds */
function time(all, worked) {
  const model =
    worked === undefined ? "" : `, of which ${worked < 10 ? worked.toFixed(1) : Math.round(worked)} ms in the model`;
  return `${Math.round(all)} ms${model}`;
}
