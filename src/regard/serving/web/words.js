// Tokens put together to words, for tokenizers that mark where one begins.

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

/** How sure: the class of a word. @param {number} probability */
export function sureness(probability) {
  return probability > 0.8 ? "sure" : probability > 0.4 ? "fair" : "unsure";
}

/** What the marks of sureness mean, and what can be done with a word. @param {string} hint */
export function legend(hint) {
  return h(
    "p",
    { class: "legend" },
    h("span", { class: "sure" }, "sure"),
    h("span", { class: "fair" }, "less sure"),
    h("span", { class: "unsure" }, "unsure"),
    h("span", {}, hint),
  );
}
