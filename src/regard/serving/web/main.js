// Entry point: load the list of models, read the state from the URL and show the matching view.

import { abilityOf } from "./abilities.js";
import { apiKeys, errorMessage, request, RequestError, server as connection } from "./api.js";
import { showCard } from "./card.js";
import { showChat } from "./chat.js";
import { h, replace } from "./dom.js";
import { showLook } from "./look.js";
import { linkTo, navigate, readState, RESET_SELECTION, setDraft } from "./state.js";
import { showWorkedExample } from "./worked_example.js";

const TITLES = /** @type {Record<string, string>} */ ({
  use: "Translate",
  chat: "Chat",
  look: "Look inside",
  hand: "Worked example",
  card: "Model",
});

/** @param {string} id @returns {any} */
const byId = (id) => document.getElementById(id);
const [header, main] = [byId("header"), byId("main")];

apiKeys.prompt = () =>
  new Promise((resolve) => {
    const field = h("input", { id: "key", type: "password", autocomplete: "off" });
    replace(
      main,
      h(
        "form",
        {
          class: "text-form",
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
let server = null;
let showCount = 0;
let previous = { view: "", step: "" };

async function show() {
  showCount += 1;
  const ownCount = showCount;
  try {
    server ??= await request("/v1/about");
  } catch (error) {
    return showError(main, error);
  }
  setDraft({});
  const state = readState();
  const about = server.models.find((/** @type {any} */ model) => model.name === state.model) ?? server.models[0];
  if (!viewsOf(about).includes(state.view)) state.view = "use";
  const app = { about, limits: server.limits, labs: server.labs };
  drawHeader(about, state);
  const focused = document.activeElement?.id;
  const root = h("div", { class: `view ${state.view}` });
  const views = /** @type {Record<string, (root: any, app: any, state: any) => Promise<void>>} */ ({
    chat: showChat,
    look: showLook,
    hand: showWorkedExample,
    card: showCard,
    use: abilityOf(about).show,
  });
  document.title = `${title(state.view, about)} · ${about.name} · regard`;
  main.style.setProperty("min-height", `${main.offsetHeight}px`); // keep the height while the view is rendered, so that the page does not jump
  if (!main.firstElementChild || main.firstElementChild.className !== root.className)
    main.style.removeProperty("min-height");
  replace(main, root);
  try {
    await views[state.view](root, app, state);
  } catch (error) {
    showError(root, error);
  }
  if (ownCount !== showCount) return;
  main.style.removeProperty("min-height");
  if (focused && byId(focused)) byId(focused).focus({ preventScroll: true });
  else if (previous.view && (previous.view !== state.view || previous.step !== state.step)) focusStep();
  previous = state;
  main.dataset.shown = location.hash;
}

/** After a change of view or step, focus the step's title and scroll it into view. */
function focusStep() {
  const title = byId("step-title");
  if (!title) return scrollTo(0, 0);
  title.focus({ preventScroll: true });
  const { top } = title.getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) title.parentElement.scrollIntoView();
}

/** @param {HTMLElement} root @param {unknown} error */
function showError(root, error) {
  if (!(error instanceof RequestError)) console.error(error);
  replace(root, errorMessage(error instanceof RequestError ? error : new RequestError(0, `The page failed: ${error}`), show));
}

/** The views of a model; only one with a chat template chats. @param {any} about */
function viewsOf(about) {
  return Object.keys(TITLES).filter((view) => view !== "chat" || about.chats);
}

/** @param {string} view @param {any} about */
function title(view, about) {
  return view === "use" ? abilityOf(about).title : TITLES[view];
}

/** @param {any} about @param {import("./state.js").State} state */
function drawHeader(about, state) {
  const choice =
    server.models.length > 1 &&
    h(
      "label",
      { class: "menu", for: "model" },
      h("span", { class: "visually-hidden" }, "Model"),
      h(
        "select",
        {
          id: "model",
          on: {
            change: (/** @type {any} */ event) =>
              navigate({ model: event.target.value, at: "", head: 0, ...RESET_SELECTION }),
          },
        },
        server.models.map((/** @type {any} */ model) =>
          h(
            "option",
            { value: model.name, selected: model === about },
            model.abilities.includes("translate") ? `${model.name} (${model.source.name} → ${model.target.name})` : model.name,
          ),
        ),
      ),
    );
  const only =
    !choice &&
    h("span", { class: "languages" }, about.abilities.includes("translate") ? `${about.source.name} → ${about.target.name}` : about.name);
  const tabs = viewsOf(about).map((view) =>
    h("a", { ...linkTo({ view }), "aria-current": view === state.view ? "page" : null }, title(view, about)),
  );
  replace(
    header,
    h("a", { class: "brand", ...linkTo({ view: "use" }) }, "regard"),
    h("nav", { class: "tabs", "aria-label": "Views" }, tabs),
    choice || only,
  );
}

byId("skip").addEventListener("click", (/** @type {Event} */ event) => {
  event.preventDefault(); // the URL hash holds the state, so it cannot be an anchor
  main.focus();
});
window.addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof RequestError)) return; // a failed request of a cell, a switch or a tree node
  event.preventDefault();
  removeNotices();
  const notice = errorMessage(event.reason, show);
  notice.classList.add("notice");
  notice.append(" ", h("button", { type: "button", on: { click: removeNotices } }, "Close"));
  main.append(notice);
});
/** Notices are about the latest request: the next one that succeeds removes them. */
function removeNotices() {
  for (const notice of main.querySelectorAll(".notice")) notice.remove();
}
connection.addEventListener("answer", removeNotices);
window.addEventListener("hashchange", show);
show();
