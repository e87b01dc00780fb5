// The view that explains a model: a map of the network, and its steps in the order of the paper.

import { abilityOf } from "./abilities.js";
import { RequestError, Trace } from "./api.js";
import { formatFormula, h, replace } from "./dom.js";
import { experimentLinks } from "./labs.js";
import { drawMap } from "./network_map.js";
import { percent } from "./numbers.js";
import { splitPair } from "./panes.js";
import { link, navigate, RESET_SELECTION } from "./state.js";
import { stepsOf } from "./steps/index.js";

const EXAMPLES = /** @type {Record<string, string>} */ ({
  en: "I would like two coffees, please.",
  it: "Vorrei due caffè, per favore.",
  de: "Ich möchte zwei Kaffee, bitte.",
  fr: "Je voudrais deux cafés, s'il vous plaît.",
});

/** The current trace, cached while only the step changes. @type {{key: string, trace: Promise<Trace>} | null} */
let cached = null;

/** @param {any} about @param {import("./state.js").State} state */
function traceOf(about, state) {
  const body = { text: textOf(about, state), model: about.name };
  const key = JSON.stringify(body);
  if (cached?.key !== key) {
    const trace = Trace.of(body);
    cached = { key, trace };
    trace.catch(() => {
      cached = null;
    });
  }
  return cached.trace;
}

/** Example text, used until the user enters one. @param {any} about */
export function exampleFor(about) {
  return about.example || EXAMPLES[about.source?.code] || abilityOf(about).example;
}

/** The text to trace; of a pair of texts, the first. @param {any} about @param {import("./state.js").State} state */
function textOf(about, state) {
  const text = about.abilities.includes("embed") ? splitPair(state.text)[0] : state.text;
  return text || exampleFor(about);
}

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showLook(root, app, state) {
  const { about } = app;
  const field = h("input", {
    id: "look-text",
    type: "text",
    value: textOf(about, state),
    maxlength: app.limits.max_trace_characters,
    "aria-label": about.abilities.includes("generate") ? "Prompt to trace" : "Text to trace",
    autocomplete: "off",
  });
  const form = h(
    "form",
    {
      class: "text-form",
      on: {
        submit: (/** @type {Event} */ event) => {
          event.preventDefault();
          navigate({ text: field.value.trim(), ...RESET_SELECTION });
        },
      },
    },
    field,
    h("button", { type: "submit", class: "primary" }, "Look inside"),
  );
  const body = h("div", { class: "workbench", "aria-busy": "true" }, h("p", { class: "note" }, "Running the model …"));
  replace(root, form, body);
  let trace;
  try {
    trace = await traceOf(about, state);
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    replace(body, h("p", { class: "error", role: "alert" }, error.message));
    body.removeAttribute("aria-busy");
    return;
  }
  const steps = stepsOf(trace);
  const number = Math.max(
    0,
    steps.findIndex((other) => other.id === state.step),
  );
  const step = steps[number];
  const here = { trace, state, about };
  const list = h(
    "ol",
    { class: "steps" },
    steps.map((other) =>
      h(
        "li",
        {},
        h(
          "a",
          { href: link({ view: "look", step: other.id }), "aria-current": other === step ? "step" : null },
          h("span", {}, formatFormula(other.title)),
        ),
      ),
    ),
  );
  const content = h(
    "section",
    { class: "step", "aria-labelledby": "step-title" },
    h(
      "p",
      { class: "kind" },
      `Step ${number + 1} of ${steps.length}${step.section ? ` · “Attention Is All You Need” ${step.section}` : ""}`,
    ),
    h("h2", { id: "step-title", tabindex: "-1" }, formatFormula(step.title)),
  );
  const [before, after] = [steps[number - 1], steps[number + 1]];
  const around = h(
    "nav",
    { class: "step-links", "aria-label": "Previous and next step" },
    before ? h("a", { href: link({ step: before.id }), rel: "prev" }, "← ", formatFormula(before.title)) : h("span"),
    after ? h("a", { href: link({ step: after.id }), rel: "next" }, formatFormula(after.title), " →") : h("span"),
  );
  const summary = h(
    "p",
    { class: "summary-line" },
    h("span", { class: "from" }, trace.outline.text),
    trace.outline.kind === "continuation" ? "" : h("span", { class: "arrow", "aria-hidden": "true" }, " → "),
    trace.outline.output.trim()
      ? h("b", {}, trace.outline.output)
      : h("span", { class: "empty" }, trace.outline.output ? " only whitespace" : " empty output"),
  );
  const guide = h(
    "details",
    { class: "guide" },
    h("summary", {}, "Map and steps"),
    drawMap(
      trace,
      step.here(here),
      steps.map((other) => other.id),
    ),
    list,
  );
  if (trace.outline.kind === "encoding") replace(summary, ...encodingSummary(trace.outline));
  guide.open = matchMedia("(min-width: 900px)").matches;
  replace(
    body,
    guide,
    h(
      "div",
      { class: "main" },
      summary,
      trace.outline.notes.length ? h("p", { class: "note" }, trace.outline.notes.join(" ")) : null,
      content,
      experimentLinks(step.id, app.labs),
      around,
    ),
  );
  try {
    await step.show(content, here);
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    content.append(h("p", { class: "error", role: "alert" }, error.message));
  }
  body.removeAttribute("aria-busy");
  body.dataset.ready = step.id;
}

/** One-line summary of an encoder's trace, which has no output text. @param {any} outline @returns {any[]} */
function encodingSummary({ text, head, source, model }) {
  const arrow = h("span", { class: "arrow", "aria-hidden": "true" }, " → ");
  if (head?.kind === "classes") {
    const [best] = head.predictions[0].candidates;
    return [
      h("span", {}, text),
      arrow,
      h("b", {}, best.token),
      h("span", { class: "unit" }, ` ${percent(best.probability)}`),
    ];
  }
  const count = source.tokens.length;
  return [h("span", {}, text), arrow, h("b", {}, `${count} vectors of ${model.width} numbers`)];
}
