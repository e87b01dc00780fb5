// Step: text to subwords to ids.

import { h, replace } from "../dom.js";
import { paragraph } from "../locations.js";

/** Markers in tokens that are not characters of the text. @type {[RegExp, string][]} */
const MARKS = [
  [/^▁/, "▁ marks the start of a word"],
  [/Ġ/, "Ġ stands for a space"],
  [/Ċ/, "Ċ stands for a line break"],
  [/^##/, "## continues the previous word"],
  [/^<0x/, "<0x…> is one byte of a character that is not in the vocabulary"],
  [/^\[\w+\]$/, "tokens in brackets are special tokens, such as the start and the end"],
];

export const tokens = {
  id: "tokens",
  title: "Subwords and ids",
  section: "§5.1",
  here: () => ["encoder.input", "decoder.input"],
  exists: () => true,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace }) {
    const { outline } = trace;
    const mergesElement = h("div", { class: "merges", "aria-live": "polite" });
    root.append(
      paragraph(
        "The text is split into subwords from a fixed vocabulary of ",
        h("b", {}, outline.model.vocab_size.toLocaleString("en")),
        " tokens, and each is replaced by its id. Frequent words are single tokens; rare words are split into several.",
      ),
    );
    const continues = outline.kind === "continuation";
    if (outline.source) root.append(line("Input", outline.source, outline, mergesElement));
    if (outline.target)
      root.append(line(continues ? "Text" : "Output", outline.target, continues ? outline : null, mergesElement));
    const pieces = [...(outline.source?.tokens ?? []), ...(outline.target?.tokens ?? [])];
    const marks = MARKS.filter(([mark]) => pieces.some((piece) => mark.test(piece))).map(([, meaning]) => meaning);
    if (marks.length) root.append(h("p", { class: "note marks" }, `${marks.join("; ")}.`));
    root.append(mergesElement);
    const long = [...outline.merges].sort((a, b) => b.stages.length - a.stages.length)[0];
    if (long) showMerges(mergesElement, long);
  },
};

/** @param {string} name @param {any} side @param {any} outline with the merges of words; null: words are not selectable @param {HTMLElement} mergesElement */
function line(name, side, outline, mergesElement) {
  const words = side.words.map((/** @type {any} */ word) => {
    const pieces = word.tokens.map((/** @type {number} */ n) =>
      h("span", { class: "token" }, h("b", { dir: "auto" }, side.tokens[n]), h("i", {}, side.ids[n])),
    );
    const wordMerges = outline && merge(outline, side, word);
    return wordMerges
      ? h(
          "button",
          {
            type: "button",
            class: "word",
            "aria-label": `Merges of ${word.text}`,
            on: { click: () => showMerges(mergesElement, wordMerges) },
          },
          pieces,
        )
      : h("span", { class: word.special ? "word special" : "word" }, pieces);
  });
  return h("section", { class: "side" }, h("h3", {}, name), h("div", { class: "tokens" }, words));
}

/** The BPE merges of a word. @param {any} outline @param {any} side @param {any} word */
function merge(outline, side, word) {
  if (word.special) return null;
  const pieces = word.tokens.map((/** @type {number} */ n) => side.tokens[n]).join("");
  return (
    outline.merges.find(
      (/** @type {any} */ piece) => piece.word === pieces || pieces.startsWith(piece.word) || piece.word.startsWith(pieces),
    ) ?? null
  );
}

/** @param {HTMLElement} mergesElement @param {any} merge */
function showMerges(mergesElement, merge) {
  replace(
    mergesElement,
    h("h3", {}, "Merges of ", h("code", {}, merge.word)),
    h(
      "ol",
      { class: "stages" },
      merge.stages.map((/** @type {string[]} */ stage) =>
        h(
          "li",
          {},
          stage.map((piece) => h("code", { class: "piece", dir: "auto" }, piece)),
        ),
      ),
    ),
    h(
      "p",
      { class: "note" },
      merge.stages.length > 1
        ? "Each line merges the adjacent pair that was learned earliest (byte-pair encoding)."
        : "It is a single token without merges.",
    ),
  );
}
