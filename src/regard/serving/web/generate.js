// View of a language model: streams a continuation, then shows the probability of every token.

import { errorMessage, RequestError, send, Trace } from "./api.js";
import { candidates } from "./candidates.js";
import { h, replace, visible } from "./dom.js";
import { events } from "./events.js";
import { linkTo, setDraft, updateUrl } from "./state.js";
import { confidenceClass, confidenceLegend, detokenize } from "./words.js";

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showGenerate(root, app, state) {
  const { about } = app;
  const prompt = h("textarea", {
    id: "source",
    rows: 4,
    dir: "auto",
    maxlength: app.limits.max_trace_characters,
    placeholder: "Enter a prompt",
    value: state.text,
    on: { input: () => setDraft({ text: prompt.value, special: 0 }) },
  });
  const number = (/** @type {string} */ id, /** @type {string} */ label, /** @type {any} */ more) =>
    h("label", { class: "menu", for: id }, h("span", {}, label), h("input", { id, type: "number", ...more }));
  const length = number("length", "Max tokens", { value: 40, min: 1, max: 200 });
  const temperature = number("temperature", "Temperature", { value: 1, min: 0, max: 2, step: 0.1 });
  const out = h("div", {
    id: "target",
    class: "target",
    role: "region",
    "aria-live": "polite",
    "aria-label": "Continuation",
  });
  const latency = h("p", { class: "latency", id: "latency" });
  const inside = h("a", { ...linkTo({ view: "look" }), class: "look-link" }, "Look inside →");
  const detail = h("div", { class: "detail", "aria-live": "polite" });
  const button = h("button", { type: "submit", class: "primary" }, "Generate");
  let running = /** @type {AbortController | null} */ (null);
  const write = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (running) return running.abort();
    running = new AbortController();
    button.textContent = "Stop";
    updateUrl({ text: prompt.value, special: 0 });
    replace(detail);
    const began = performance.now();
    let [text, generated, ended] = ["", 0, false];
    const fields = {
      model: about.name,
      prompt: prompt.value,
      max_tokens: Number(length.querySelector("input").value),
      temperature: Number(temperature.querySelector("input").value),
      stream: true,
      stream_options: { include_usage: true },
    };
    const promptText = h("span", { class: "prompt" }, prompt.value);
    const continuation = h("span", {});
    const outText = h("p", { dir: "auto" }, promptText, continuation);
    replace(out, outText);
    replace(latency);
    try {
      for await (const part of events(await send("/v1/completions", fields, running.signal))) {
        if (part.error) throw new RequestError(500, part.error.message);
        text += part.choices?.[0]?.text ?? "";
        ended ||= part.choices?.[0]?.finish_reason === "stop";
        generated = part.usage?.completion_tokens ?? generated;
        continuation.textContent = visible(text);
      }
      replace(latency, `${Math.round(performance.now() - began)} ms`);
      await probabilities(text, generated, ended);
    } catch (error) {
      if (error instanceof DOMException) return; // stopped by the user: keep the text
      const failure = error instanceof RequestError ? error : new RequestError(0, "The connection was lost during generation.");
      replace(out, outText, errorMessage(failure, () => form.requestSubmit()));
      if (!(error instanceof RequestError) && !(error instanceof TypeError)) throw error;
    } finally {
      running = null;
      button.textContent = "Generate";
    }
  };
  const probabilities = async (
    /** @type {string} */ text,
    /** @type {number} */ generated,
    /** @type {boolean} */ ended,
  ) => {
    const trace = await Trace.of({ text: prompt.value, target: text, model: about.name });
    const steps = ended ? trace.outline.steps : trace.outline.steps.slice(0, -1); // a forced text always includes the end token
    const promptLength = steps.length - generated; // where the prompt ends; generated tokens include the end
    const separator = /\s/.test(text) && !steps.some((/** @type {any} */ step) => /[▁Ġ\s]/.test(step.token)) ? " " : ""; // a vocabulary without word boundary marks
    const texts = detokenize(steps.map((/** @type {any} */ step) => step.token));
    const shown = steps.flatMap((/** @type {any} */ step, /** @type {number} */ n) => [
      h(
        "button",
        {
          type: "button",
          class: `output-word ${n < promptLength ? "prompt" : confidenceClass(step.probability)}`,
          data: { probability: String(step.probability) },
          on: {
            click: () =>
              replace(detail, h("h2", {}, "Candidates after ", h("code", {}, step.input_token)), candidates(step.candidates, step.id)),
          },
        },
        texts[n],
      ),
      separator,
    ]);
    const [whole, spelled] = [prompt.value + text, texts.slice(0, ended ? -1 : undefined).join(separator)];
    // models without start token do not predict the first token of the prompt
    const first = whole.endsWith(spelled) ? whole.slice(0, whole.length - spelled.length) : "";
    replace(out, h("p", { dir: "auto" }, h("span", { class: "prompt" }, first), shown));
  };
  const form = h(
    "form",
    { class: "panes", on: { submit: write } },
    h(
      "div",
      { class: "pane" },
      h("label", { for: "source" }, "Prompt"),
      prompt,
      h("div", { class: "pane-footer" }, length, temperature, button),
    ),
    h(
      "div",
      { class: "pane" },
      h("p", { class: "label" }, "Continuation"),
      out,
      h("div", { class: "pane-footer" }, latency, inside),
    ),
  );
  replace(
    root,
    form,
    confidenceLegend("Select a token to see other candidates.", out),
    detail,
  );
}
