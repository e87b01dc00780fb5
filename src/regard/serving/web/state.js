// The state of the page, kept in the URL hash: every view can be linked to, and back and forward work.

/**
 * @typedef {object} State
 * @property {string} view use, chat, look, hand or card
 * @property {string} step
 * @property {string} model
 * @property {string} text
 * @property {string} at a module, as decoder.1.cross_attention
 * @property {number} head
 * @property {number} row
 * @property {number} column
 * @property {number} time the decoding step
 * @property {number} node selected node of the search tree; 0 (the root): none
 * @property {number} sentence the traced sentence of the text; as many as there are: all as one
 * @property {number} word selected word of the translation, counted from 1; 0: none
 * @property {number} special 1: names of special tokens in the text are these tokens, as in a rendered chat
 * @property {string} letter q, k or v
 * @property {string} edits of the worked example, as X.0.1:3, separated by commas
 * @property {string} off heads and layers that are switched off, as decoder.1.cross_attention[2], separated by commas
 */

const NUMBERS = ["head", "row", "column", "time", "node", "word", "sentence", "special"];
const TEXTS = ["model", "text", "at", "letter", "off", "edits"];
const VIEWS = ["use", "chat", "look", "hand", "card"];

/** Selections that are reset when the text changes. */
export const RESET_SELECTION = { row: 0, column: 0, time: 0, node: 0, word: 0, sentence: 0 };

/** @returns {State} */
export function readState() {
  const [path, ...query] = location.hash.replace(/^#/, "").split("?");
  const [view, step = ""] = path.split("/");
  const parameters = new URLSearchParams(query.join("?")); // a text in a link may end with a question mark
  /** @type {any} */
  const state = { view: VIEWS.includes(view) ? view : "use", step };
  for (const name of TEXTS) state[name] = parameters.get(name) ?? "";
  for (const name of NUMBERS) state[name] = Math.max(0, Number.parseInt(parameters.get(name) ?? "0", 10) || 0);
  return state;
}

/** The URL hash of a state. @param {State} state */
export function stateHash(state) {
  const query = new URLSearchParams();
  for (const name of [...TEXTS, ...NUMBERS]) {
    const value = /** @type {any} */ (state)[name];
    if (value) query.set(name, String(value));
  }
  const parameters = query.toString();
  return `#${state.view}${state.view === "look" && state.step ? `/${state.step}` : ""}${parameters ? `?${parameters}` : ""}`;
}

/** Input that is not in the URL yet; links have it already. @type {Partial<State>} */
let draft = {};

/** The URL hash of the current state with changes. @param {Partial<State>} change */
function link(change) {
  return stateHash({ ...readState(), ...draft, ...change });
}

/** Attributes of a link to the current state with changes; it stays up to date when the state changes. @param {Partial<State>} change */
export function linkTo(change) {
  return { href: link(change), data: { change: JSON.stringify(change) } };
}

/** Keep input for the links until it is in the URL. @param {Partial<State>} change */
export function setDraft(change) {
  draft = change;
  refreshLinks();
}

function refreshLinks() {
  for (const element of document.querySelectorAll("a[data-change]"))
    element.setAttribute("href", link(JSON.parse(element.getAttribute("data-change") ?? "{}")));
}

/** Change the state; the page shows the new view. @param {Partial<State>} change */
export function navigate(change) {
  location.hash = link(change);
}

/** Change the state in the URL without a history entry and without a new view. @param {Partial<State>} change */
export function updateUrl(change) {
  for (const name of Object.keys(change)) delete (/** @type {any} */ (draft)[name]);
  history.replaceState(null, "", stateHash({ ...readState(), ...change }));
  refreshLinks();
}
