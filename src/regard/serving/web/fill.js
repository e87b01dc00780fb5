// View of a masked language model: each mask shows its best prediction; selecting it lists the others.

import { ask } from "./api.js";
import { candidates } from "./candidates.js";
import { h, replace } from "./dom.js";
import { live } from "./live.js";
import { percent } from "./numbers.js";
import { answering, writing } from "./pane.js";
import { link, note } from "./state.js";
import { legend, sureness } from "./words.js";

const MASK = "[MASK]";
const BEST = 10; // predictions per mask

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showFill(root, app, state) {
  const { about } = app;
  const one = writing("source", "Text", {
    maxlength: app.limits.max_characters,
    placeholder: `Type here, with ${MASK} for a missing word`,
    value: state.text,
  });
  const { field } = one;
  const hole = h("button", { type: "button", id: "hole", on: { click: () => insert() } }, `Insert ${MASK}`);
  one.pane.append(h("div", { class: "foot" }, hole));
  const { out, latency, inside, pane } = answering("Predicted text");
  const detail = h("div", { class: "detail", "aria-live": "polite" });
  replace(
    root,
    h("div", { class: "desk" }, one.pane, pane),
    legend("Select a word to see other predictions."),
    detail,
  );
  const again = live({
    fields: [field],
    out,
    latency,
    ask: (signal) => {
      const text = field.value;
      note({ text });
      inside.href = link({ view: "look" });
      replace(detail);
      if (!text.includes(MASK)) return null;
      return ask("/v1/fill", { text, model: about.name, top_k: BEST }, signal);
    },
    show: (found) => {
      if (!found)
        return replace(
          out,
          h(
            "p",
            { class: "empty" },
            field.value.trim() ? `This text contains no ${MASK}.` : "Enter a text.",
          ),
        );
      const [filled] = found.results;
      const parts = filled.source.split(MASK);
      if (parts.length - 1 !== filled.masks.length) return replace(out, h("p", {}, filled.text)); // the text has other mask tokens too
      replace(
        out,
        h(
          "p",
          {},
          parts.flatMap((/** @type {string} */ part, /** @type {number} */ n) =>
            n < filled.masks.length ? [part, guess(filled.masks[n], n)] : [part],
          ),
        ),
      );
      choose(filled.masks[0], 0);
    },
  });
  const guess = (/** @type {any[]} */ guesses, /** @type {number} */ n) =>
    h(
      "button",
      {
        type: "button",
        class: `said filled ${sureness(guesses[0].probability)}`,
        title: percent(guesses[0].probability),
        data: { probability: String(guesses[0].probability) },
        on: { click: () => choose(guesses, n) },
      },
      guesses[0].text || guesses[0].token,
    );
  const choose = (/** @type {any[]} */ guesses, /** @type {number} */ n) => {
    [...out.querySelectorAll(".filled")].forEach((button, m) => button.setAttribute("aria-pressed", String(m === n)));
    const them = guesses.map(({ text, token, probability }, id) => ({ id, token: text || token, probability }));
    replace(
      detail,
      h(
        "h2",
        {},
        out.querySelectorAll(".filled").length > 1 ? `Predictions for mask ${n + 1}` : "Predictions",
      ),
      candidates(them, 0, (id) => put(n, guesses[id].text)),
      h("p", { class: "note" }, "Select one to insert it into the text; the other masks are predicted again."),
    );
  };
  /** Replace a mask with a word. */
  const put = (/** @type {number} */ n, /** @type {string} */ text) => {
    const parts = field.value.split(MASK);
    field.value = parts.slice(0, n + 1).join(MASK) + text + parts.slice(n + 1).join(MASK);
    again();
  };
  /** Insert a mask at the cursor. */
  const insert = () => {
    field.setRangeText(MASK, field.selectionStart, field.selectionEnd, "end");
    field.focus();
    again();
  };
  await again();
  field.focus({ preventScroll: true });
}
