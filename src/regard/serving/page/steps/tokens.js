// Text becomes sub-words, sub-words become ids.

import { h, replace } from "../dom.js";
import { say } from "../places.js";

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
        h("b", {}, outline.model.vocabulary.toLocaleString("en")),
        ", and each is replaced by its place there. Frequent words are whole; rare ones are spelled from parts.",
      ),
    );
    if (outline.source) root.append(line("Read", outline.source, outline, building));
    if (outline.target)
      root.append(line(outline.kind === "continuation" ? "Text" : "Written", outline.target, null, building));
    root.append(building);
    if (outline.merges.length) merged(building, outline.merges[0]);
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
