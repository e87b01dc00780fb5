// View of a classifier: the probabilities of its labels, updated while the user types.

import { request } from "./api.js";
import { h, replace } from "./dom.js";
import { liveRequest } from "./live_request.js";
import { percent } from "./numbers.js";
import { joinPair, resultPane, splitPair, textPane } from "./panes.js";

const SHOWN = 15; // labels shown at once; the others are collapsed

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showClassify(root, app, state) {
  const { about } = app;
  const [first, second] = splitPair(state.text);
  const limits = { maxlength: app.limits.max_characters };
  const input = textPane("source", "Text", { ...limits, placeholder: "Type here", value: first });
  const { field: secondField } = textPane("second", "", { ...limits, rows: 2, placeholder: "Type here", value: second });
  const pair = h(
    "details",
    { class: "pair" },
    h("summary", {}, "Pair of texts"),
    h("label", { for: "second" }, "Second text"),
    secondField,
  );
  pair.open = Boolean(second);
  input.pane.append(pair);
  const { out, latency, pane } = resultPane("Label");
  replace(root, h("div", { class: "panes" }, input.pane, pane));
  const send = liveRequest({
    fields: [input.field, secondField],
    state: () => ({ text: joinPair(input.field.value, secondField.value) }),
    out,
    latency,
    request: (signal) => {
      const [text, next] = [input.field.value, secondField.value];
      if (!text.trim()) return null;
      return request("/v1/classify", { text, model: about.name, ...(next.trim() ? { second: next } : {}) }, signal);
    },
    show: (response) => replace(out, ...(response ? resultElements(response.classifications[0]) : waiting(about))),
  });
  await send();
  input.field.focus({ preventScroll: true });
}

/** Shown while there is no text. @param {any} about */
function waiting(about) {
  const { labels } = about.settings.head;
  const names = labels.slice(0, SHOWN).join(", ");
  return [
    h("p", { class: "empty" }, `This model has ${labels.length} labels: ${names}${labels.length > SHOWN ? ", …" : ""}.`),
  ];
}

/** @param {any} response */
function resultElements(response) {
  const bars = response.labels.map((/** @type {any} */ label, /** @type {number} */ n) => bar(label, n === 0));
  const rest = bars.slice(SHOWN);
  return [
    h("p", { class: "top-label", dir: "auto" }, response.label),
    h("ol", { class: "candidates labels" }, bars.slice(0, SHOWN)),
    rest.length > 0 &&
      h("details", {}, h("summary", {}, `${rest.length} more`), h("ol", { class: "candidates labels" }, rest)),
    response.truncated && h("p", { class: "note" }, "The text exceeds the model's maximum length and was truncated."),
  ].filter(Boolean);
}

/** @param {any} label @param {boolean} chosen */
function bar({ label, probability }, chosen) {
  return h(
    "li",
    {},
    h(
      "div",
      { class: chosen ? "candidate chosen" : "candidate", data: { label, probability: String(probability) } },
      h("span", { class: "name", dir: "auto" }, label),
      h("span", { class: "bar" }, h("span", { style: { width: `${100 * probability}%` } })),
      h("span", { class: "percentage" }, percent(probability)),
    ),
  );
}
