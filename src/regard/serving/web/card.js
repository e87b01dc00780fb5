// The model view: description, size and model card.

import { abilityOf } from "./abilities.js";
import { h, replace } from "./dom.js";
import { abbreviateCount } from "./numbers.js";

/** @param {HTMLElement} root @param {any} app */
export async function showCard(root, app) {
  const { about } = app;
  const { settings } = about;
  /** @type {[string, any][]} */
  const facts = [
    ["Parameters", abbreviateCount(about.parameters)],
    ["Layers", settings.layers],
    ["Width", settings.width],
    ["Heads", settings.heads],
    ["Vocabulary", settings.vocab_size?.toLocaleString("en")],
  ];
  replace(
    root,
    h("p", { class: "kind" }, about.family),
    h("h1", {}, about.name),
    h("p", { class: "paragraph" }, abilityOf(about).description(about)),
    h(
      "dl",
      { class: "figures" },
      facts.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    ),
    ...(about.card ? renderMarkdown(about.card) : []),
  );
}

/** Render the model card: paragraphs, headings, tables and code blocks of Markdown. @param {string} card */
function renderMarkdown(card) {
  return card
    .split(/\n{2,}/)
    .slice(1)
    .map((block) => {
      const heading = /^(#{2,4}) (.*)/.exec(block);
      if (heading) return h("h2", {}, heading[2]);
      if (block.startsWith("|")) return table(block);
      if (block.startsWith("```")) return h("pre", { tabindex: "0" }, block.replace(/^```\w*\n|```$/g, ""));
      return h("p", { class: "paragraph" }, block.replaceAll("`", ""));
    });
}

/** @param {string} block */
function table(block) {
  const rows = block
    .split("\n")
    .filter((line) => line.startsWith("|") && !/^\|[-| :]+\|$/.test(line))
    .map((line) =>
      line
        .slice(1, -1)
        .split("|")
        .map((cell) => cell.trim().replaceAll("`", "")),
    );
  const [head, ...rest] = rows;
  return h(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": head.join(", ") },
    h(
      "table",
      {},
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          head.map((cell) => h("th", { scope: "col" }, cell)),
        ),
      ),
      h(
        "tbody",
        {},
        rest.map((row) =>
          h(
            "tr",
            {},
            row.map((cell) => h("td", {}, cell)),
          ),
        ),
      ),
    ),
  );
}
