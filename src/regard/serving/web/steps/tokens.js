// Text becomes sub-words, sub-words become ids.

import { h, replace } from "../dom.js";
import { say } from "../places.js";

/** What is not a letter of the text. @type {[RegExp, string][]} */
const MARKS = [
  [/^▁/, "▁ is where a word begins"],
  [/Ġ/, "Ġ stands for a space"],
  [/Ċ/, "Ċ for the end of a line"],
  [/^##/, "## goes on with the word before"],
  [/^<0x/, "<0x…> is one byte of a letter that the vocabulary does not have"],
  [/^\[\w+\]$/, "what stands in brackets is not text: where it begins, or ends"],
];

export const tokens = {
  id: "tokens",
  title: "Sub-words and ids",
  section: "§5.1",
  here: () => ["encoder.input", "decoder.input"],
  exists: () => true,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace }) {
    const { outline } = trace;
    const building = h("div", { class: "building", "aria-live": "polite" });
    root.append(
      say(
        "A network reads numbers, so a text is cut into sub-words of a fixed vocabulary of ",
        h("b", {}, outline.model.vocab_size.toLocaleString("en")),
        ", and each is replaced by its place there. Frequent words are whole; rare ones are spelled from parts.",
      ),
    );
    const continues = outline.kind === "continuation";
    if (outline.source) root.append(line("Read", outline.source, outline, building));
    if (outline.target)
      root.append(line(continues ? "Text" : "Written", outline.target, continues ? outline : null, building));
    const pieces = [...(outline.source?.tokens ?? []), ...(outline.target?.tokens ?? [])];
    const marks = MARKS.filter(([mark]) => pieces.some((piece) => mark.test(piece))).map(([, meaning]) => meaning);
    if (marks.length) root.append(h("p", { class: "note marks" }, `${marks.join("; ")}.`));
    root.append(building);
    const long = [...outline.merges].sort((a, b) => b.stages.length - a.stages.length)[0];
    if (long) merged(building, long);
  },
};

/** @param {string} name @param {any} given @param {any} outline where words can be opened @param {HTMLElement} building */
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
            "aria-label": `How ${word.text} is put together`,
            on: { click: () => merged(building, found) },
          },
          pieces,
        )
      : h("span", { class: word.special ? "word special" : "word" }, pieces);
  });
  return h("section", { class: "side" }, h("h3", {}, name), h("div", { class: "tokens" }, words));
}

/** How a word was put together. @param {any} outline @param {any} given @param {any} word */
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
    h("h3", {}, "How ", h("code", {}, merge.word), " is put together"),
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
        ? "Each line merges the pair that was merged earliest when the vocabulary was learned (byte-pair encoding)."
        : "It is one piece from the start.",
    ),
  );
}
