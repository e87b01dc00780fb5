// View of a classifier: the probabilities of its labels, updated while the user types.

import { ask } from "./api.js";
import { h, replace } from "./dom.js";
import { live } from "./live.js";
import { percent } from "./numbers.js";
import { answering, halves, joined, writing } from "./pane.js";
import { link, note } from "./state.js";

const SHOWN = 15; // labels shown at once; the others are collapsed

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showClassify(root, app, state) {
  const { about } = app;
  const [first, second] = halves(state.text);
  const limits = { maxlength: app.limits.max_characters };
  const one = writing("source", "Text", { ...limits, placeholder: "Type here", value: first });
  const { field: beside } = writing("second", "", { ...limits, rows: 2, placeholder: "Type here", value: second });
  const pair = h(
    "details",
    { class: "pair" },
    h("summary", {}, "Pair of texts"),
    h("label", { for: "second" }, "Second text"),
    beside,
  );
  pair.open = Boolean(second);
  one.pane.append(pair);
  const { out, latency, inside, pane } = answering("Label");
  replace(root, h("div", { class: "desk" }, one.pane, pane));
  const again = live({
    fields: [one.field, beside],
    out,
    latency,
    ask: (signal) => {
      const [text, next] = [one.field.value, beside.value];
      note({ text: joined(text, next) });
      inside.href = link({ view: "look" });
      if (!text.trim()) return null;
      return ask("/v1/classify", { text, model: about.name, ...(next.trim() ? { second: next } : {}) }, signal);
    },
    show: (found) => replace(out, ...(found ? told(found.classifications[0]) : waiting(about))),
  });
  await again();
  one.field.focus({ preventScroll: true });
}

/** Shown while there is no text. @param {any} about */
function waiting(about) {
  const { labels } = about.settings.head;
  const some = labels.slice(0, SHOWN).join(", ");
  return [
    h("p", { class: "empty" }, `This model has ${labels.length} labels: ${some}${labels.length > SHOWN ? ", …" : ""}.`),
  ];
}

/** @param {any} found */
function told(found) {
  const bars = found.labels.map((/** @type {any} */ one, /** @type {number} */ n) => bar(one, n === 0));
  const rest = bars.slice(SHOWN);
  return [
    h("p", { class: "verdict-label" }, found.label),
    h("ol", { class: "candidates labels" }, bars.slice(0, SHOWN)),
    rest.length > 0 &&
      h("details", {}, h("summary", {}, `${rest.length} more`), h("ol", { class: "candidates labels" }, rest)),
    found.truncated && h("p", { class: "note" }, "The text exceeds the model's maximum length and was truncated."),
  ].filter(Boolean);
}

/** @param {any} one @param {boolean} chosen */
function bar({ label, probability }, chosen) {
  return h(
    "li",
    {},
    h(
      "div",
      { class: chosen ? "candidate chosen" : "candidate", data: { label, probability: String(probability) } },
      h("span", { class: "name" }, label),
      h("span", { class: "bar" }, h("span", { style: { width: `${100 * probability}%` } })),
      h("span", { class: "share" }, percent(probability)),
    ),
  );
}
