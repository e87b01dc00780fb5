// Step: decoding token by token, with inputs, attention and candidates.

import { candidates } from "../candidates.js";
import { caution } from "../caution.js";
import { h, replace } from "../dom.js";
import { headMenu, heads, menus, nearest, placeMenu, places, say } from "../places.js";
import { percent } from "../numbers.js";
import { picture } from "../picture.js";
import { note } from "../state.js";

const PACE = 1100; // milliseconds

export const player = {
  id: "player",
  title: "Decoding, step by step",
  section: "§3.1",
  here: (/** @type {any} */ { trace }) => [
    "decoder.input",
    "output.probabilities",
    ...(places(trace, "weights").some((place) => place.includes("cross")) ? ["decoder.cross_attention"] : []),
  ],
  exists: (/** @type {any} */ trace) => trace.outline.steps.length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state }) {
    const { steps, source, decoder_input: read } = trace.outline;
    const crossing = places(trace, "weights").filter((place) => place.includes("cross_attention"));
    const some = crossing.length ? crossing : places(trace, "weights").filter((place) => place.startsWith("decoder"));
    const place = some.length ? nearest(some, state.at) : null;
    const count = place ? heads(trace, place) : 0;
    const head = Math.min(state.head, Math.max(0, count - 1));
    const weights = place ? await trace.tensor(`${place}.weights[${head}]`) : null;
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
      on: { input: () => to(Number(slider.value)) },
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
      if (time === steps.length - 1) to(0);
      play.textContent = "Pause";
      timer = window.setInterval(() => {
        if (!root.isConnected || time >= steps.length - 1) stop();
        else to(time + 1);
      }, PACE);
    };
    const to = (/** @type {number} */ next) => {
      time = Math.max(0, Math.min(steps.length - 1, next));
      slider.value = String(time);
      slider.setAttribute("aria-valuetext", `Step ${time}: ${steps[time].token}`);
      note({ time, node: 0 });
      replace(stage, ...shown());
    };
    const shown = () => {
      const step = steps[time];
      const row = weights?.values[time];
      const [before, looked] = [read.slice(0, time + 1), crossing.length ? source.tokens : read.slice(0, time + 1)];
      const apart = !row || crossing.length > 0; // the tokens attended to are not the decoder's input
      return [
        row && h("h3", {}, crossing.length ? "Attention to the source" : "Decoder input and attention"),
        row &&
          h(
            "div",
            { class: "tokens" },
            looked.map((/** @type {string} */ token, /** @type {number} */ n) =>
              h(
                "span",
                { class: "word lit" },
                h("span", { class: "light", style: { opacity: String(row[n] ?? 0) } }),
                h(
                  "span",
                  { class: "token" },
                  h("b", {}, token),
                  h("i", { data: { weight: String(row[n] ?? 0) } }, percent(row[n] ?? 0)),
                ),
              ),
            ),
          ),
        apart && h("h3", {}, "Decoder input"),
        apart &&
          h(
            "div",
            { class: "tokens" },
            before.map((/** @type {string} */ token) =>
              h("span", { class: "word" }, h("span", { class: "token" }, h("b", {}, token))),
            ),
          ),
        h(
          "h3",
          {},
          step.forced ? "Forced next token: " : "Predicted next token: ",
          h("code", { class: "written" }, step.token),
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
      say(
        "At each step, the decoder takes all previous output tokens as input and predicts the next one. ",
        crossing.length ? "The encoder runs once, before the first step." : "",
      ),
      place ? menus(placeMenu(some, place), count > 1 && headMenu(count, head)) : "",
      h(
        "div",
        { class: "player", role: "group", "aria-label": "Player" },
        h("button", { type: "button", on: { click: () => to(time - 1) }, "aria-label": "Previous step" }, "‹"),
        play,
        h("button", { type: "button", on: { click: () => to(time + 1) }, "aria-label": "Next step" }, "›"),
        slider,
      ),
      picture({
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
      place ? caution() : "",
    );
    to(time);
  },
};
