// The view that explains a model: a map of the network, and its steps in the order of the paper.

import { abilityOf } from "./abilities.js";
import { errorMessage, request, RequestError, Trace } from "./api.js";
import { formatFormula, h, replace } from "./dom.js";
import { experimentLinks } from "./labs.js";
import { menu } from "./locations.js";
import { truncate } from "./matrix.js";
import { drawMap } from "./network_map.js";
import { percent } from "./numbers.js";
import { splitPair } from "./panes.js";
import { linkTo, navigate, RESET_SELECTION, setDraft } from "./state.js";
import { stepsOf } from "./steps/index.js";

const EXAMPLES = /** @type {Record<string, string>} */ ({
  en: "I would like two coffees, please.",
  it: "Vorrei due caffè, per favore.",
  de: "Ich möchte zwei Kaffee, bitte.",
  fr: "Je voudrais deux cafés, s'il vous plaît.",
});

/** @typedef {{text: string, shortened: boolean, characters: number}} Part a text that can be traced, perhaps only the beginning of one with so many characters */
/** @typedef {{sentences: Part[], whole: Part}} Parts */

/**
 * Sentences and traces of the latest requests, cached while only the step changes.
 * @type {Map<string, {key: string, answer: Promise<any>}>}
 */
const cached = new Map();

/** @template Answer @param {string} kind @param {any} body @param {(body: any) => Promise<Answer>} send @returns {Promise<Answer>} */
function latest(kind, body, send) {
  const key = JSON.stringify(body);
  const known = cached.get(kind);
  if (known?.key === key) return known.answer;
  const answer = send(body);
  cached.set(kind, { key, answer });
  answer.catch(() => cached.get(kind)?.answer === answer && cached.delete(kind));
  return answer;
}

/** The part of the text to trace, and a menu of its sentences if there are several. @param {Parts} parts @param {import("./state.js").State} state */
function selectPart({ sentences, whole }, state) {
  const choices = sentences.length > 1 && !whole.shortened ? [...sentences, whole] : sentences;
  const number = Math.min(state.sentence, choices.length - 1);
  const options = choices.map(({ text }, n) => [n, n < sentences.length ? `${n + 1}: ${truncate(text, 60)}` : "all as one text"]);
  return {
    part: choices[number],
    menu:
      sentences.length > 1 &&
      menu("sentence", "Sentence", /** @type {[any, string][]} */ (options), number, (n) => ({
        ...RESET_SELECTION,
        sentence: Number(n),
      })),
  };
}

/** Remark about a text of which only the beginning is traced. @param {Part} part */
function beginningNote({ text, shortened, characters }) {
  if (!shortened) return null;
  const counts = [[...text].length, characters].map((count) => count.toLocaleString("en"));
  return h("p", { class: "note beginning" }, `Too long to trace as a whole: these are the first ${counts[0]} of ${counts[1]} characters.`);
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
  const submit = () => navigate({ ...RESET_SELECTION, text: field.value.trim() });
  const field = h("textarea", {
    id: "look-text",
    rows: 1,
    dir: "auto",
    value: textOf(about, state),
    maxlength: app.limits.max_characters,
    "aria-label": about.abilities.includes("generate") ? "Prompt to trace" : "Text to trace",
    autocomplete: "off",
    on: {
      input: () => setDraft({ ...RESET_SELECTION, text: field.value.trim() }),
      keydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        submit();
      },
    },
  });
  const form = h(
    "form",
    {
      class: "text-form",
      on: {
        submit: (/** @type {Event} */ event) => {
          event.preventDefault();
          submit();
        },
      },
    },
    field,
    h("button", { type: "submit", class: "primary" }, "Look inside"),
  );
  const body = h("div", { class: "workbench", "aria-busy": "true" }, h("p", { class: "note" }, "Running the model …"));
  replace(root, form, body);
  let trace, chosen;
  try {
    const text = { text: textOf(about, state), model: about.name };
    chosen = state.special
      ? { part: { text: text.text, shortened: false, characters: text.text.length }, menu: false }
      : selectPart(await latest("sentences", text, (fields) => request("/v1/look/sentences", fields)), state);
    const special = state.special ? { special_tokens: true } : {};
    trace = await latest("trace", { ...text, text: chosen.part.text, ...special }, (fields) => Trace.of(fields));
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    replace(body, errorMessage(error, () => showLook(root, app, state)));
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
          { ...linkTo({ view: "look", step: other.id }), "aria-current": other === step ? "step" : null },
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
    before ? h("a", { ...linkTo({ step: before.id }), rel: "prev" }, "← ", formatFormula(before.title)) : h("span"),
    after ? h("a", { ...linkTo({ step: after.id }), rel: "next" }, formatFormula(after.title), " →") : h("span"),
  );
  const summary = h(
    "p",
    { class: "summary-line" },
    h("span", { class: "from", dir: "auto" }, trace.outline.text),
    trace.outline.kind === "continuation" ? "" : h("span", { class: "arrow", "aria-hidden": "true" }, " → "),
    trace.outline.output.trim()
      ? h("b", { dir: "auto" }, trace.outline.output)
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
      chosen.menu && h("div", { class: "menus sentence-menu" }, chosen.menu),
      summary,
      beginningNote(chosen.part),
      trace.outline.notes.length ? h("p", { class: "note" }, trace.outline.notes.join(" ")) : null,
      content,
      experimentLinks(step.id, app.labs),
      around,
    ),
  );
  fitGuide();
  const current = list.querySelector("[aria-current]"); // the guide is its offset parent
  if (current.offsetTop + current.offsetHeight > guide.clientHeight) guide.scrollTop = current.offsetTop - guide.clientHeight / 2;
  try {
    await step.show(content, here);
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    content.append(errorMessage(error, () => showLook(root, app, state)));
  }
  body.removeAttribute("aria-busy");
  body.dataset.ready = step.id;
}

/** Let the guide end with the window: at the top of the page it begins below header and form, later at the top. */
function fitGuide() {
  const guide = /** @type {HTMLElement | null} */ (document.querySelector(".guide"));
  if (guide?.parentElement) guide.style.setProperty("--guide-top", `${guide.parentElement.getBoundingClientRect().top}px`);
}
for (const event of ["scroll", "resize"]) addEventListener(event, fitGuide, { passive: true });

/** One-line summary of an encoder's trace, which has no output text. @param {any} outline @returns {any[]} */
function encodingSummary({ text, head, source, model }) {
  const arrow = h("span", { class: "arrow", "aria-hidden": "true" }, " → ");
  if (head?.kind === "classes") {
    const [best] = head.predictions[0].candidates;
    return [
      h("span", { dir: "auto" }, text),
      arrow,
      h("b", {}, best.token),
      h("span", { class: "unit" }, ` ${percent(best.probability)}`),
    ];
  }
  const count = source.tokens.length;
  return [h("span", { dir: "auto" }, text), arrow, h("b", {}, `${count} vectors of ${model.width} numbers`)];
}
