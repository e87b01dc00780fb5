// Group tokens into words, and mark the confidence of each word.

import { h, replace } from "./dom.js";
import { percent } from "./numbers.js";

const WORD_START = /^[▁Ġ ]/;

/**
 * @param {string[]} tokens @param {number[]} scores log-probabilities
 * @returns {{text: string, tokens: number[], probability: number}[]}
 */
export function groupTokens(tokens, scores) {
  const marked = tokens.some((token) => WORD_START.test(token)) || tokens.some((token) => token.startsWith("##"));
  /** @type {{text: string, tokens: number[], score: number}[]} */
  const words = [];
  const texts = detokenize(tokens);
  tokens.forEach((token, n) => {
    const starts =
      !marked || WORD_START.test(token) || (tokens.some((piece) => piece.startsWith("##")) && !token.startsWith("##"));
    const text = texts[n].replace(/^ /, "").replace(/^##/, "");
    const last = words.at(-1);
    if (starts || !last) words.push({ text, tokens: [n], score: scores[n] ?? 0 });
    else {
      last.text += text;
      last.tokens.push(n);
      last.score += scores[n] ?? 0;
    }
  });
  return words
    .filter((word) => word.text)
    .map(({ text, tokens: indices, score }) => ({ text, tokens: indices, probability: Math.exp(score) }));
}

/** CSS class for the confidence of a word. @param {number} probability */
export function confidenceClass(probability) {
  return probability > 0.8 ? "confident" : probability > 0.4 ? "less-confident" : "uncertain";
}

/**
 * Legend of the confidence marks, with a hint. While a word of the output is hovered or focused, its probability takes the place of
 * the hint: a tooltip would cover the sentence.
 * @param {string} hint @param {HTMLElement} output
 */
export function confidenceLegend(hint, output) {
  const element = h("span", { class: "hint" }, hint);
  const show = (/** @type {any} */ { target }) => {
    const word = target.closest("[data-probability]");
    replace(element, word ? `${word.textContent}: ${word.dataset.tag ? `${word.dataset.tag}, ` : ""}${percent(Number(word.dataset.probability))}` : hint);
  };
  for (const event of ["pointerover", "focusin"]) output.addEventListener(event, show);
  for (const event of ["pointerleave", "focusout"]) output.addEventListener(event, () => replace(element, hint));
  return h(
    "p",
    { class: "legend" },
    h("span", { class: "confident" }, "confident"),
    h("span", { class: "less-confident" }, "less confident"),
    h("span", { class: "uncertain" }, "uncertain"),
    element,
  );
}

const PRINTABLE = /** @type {[number, number][]} */ ([
  [33, 126],
  [161, 172],
  [174, 255],
]); // bytes that byte-level vocabularies represent as themselves; the others are mapped to 256 and above, in order

const CHARACTER_TO_BYTE = new Map();
for (let byte = 0, next = 256; byte < 256; byte += 1)
  CHARACTER_TO_BYTE.set(String.fromCharCode(PRINTABLE.some(([from, to]) => byte >= from && byte <= to) ? byte : next++), byte);

/** The text of each token, for byte-level and SentencePiece vocabularies. @param {string[]} tokens @returns {string[]} a character encoded by several tokens belongs to the last of them */
export function detokenize(tokens) {
  const decoder = new TextDecoder();
  if (isByteLevel(tokens)) return tokens.map((token) => decoder.decode(toBytes(token), { stream: true }));
  return tokens.map((token) => {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
    return byte ? decoder.decode(Uint8Array.of(Number.parseInt(byte[1], 16)), { stream: true }) : token.replaceAll("▁", " ");
  });
}

/** Whether tokens are byte-level: all characters map to bytes that are valid UTF-8. @param {string[]} tokens */
function isByteLevel(tokens) {
  const all = tokens.join("");
  if (![...all].every((letter) => CHARACTER_TO_BYTE.has(letter))) return false;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(toBytes(all), { stream: true });
    return true;
  } catch {
    return false;
  }
}

/** @param {string} token */
function toBytes(token) {
  return Uint8Array.from([...token].map((letter) => CHARACTER_TO_BYTE.get(letter)));
}
