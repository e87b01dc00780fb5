// View of a masked language model: each mask shows its best prediction; selecting it lists the others.

import { request } from "./api.js";
import { candidates } from "./candidates.js";
import { h, replace } from "./dom.js";
import { liveRequest } from "./live_request.js";
import { resultPane, textPane } from "./panes.js";
import { confidenceClass, confidenceLegend } from "./words.js";

const MASK = "[MASK]";
const TOP_K = 10; // predictions per mask

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showFill(root, app, state) {
  const { about } = app;
  const input = textPane("source", "Text", {
    maxlength: app.limits.max_characters,
    placeholder: `Type here, with ${MASK} for a missing word`,
    value: state.text,
  });
  const { field } = input;
  const maskButton = h("button", { type: "button", id: "insert-mask", on: { click: () => insertMask() } }, `Insert ${MASK}`);
  input.pane.append(h("div", { class: "pane-footer" }, maskButton));
  const { out, latency, pane } = resultPane("Predicted text");
  const detail = h("div", { class: "detail", "aria-live": "polite" });
  replace(
    root,
    h("div", { class: "panes" }, input.pane, pane),
    confidenceLegend("Select a word to see other predictions.", out),
    detail,
  );
  const send = liveRequest({
    fields: [field],
    state: () => ({ text: field.value }),
    out,
    latency,
    request: (signal) => {
      const text = field.value;
      replace(detail);
      if (!text.includes(MASK)) return null;
      return request("/v1/fill", { text, model: about.name, top_k: TOP_K }, signal);
    },
    show: (response) => {
      if (!response)
        return replace(
          out,
          h(
            "p",
            { class: "empty" },
            field.value.trim() ? `This text contains no ${MASK}.` : "Enter a text.",
          ),
        );
      const [filled] = response.results;
      const parts = filled.source.split(MASK);
      if (parts.length - 1 !== filled.masks.length) return replace(out, h("p", { dir: "auto" }, filled.text)); // the text has other mask tokens too
      replace(
        out,
        h(
          "p",
          { dir: "auto" },
          parts.flatMap((/** @type {string} */ part, /** @type {number} */ n) =>
            n < filled.masks.length ? [part, wordButton(filled.masks[n], n)] : [part],
          ),
        ),
      );
      choose(filled.masks[0], 0);
    },
  });
  const wordButton = (/** @type {any[]} */ guesses, /** @type {number} */ n) =>
    h(
      "button",
      {
        type: "button",
        class: `output-word filled ${confidenceClass(guesses[0].probability)}`,
        data: { probability: String(guesses[0].probability) },
        on: { click: () => choose(guesses, n) },
      },
      guesses[0].text || guesses[0].token,
    );
  const choose = (/** @type {any[]} */ guesses, /** @type {number} */ n) => {
    [...out.querySelectorAll(".filled")].forEach((button, m) => button.setAttribute("aria-pressed", String(m === n)));
    const tokens = guesses.map(({ text, token, probability }, id) => ({ id, token: text || token, probability }));
    replace(
      detail,
      h(
        "h2",
        {},
        out.querySelectorAll(".filled").length > 1 ? `Predictions for mask ${n + 1}` : "Predictions",
      ),
      candidates(tokens, 0, (id) => replaceMask(n, guesses[id].text)),
      h("p", { class: "note" }, "Select one to insert it into the text; the other masks are predicted again."),
    );
  };
  /** Replace a mask with a word. */
  const replaceMask = (/** @type {number} */ n, /** @type {string} */ text) => {
    const parts = field.value.split(MASK);
    field.value = parts.slice(0, n + 1).join(MASK) + text + parts.slice(n + 1).join(MASK);
    send();
  };
  /** Insert a mask at the cursor. */
  const insertMask = () => {
    field.setRangeText(MASK, field.selectionStart, field.selectionEnd, "end");
    field.focus();
    send();
  };
  await send();
  field.focus({ preventScroll: true });
}
