// View of a tagger: every word with its tag, words of one span grouped.

import { request } from "./api.js";
import { h, replace } from "./dom.js";
import { dataTable } from "./figure.js";
import { liveRequest } from "./live_request.js";
import { percent } from "./numbers.js";
import { resultPane, textPane } from "./panes.js";
import { confidenceClass, confidenceLegend } from "./words.js";

const COLORS = 6;
const OUTSIDE = "O"; // tag of words outside all spans

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showTag(root, app, state) {
  const { about } = app;
  const input = textPane("source", "Sentence", {
    maxlength: app.limits.max_characters,
    placeholder: "Type here",
    value: state.text,
  });
  const splitPunctuation = h("input", { id: "split-punctuation", type: "checkbox", checked: true });
  input.pane.append(h("label", { class: "check", for: "split-punctuation" }, splitPunctuation, "Split off punctuation"));
  const { out, latency, pane } = resultPane("Tags");
  replace(root, h("div", { class: "panes" }, input.pane, pane), confidenceLegend("The table lists the probability of each tag.", out));
  const labels = /** @type {string[]} */ (about.settings.head.labels);
  const kinds = [...new Set(labels.filter((label) => label !== OUTSIDE).map(spanType))];
  const send = liveRequest({
    fields: [input.field, splitPunctuation],
    state: () => ({ text: input.field.value }),
    out,
    latency,
    request: (signal) => {
      const text = input.field.value;
      if (!text.trim()) return null;
      const fields = { text: text.split("\n"), model: about.name, split_punctuation: splitPunctuation.checked };
      return request("/v1/tag", fields, signal);
    },
    show: (response) =>
      replace(
        out,
        ...(response
          ? [...response.sentences.map((/** @type {any} */ sentence) => tagged(sentence, kinds)), table(response.sentences)]
          : [h("p", { class: "empty" }, `This model has ${labels.length} tags: ${labels.join(", ")}.`)]),
      ),
  });
  await send();
  input.field.focus({ preventScroll: true });
}

/** Span type of a tag: PER for B-PER and I-PER, NOUN for NOUN. @param {string} tag */
function spanType(tag) {
  return tag.replace(/^[BI]-/, "");
}

/** @param {any} sentence @param {string[]} kinds */
function tagged({ words, tags, probabilities, spans }, kinds) {
  /** @type {Map<number, any>} */
  const starts = new Map(spans.map((/** @type {any} */ span) => [span.words[0], span]));
  const parts = [];
  for (let n = 0; n < words.length;) {
    const span = starts.get(n);
    const after = span ? span.words[1] : n + 1;
    const inside = words.slice(n, after).map((/** @type {string} */ word, /** @type {number} */ m) =>
      h(
        "span",
        {
          class: "token",
          data: { tag: tags[n + m], probability: String(probabilities[n + m]) },
        },
        h("b", { class: confidenceClass(probabilities[n + m]), dir: "auto" }, word),
      ),
    );
    const outside = tags[n] === OUTSIDE;
    const kind = span?.label ?? spanType(tags[n]);
    parts.push(
      outside
        ? h("span", { class: "word outside" }, inside)
        : h(
            "span",
            { class: `word tagged k${kinds.indexOf(kind) % COLORS}` },
            h("span", { class: "span-words" }, inside),
            h("i", { class: "tag" }, kind),
          ),
    );
    n = after;
  }
  return h("div", { class: "tokens sentence", dir: "auto" }, parts);
}

/** The same as a table. @param {any[]} sentences */
function table(sentences) {
  const rows = sentences.flatMap(({ words, tags, probabilities }) =>
    words.map((/** @type {string} */ word, /** @type {number} */ n) => [word, tags[n], percent(probabilities[n])]),
  );
  return h(
    "details",
    { class: "table-details" },
    h("summary", {}, "As a table"),
    dataTable("tags", { head: ["word", "tag", "probability"], rows }),
  );
}
