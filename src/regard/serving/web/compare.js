// View of an embedding model: the cosine similarity of two texts.

import { request } from "./api.js";
import { dot } from "./arithmetic.js";
import { h, replace } from "./dom.js";
import { liveRequest } from "./live_request.js";
import { matrix } from "./matrix.js";
import { exact, short } from "./numbers.js";
import { joinPair, resultPane, splitPair, textPane } from "./panes.js";

const UNITS = 64; // units of each vector that are drawn

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showCompare(root, app, state) {
  const { about } = app;
  const [first, second] = splitPair(state.text);
  const limits = { maxlength: Math.floor(app.limits.max_characters / 2), placeholder: "Type here" };
  const firstInput = textPane("source", "First text", { ...limits, value: first });
  const secondInput = textPane("second", "Second text", { ...limits, value: second });
  const { out, latency, pane } = resultPane("Similarity");
  replace(root, h("div", { class: "panes" }, firstInput.pane, secondInput.pane), h("div", { class: "similarity" }, pane));
  const send = liveRequest({
    fields: [firstInput.field, secondInput.field],
    state: () => ({ text: joinPair(firstInput.field.value, secondInput.field.value) }),
    out,
    latency,
    request: (signal) => {
      const input = [firstInput.field.value, secondInput.field.value];
      if (!input.every((text) => text.trim())) return null;
      return request("/v1/embeddings", { model: about.name, input }, signal);
    },
    show: (response) => replace(out, ...(response ? resultElements(response.data) : [h("p", { class: "empty" }, "Enter two texts.")])),
  });
  await send();
  (first && !second ? secondInput : firstInput).field.focus({ preventScroll: true });
}

/** @param {any[]} data */
function resultElements(data) {
  const vectors = data.map((item) => item.embedding);
  const cosine = dot(vectors[0], vectors[1]);
  const width = vectors[0].length;
  const drawn = Math.min(UNITS, width);
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
      note: `of length 1${drawn < width ? `; the first ${drawn} of ${width} units` : ""}`,
      values: vectors.map((vector) => vector.slice(0, drawn)),
      rows: ["first", "second"],
    }).element,
    data.some((item) => item.truncated) &&
      h("p", { class: "note" }, "A text exceeds the model's maximum length and was truncated."),
  ].filter(Boolean);
}
