// Entry point: load the list of models, read the state from the URL and show the matching view.

import { Refused, ask, keys } from "./api.js";
import { showCard } from "./card.js";
import { h, replace } from "./dom.js";
import { showHand } from "./hand.js";
import { showLook } from "./look.js";
import { AFRESH, go, link, read } from "./state.js";
import { useOf } from "./uses.js";

const TITLES = /** @type {Record<string, string>} */ ({
  use: "Translate",
  look: "Look inside",
  hand: "Worked example",
  card: "Model",
});

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
const [header, main] = [byId("header"), byId("main")];

keys.ask = () =>
  new Promise((resolve) => {
    const field = h("input", { id: "key", type: "password", autocomplete: "off" });
    replace(
      main,
      h(
        "form",
        {
          class: "ask",
          on: {
            submit: (/** @type {Event} */ event) => {
              event.preventDefault();
              resolve(field.value);
            },
          },
        },
        h("label", { for: "key" }, "This server requires an API key"),
        field,
        h("button", { type: "submit", class: "primary" }, "Continue"),
      ),
    );
    field.focus();
  });

/** @type {any} */
let known = null;
let turn = 0;
let before = { view: "", step: "" };

async function show() {
  turn += 1;
  const mine = turn;
  try {
    known ??= await ask("/v1/about");
  } catch (error) {
    return failed(main, error);
  }
  const state = read();
  const about = known.models.find((/** @type {any} */ one) => one.name === state.model) ?? known.models[0];
  const app = { about, limits: known.limits, labs: known.labs };
  drawHeader(about, state);
  const focused = document.activeElement?.id;
  const root = h("div", { class: `view ${state.view}` });
  const views = /** @type {Record<string, (root: any, app: any, state: any) => Promise<void>>} */ ({
    look: showLook,
    hand: showHand,
    card: showCard,
    use: useOf(about).show,
  });
  document.title = `${title(state.view, about)} · ${about.name} · regard`;
  main.style.setProperty("min-height", `${main.offsetHeight}px`); // keep the height while the view is rendered, so that the page does not jump
  if (!main.firstElementChild || main.firstElementChild.className !== root.className)
    main.style.removeProperty("min-height");
  replace(main, root);
  try {
    await views[state.view](root, app, state);
  } catch (error) {
    failed(root, error);
  }
  if (mine !== turn) return;
  main.style.removeProperty("min-height");
  if (focused && byId(focused)) byId(focused).focus({ preventScroll: true });
  else if (before.view && (before.view !== state.view || before.step !== state.step)) arrive();
  before = state;
  main.dataset.shown = location.hash;
}

/** After a change of view or step, focus the step's title and scroll it into view. */
function arrive() {
  const title = byId("step-title");
  if (!title) return scrollTo(0, 0);
  title.focus({ preventScroll: true });
  const { top } = title.getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) title.parentElement.scrollIntoView();
}

/** @param {HTMLElement} root @param {unknown} error */
function failed(root, error) {
  replace(
    root,
    h(
      "p",
      { class: "refused", role: "alert" },
      error instanceof Refused ? error.message : `The page failed: ${error}`,
      " ",
      h("button", { type: "button", on: { click: () => show() } }, "Try again"),
    ),
  );
  if (!(error instanceof Refused)) console.error(error);
}

/** @param {string} view @param {any} about */
function title(view, about) {
  return view === "use" ? useOf(about).title : TITLES[view];
}

/** @param {any} about @param {import("./state.js").State} state */
function drawHeader(about, state) {
  const choice =
    known.models.length > 1 &&
    h(
      "label",
      { class: "menu", for: "model" },
      h("span", { class: "away" }, "Model"),
      h(
        "select",
        {
          id: "model",
          on: {
            change: (/** @type {any} */ event) =>
              go({ model: event.target.value, at: "", head: 0, ...AFRESH }),
          },
        },
        known.models.map((/** @type {any} */ one) =>
          h(
            "option",
            { value: one.name, selected: one === about },
            one.abilities.includes("translate") ? `${one.name} (${one.source.name} → ${one.target.name})` : one.name,
          ),
        ),
      ),
    );
  const only =
    !choice &&
    h("span", { class: "languages" }, about.abilities.includes("translate") ? `${about.source.name} → ${about.target.name}` : about.name);
  const tabs = Object.keys(TITLES).map((view) =>
    h("a", { href: link({ view }), "aria-current": view === state.view ? "page" : null }, title(view, about)),
  );
  replace(
    header,
    h("a", { class: "brand", href: "#use" }, "regard"),
    h("nav", { class: "tabs", "aria-label": "Views" }, tabs),
    choice || only,
  );
}

byId("skip").addEventListener("click", (/** @type {Event} */ event) => {
  event.preventDefault(); // the URL hash holds the state, so it cannot be an anchor
  main.focus();
});
window.addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof Refused)) return; // a failed request of a cell, a switch or a tree node
  event.preventDefault();
  const notice = h(
    "p",
    { class: "notice refused", role: "alert" },
    event.reason.message,
    " ",
    h("button", { type: "button", on: { click: () => notice.remove() } }, "Close"),
  );
  for (const old of main.querySelectorAll(".notice")) old.remove();
  main.append(notice);
});
window.addEventListener("hashchange", show);
show();
