// The view that explains a model: a map of the network, and its steps in the order of the paper.

import { Refused, Trace } from "./api.js";
import { h, replace } from "./dom.js";
import { encoded } from "./encoding.js";
import { toTheTest } from "./labs.js";
import { drawMap } from "./map.js";
import { maths } from "./maths.js";
import { AFRESH, go, link } from "./state.js";
import { halves } from "./pane.js";
import { stepsOf } from "./steps/index.js";
import { useOf } from "./uses.js";

const EXAMPLES = /** @type {Record<string, string>} */ ({
  en: "I would like two coffees, please.",
  it: "Vorrei due caffè, per favore.",
  de: "Ich möchte zwei Kaffee, bitte.",
  fr: "Je voudrais deux cafés, s'il vous plaît.",
});

/** The current trace, cached while only the step changes. @type {{key: string, trace: Promise<Trace>} | null} */
let kept = null;

/** @param {any} about @param {import("./state.js").State} state */
function traceOf(about, state) {
  const question = { text: textOf(about, state), model: about.name };
  const key = JSON.stringify(question);
  if (kept?.key !== key) {
    const trace = Trace.of(question);
    kept = { key, trace };
    trace.catch(() => {
      kept = null;
    });
  }
  return kept.trace;
}

/** Example text, used until the user enters one. @param {any} about */
export function exampleFor(about) {
  return about.example || EXAMPLES[about.source?.code] || useOf(about).example;
}

/** The text to trace; of a pair of texts, the first. @param {any} about @param {import("./state.js").State} state */
function textOf(about, state) {
  const text = about.abilities.includes("embed") ? halves(state.text)[0] : state.text;
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
      class: "ask",
      on: {
        submit: (/** @type {Event} */ event) => {
          event.preventDefault();
          go({ text: field.value.trim(), ...AFRESH });
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
    if (!(error instanceof Refused)) throw error;
    replace(body, h("p", { class: "refused", role: "alert" }, error.message));
    body.removeAttribute("aria-busy");
    return;
  }
  const steps = stepsOf(trace);
  const number = Math.max(
    0,
    steps.findIndex((one) => one.id === state.step),
  );
  const step = steps[number];
  const here = { trace, state, about };
  const list = h(
    "ol",
    { class: "steps" },
    steps.map((one) =>
      h(
        "li",
        {},
        h(
          "a",
          { href: link({ view: "look", step: one.id }), "aria-current": one === step ? "step" : null },
          h("span", {}, maths(one.title)),
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
    h("h2", { id: "step-title", tabindex: "-1" }, maths(step.title)),
  );
  const [before, after] = [steps[number - 1], steps[number + 1]];
  const around = h(
    "nav",
    { class: "around", "aria-label": "Previous and next step" },
    before ? h("a", { href: link({ step: before.id }), rel: "prev" }, "← ", maths(before.title)) : h("span"),
    after ? h("a", { href: link({ step: after.id }), rel: "next" }, maths(after.title), " →") : h("span"),
  );
  const said = h(
    "p",
    { class: "translated" },
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
      steps.map((one) => one.id),
    ),
    list,
  );
  if (trace.outline.kind === "encoding") replace(said, ...encoded(trace.outline));
  guide.open = matchMedia("(min-width: 900px)").matches;
  replace(
    body,
    guide,
    h(
      "div",
      { class: "main" },
      said,
      trace.outline.notes.length ? h("p", { class: "note" }, trace.outline.notes.join(" ")) : null,
      content,
      toTheTest(step.id, app.labs),
      around,
    ),
  );
  try {
    await step.show(content, here);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    content.append(h("p", { class: "refused", role: "alert" }, error.message));
  }
  body.removeAttribute("aria-busy");
  body.dataset.ready = step.id;
}
