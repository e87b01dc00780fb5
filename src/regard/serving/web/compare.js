// View of an embedding model: the cosine similarity of two texts.

import { ask } from "./api.js";
import { dot } from "./arithmetic.js";
import { h, replace } from "./dom.js";
import { live } from "./live.js";
import { matrix } from "./matrix.js";
import { exact, short } from "./numbers.js";
import { answering, halves, joined, writing } from "./pane.js";
import { link, note } from "./state.js";

const UNITS = 64; // units of each vector that are drawn

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showCompare(root, app, state) {
  const { about } = app;
  const [first, second] = halves(state.text);
  const limits = { maxlength: Math.floor(app.limits.max_characters / 2), placeholder: "Type here" };
  const one = writing("source", "First text", { ...limits, value: first });
  const other = writing("second", "Second text", { ...limits, value: second });
  const { out, latency, inside, pane } = answering("Similarity");
  replace(root, h("div", { class: "desk" }, one.pane, other.pane), h("div", { class: "likeness" }, pane));
  const again = live({
    fields: [one.field, other.field],
    out,
    latency,
    ask: (signal) => {
      const input = [one.field.value, other.field.value];
      note({ text: joined(input[0], input[1]) });
      inside.href = link({ view: "look" });
      if (!input.every((text) => text.trim())) return null;
      return ask("/v1/embeddings", { model: about.name, input }, signal);
    },
    show: (found) => replace(out, ...(found ? told(found.data) : [h("p", { class: "empty" }, "Enter two texts.")])),
  });
  await again();
  (first && !second ? other : one).field.focus({ preventScroll: true });
}

/** @param {any[]} data */
function told(data) {
  const vectors = data.map((one) => one.embedding);
  const cosine = dot(vectors[0], vectors[1]);
  const width = vectors[0].length;
  const least = Math.min(UNITS, width);
  return [
    h(
      "p",
      { class: "cosine", data: { cosine: String(cosine) } },
      h("span", { class: "figure" }, short(cosine)),
      h("span", { class: "bar" }, h("span", { style: { width: `${100 * Math.max(0, cosine)}%` } })),
    ),
    h(
      "p",
      { class: "note" },
      `Cosine similarity of two vectors of ${width} values: ${exact(cosine)}. 1 means the same direction, 0 orthogonal vectors. What counts as similar differs between models: compare with other texts.`,
    ),
    matrix({
      title: "The two vectors",
      note: `of length 1${least < width ? `; the first ${least} of ${width} units` : ""}`,
      values: vectors.map((vector) => vector.slice(0, least)),
      rows: ["first", "second"],
    }).element,
    data.some((one) => one.truncated) &&
      h("p", { class: "note" }, "A text exceeds the model's maximum length and was truncated."),
  ].filter(Boolean);
}
