// Where the reader is, kept in the address: any view can be linked to, and the browser's buttons work.

/**
 * @typedef {object} State
 * @property {string} view use, look, hand or card
 * @property {string} step
 * @property {string} model
 * @property {string} text
 * @property {string} at a place, as decoder.1.cross_attention
 * @property {number} head
 * @property {number} row
 * @property {number} column
 * @property {number} time the decoding step
 * @property {number} node of the search's tree; 0 is its root: none is chosen
 * @property {number} word of the translation, counted from 1; 0: none is chosen
 * @property {string} letter q, k or v
 * @property {string} edits to the example by hand, as X.0.1:3, with commas between
 * @property {string} off what is switched off, as decoder.1.cross_attention[2], with commas between
 */

const NUMBERS = ["head", "row", "column", "time", "node", "word"];
const TEXTS = ["model", "text", "at", "letter", "off", "edits"];
const VIEWS = ["use", "look", "hand", "card"];

/** What is forgotten when there is another text. */
export const AFRESH = { row: 0, column: 0, time: 0, node: 0, word: 0 };

/** @returns {State} */
export function read() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const [view, step = ""] = path.split("/");
  const given = new URLSearchParams(query);
  /** @type {any} */
  const state = { view: VIEWS.includes(view) ? view : "use", step };
  for (const name of TEXTS) state[name] = given.get(name) ?? "";
  for (const name of NUMBERS) state[name] = Math.max(0, Number.parseInt(given.get(name) ?? "0", 10) || 0);
  return state;
}

/** The address of a state. @param {State} state */
export function hash(state) {
  const query = new URLSearchParams();
  for (const name of [...TEXTS, ...NUMBERS]) {
    const value = /** @type {any} */ (state)[name];
    if (value) query.set(name, String(value));
  }
  const asked = query.toString();
  return `#${state.view}${state.view === "look" && state.step ? `/${state.step}` : ""}${asked ? `?${asked}` : ""}`;
}

/** The link to what differs from here. @param {Partial<State>} change */
export function link(change) {
  return hash({ ...read(), ...change });
}

/** Go there; the page follows. @param {Partial<State>} change */
export function go(change) {
  location.hash = link(change);
}

/** Note where the reader is, without a new page in the history. @param {Partial<State>} change */
export function note(change) {
  history.replaceState(null, "", link(change));
}
