// The view for a model that guesses hidden words: each hole shows its best guess, and gives its others when chosen.

import { ask } from "./api.js";
import { candidates } from "./candidates.js";
import { h, replace } from "./dom.js";
import { live } from "./live.js";
import { percent } from "./numbers.js";
import { answering, writing } from "./pane.js";
import { link, note } from "./state.js";
import { legend, sureness } from "./words.js";

const MASK = "[MASK]";
const BEST = 10; // guesses for a hole

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showFill(root, app, state) {
  const { about } = app;
  const one = writing("source", "Text", {
    maxlength: app.limits.max_characters,
    placeholder: `Type here, with ${MASK} where a word is missing`,
    value: state.text,
  });
  const { field } = one;
  const hole = h("button", { type: "button", id: "hole", on: { click: () => insert() } }, `Put ${MASK} here`);
  one.pane.append(h("div", { class: "foot" }, hole));
  const { out, latency, inside, pane } = answering("Filled");
  const detail = h("div", { class: "detail", "aria-live": "polite" });
  replace(
    root,
    h("div", { class: "desk" }, one.pane, pane),
    legend("Choose a word to see what else could stand there."),
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
            field.value.trim() ? `There is no ${MASK} in this text yet.` : "Nothing to fill yet.",
          ),
        );
      const [filled] = found.results;
      const parts = filled.source.split(MASK);
      if (parts.length - 1 !== filled.masks.length) return replace(out, h("p", {}, filled.text)); // it has holes of another name too
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
        out.querySelectorAll(".filled").length > 1 ? `What could stand in hole ${n + 1}` : "What could stand there",
      ),
      candidates(them, 0, (id) => put(n, guesses[id].text)),
      h("p", { class: "note" }, "Choose one to put it into the text; the other holes are guessed anew."),
    );
  };
  /** Put a word into a hole. */
  const put = (/** @type {number} */ n, /** @type {string} */ text) => {
    const parts = field.value.split(MASK);
    field.value = parts.slice(0, n + 1).join(MASK) + text + parts.slice(n + 1).join(MASK);
    again();
  };
  /** Put a hole where the cursor is. */
  const insert = () => {
    field.setRangeText(MASK, field.selectionStart, field.selectionEnd, "end");
    field.focus();
    again();
  };
  await again();
  field.focus({ preventScroll: true });
}
