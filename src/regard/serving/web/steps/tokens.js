// Step: text to subwords to ids.

import { h, replace } from "../dom.js";
import { say } from "../places.js";

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
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace }) {
    const { outline } = trace;
    const building = h("div", { class: "building", "aria-live": "polite" });
    root.append(
      say(
        "The text is split into subwords from a fixed vocabulary of ",
        h("b", {}, outline.model.vocab_size.toLocaleString("en")),
        " tokens, and each is replaced by its id. Frequent words are single tokens; rare words are split into several.",
      ),
    );
    const continues = outline.kind === "continuation";
    if (outline.source) root.append(line("Input", outline.source, outline, building));
    if (outline.target)
      root.append(line(continues ? "Text" : "Output", outline.target, continues ? outline : null, building));
    const pieces = [...(outline.source?.tokens ?? []), ...(outline.target?.tokens ?? [])];
    const marks = MARKS.filter(([mark]) => pieces.some((piece) => mark.test(piece))).map(([, meaning]) => meaning);
    if (marks.length) root.append(h("p", { class: "note marks" }, `${marks.join("; ")}.`));
    root.append(building);
    const long = [...outline.merges].sort((a, b) => b.stages.length - a.stages.length)[0];
    if (long) merged(building, long);
  },
};

/** @param {string} name @param {any} given @param {any} outline with the merges of words; null: words are not selectable @param {HTMLElement} building */
function line(name, given, outline, building) {
  const words = given.words.map((/** @type {any} */ word) => {
    const pieces = word.tokens.map((/** @type {number} */ n) =>
      h("span", { class: "token" }, h("b", {}, given.tokens[n]), h("i", {}, given.ids[n])),
    );
    const found = outline && merge(outline, given, word);
    return found
      ? h(
          "button",
          {
            type: "button",
            class: "word",
            "aria-label": `Merges of ${word.text}`,
            on: { click: () => merged(building, found) },
          },
          pieces,
        )
      : h("span", { class: word.special ? "word special" : "word" }, pieces);
  });
  return h("section", { class: "side" }, h("h3", {}, name), h("div", { class: "tokens" }, words));
}

/** The BPE merges of a word. @param {any} outline @param {any} given @param {any} word */
function merge(outline, given, word) {
  if (word.special) return null;
  const spelled = word.tokens.map((/** @type {number} */ n) => given.tokens[n]).join("");
  return (
    outline.merges.find(
      (/** @type {any} */ one) => one.word === spelled || spelled.startsWith(one.word) || one.word.startsWith(spelled),
    ) ?? null
  );
}

/** @param {HTMLElement} building @param {any} merge */
function merged(building, merge) {
  replace(
    building,
    h("h3", {}, "Merges of ", h("code", {}, merge.word)),
    h(
      "ol",
      { class: "stages" },
      merge.stages.map((/** @type {string[]} */ stage) =>
        h(
          "li",
          {},
          stage.map((one) => h("code", { class: "piece" }, one)),
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
