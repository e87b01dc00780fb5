// Step: decoding token by token, with inputs, attention and candidates.

import { candidates } from "../candidates.js";
import { h, replace } from "../dom.js";
import { figure } from "../figure.js";
import {
  attentionWarning,
  headCount,
  locationName,
  locationsWith,
  menu,
  menus,
  paragraph,
} from "../locations.js";
import { percent } from "../numbers.js";
import { updateUrl } from "../state.js";

const INTERVAL = 1100; // milliseconds

export const player = {
  id: "player",
  title: "Decoding, step by step",
  section: "§3.1",
  here: (/** @type {any} */ { trace }) => [
    "decoder.input",
    "output.probabilities",
    ...(locationsWith(trace, "weights").some((location) => location.includes("cross")) ? ["decoder.cross_attention"] : []),
  ],
  exists: (/** @type {any} */ trace) => trace.outline.steps.length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state }) {
    const { steps, source, decoder_input: decoderInput } = trace.outline;
    const crossAttentions = locationsWith(trace, "weights").filter((location) => location.includes("cross_attention"));
    const locations = crossAttentions.length ? crossAttentions : locationsWith(trace, "weights").filter((location) => location.startsWith("decoder"));
    const { location, head } = await shownHead(trace, state, locations);
    const count = location ? headCount(trace, location) : 0;
    const weights = location ? await trace.tensor(`${location}.weights[${head}]`) : null;
    let time = Math.min(state.time, steps.length - 1);
    let timer = 0;

    const stage = h("div", { class: "stage" });
    const slider = h("input", {
      type: "range",
      id: "time",
      min: 0,
      max: steps.length - 1,
      value: time,
      "aria-label": "Step",
      on: { input: () => goTo(Number(slider.value)) },
    });
    const play = h(
      "button",
      { type: "button", class: "primary", on: { click: () => (timer ? stop() : start()) } },
      "Play",
    );
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      play.textContent = "Play";
    };
    const start = () => {
      if (time === steps.length - 1) goTo(0);
      play.textContent = "Pause";
      timer = window.setInterval(() => {
        if (!root.isConnected || time >= steps.length - 1) stop();
        else goTo(time + 1);
      }, INTERVAL);
    };
    const goTo = (/** @type {number} */ next) => {
      time = Math.max(0, Math.min(steps.length - 1, next));
      slider.value = String(time);
      slider.setAttribute("aria-valuetext", `Step ${time}: ${steps[time].token}`);
      updateUrl({ time, node: 0 });
      replace(stage, ...shown());
    };
    const shown = () => {
      const step = steps[time];
      const row = weights?.values[time];
      const [prefix, attended] = [decoderInput.slice(0, time + 1), crossAttentions.length ? source.tokens : decoderInput.slice(0, time + 1)];
      const separate = !row || crossAttentions.length > 0; // the tokens attended to are not the decoder's input
      return [
        row && h("h3", {}, crossAttentions.length ? "Attention to the source" : "Decoder input and attention"),
        row &&
          h(
            "div",
            { class: "tokens" },
            attended.map((/** @type {string} */ token, /** @type {number} */ n) =>
              h(
                "span",
                { class: "word highlighted" },
                h("span", { class: "highlight", style: { opacity: String(row[n] ?? 0) } }),
                h(
                  "span",
                  { class: "token" },
                  h("b", { dir: "auto" }, token),
                  h("i", { data: { weight: String(row[n] ?? 0) } }, percent(row[n] ?? 0)),
                ),
              ),
            ),
          ),
        separate && h("h3", {}, "Decoder input"),
        separate &&
          h(
            "div",
            { class: "tokens" },
            prefix.map((/** @type {string} */ token) =>
              h("span", { class: "word" }, h("span", { class: "token" }, h("b", { dir: "auto" }, token))),
            ),
          ),
        h(
          "h3",
          {},
          step.forced ? "Forced next token: " : "Predicted next token: ",
          h("code", { class: "predicted" }, step.token),
          h(
            "span",
            { class: "unit" },
            `  ${percent(step.probability)} · ${step.rank ? `${step.rank.toLocaleString("en")} tokens were more probable` : "the most probable"} · entropy ${step.entropy.toFixed(2)} nats`,
          ),
        ),
        candidates(step.candidates, step.id),
      ];
    };
    root.append(
      paragraph(
        "At each step, the decoder takes all previous output tokens as input and predicts the next one. ",
        crossAttentions.length ? "The encoder runs once, before the first step." : "",
      ),
      location ? menus(headMenus(locations, location, count, head)) : "",
      h(
        "div",
        { class: "player", role: "group", "aria-label": "Player" },
        h("button", { type: "button", on: { click: () => goTo(time - 1) }, "aria-label": "Previous step" }, "‹"),
        play,
        h("button", { type: "button", on: { click: () => goTo(time + 1) }, "aria-label": "Next step" }, "›"),
        slider,
      ),
      figure({
        title: "This step",
        shown: stage,
        table: () => ({
          head: ["step", "input", "output", "probability", "entropy", ...(weights?.labels[1] ?? [])],
          rows: steps.map((/** @type {any} */ step, /** @type {number} */ n) => [
            String(n),
            step.input_token,
            step.token,
            step.probability,
            step.entropy,
            ...(weights?.values[n] ?? []),
          ]),
        }),
      }),
      location ? attentionWarning() : "",
    );
    goTo(time);
  },
};

/**
 * The head that the user selected in this step, else the one that agrees best with the word alignment.
 * @param {import("../api.js").Trace} trace @param {import("../state.js").State} state @param {string[]} locations
 * @returns {Promise<{location: string | null, head: number}>}
 */
async function shownHead(trace, state, locations) {
  if (locations.includes(state.at)) return { location: state.at, head: Math.min(state.head, headCount(trace, state.at) - 1) };
  if (!trace.outline.has_alignment) return { location: locations[0] ?? null, head: 0 };
  const { chosen } = await trace.request("alignment");
  return { location: chosen.point.replace(/\.weights$/, ""), head: chosen.head };
}

/** Menus of layers and heads; both store layer and head, so that also head 0 is known to be selected. @param {string[]} locations @param {string} location @param {number} count @param {number} head */
function headMenus(locations, location, count, head) {
  const layers = /** @type {[string, string][]} */ (locations.map((item) => [item, locationName(item)]));
  const heads = /** @type {[number, string][]} */ (Array.from({ length: count }, (_, n) => [n, String(n)]));
  return [
    menu("location", "Layer", layers, location, (at) => ({ at, head })),
    count > 1 && menu("head", "Head", heads, head, (n) => ({ at: location, head: Number(n) })),
  ];
}
