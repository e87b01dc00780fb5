// Requests while the user types: sent after a pause; older ones are aborted.

import { errorMessage, RequestError } from "./api.js";
import { debounce, replace } from "./dom.js";
import { setDraft, updateUrl } from "./state.js";

const PAUSE = 250; // milliseconds without input

/**
 * @typedef {object} LiveRequest
 * @property {HTMLElement[]} fields an input event in any of them sends a new request
 * @property {() => Partial<import("./state.js").State>} state the input, for the URL
 * @property {(signal: AbortSignal) => Promise<any> | null} request null: there is nothing to request
 * @property {(response: any) => void} show called with the response, or null if nothing was requested
 * @property {() => void} [clear] removes what else belongs to the previous response, after an error
 * @property {HTMLElement} out element that shows errors
 * @property {HTMLElement} latency
 */

/** Send a request whenever a field changes; returns a function that sends one now. @param {LiveRequest} options @returns {() => Promise<void>} */
export function liveRequest({ fields, state, request, show, clear = () => {}, out, latency }) {
  let latest = /** @type {AbortController | null} */ (null);
  const send = async () => {
    latest?.abort();
    const controller = new AbortController();
    latest = controller;
    updateUrl(state());
    const began = performance.now();
    try {
      const response = await request(controller.signal);
      if (latest !== controller) return;
      replace(latency, response && time(performance.now() - began, response.timings?.compute_ms));
      show(response);
    } catch (error) {
      if (error instanceof DOMException) return; // aborted for a newer text
      if (!(error instanceof RequestError)) throw error;
      clear();
      replace(latency);
      replace(out, errorMessage(error, send));
    }
  };
  const sendLater = debounce(() => {
    if (out.isConnected) send(); // otherwise another view is shown, and the URL and the draft are its own
  }, PAUSE);
  for (const field of fields) {
    field.addEventListener("input", () => setDraft(state()));
    field.addEventListener("input", sendLater);
  }
  return send;
}

/** @param {number} all @param {number} [compute] milliseconds */
function time(all, compute) {
  const model =
    compute === undefined ? "" : `, of which ${compute < 10 ? compute.toFixed(1) : Math.round(compute)} ms in the model`;
  return `${Math.round(all)} ms${model}`;
}

/**
 * Limit calls that come faster than their responses: show the latest one and skip those in between.
 * @template {any[]} Args @template Answer
 * @param {(...args: Args) => Promise<Answer>} request
 * @param {(answer: Answer, ...args: Args) => void} show
 * @returns {(...args: Args) => Promise<void>} resolves when the latest response has been shown
 */
export function latestOnly(request, show) {
  let pending = /** @type {Args | null} */ (null);
  let running = /** @type {Promise<void> | null} */ (null);
  const run = async () => {
    while (pending) {
      const args = pending;
      pending = null;
      const answer = await request(...args);
      if (!pending) show(answer, ...args);
    }
  };
  return (...args) => {
    pending = args;
    running ??= run().finally(() => {
      running = null;
    });
    return running;
  };
}
