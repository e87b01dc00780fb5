// Answers that appear while one types: after a pause, the newest question is asked, and older ones are called off.

import { Refused } from "./api.js";
import { h, replace, settled } from "./dom.js";

const PAUSE = 250; // milliseconds without a key

/**
 * @typedef {object} Live
 * @property {HTMLElement[]} fields whose input asks anew
 * @property {(signal: AbortSignal) => Promise<any> | null} ask null: there is nothing to ask
 * @property {(found: any) => void} show null where nothing was asked
 * @property {HTMLElement} out where a refusal is said
 * @property {HTMLElement} latency
 */

/** Ask now, and whenever a field changes; gives the way to ask anew. @param {Live} given @returns {() => Promise<void>} */
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
      if (error instanceof DOMException) return; // a newer text is on its way
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
