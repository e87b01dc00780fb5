// Group tokens into words, and mark the confidence of each word.

import { h } from "./dom.js";
import { spelled } from "./spelling.js";

const STARTS = /^[▁Ġ ]/;

/**
 * @param {string[]} tokens @param {number[]} scores log-probabilities
 * @returns {{text: string, tokens: number[], probability: number}[]}
 */
export function wordsOf(tokens, scores) {
  const marked = tokens.some((token) => STARTS.test(token)) || tokens.some((token) => token.startsWith("##"));
  /** @type {{text: string, tokens: number[], score: number}[]} */
  const words = [];
  const texts = spelled(tokens);
  tokens.forEach((token, n) => {
    const starts =
      !marked || STARTS.test(token) || (tokens.some((one) => one.startsWith("##")) && !token.startsWith("##"));
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
    .map(({ text, tokens: some, score }) => ({ text, tokens: some, probability: Math.exp(score) }));
}

/** CSS class for the confidence of a word. @param {number} probability */
export function sureness(probability) {
  return probability > 0.8 ? "sure" : probability > 0.4 ? "fair" : "unsure";
}

/** Legend of the confidence marks, with a hint. @param {string} hint */
export function legend(hint) {
  return h(
    "p",
    { class: "legend" },
    h("span", { class: "sure" }, "confident"),
    h("span", { class: "fair" }, "less confident"),
    h("span", { class: "unsure" }, "uncertain"),
    h("span", {}, hint),
  );
}
