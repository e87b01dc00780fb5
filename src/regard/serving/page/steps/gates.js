// A recurrent network's gates: what is let in, kept and shown, token by token.

import { matrix } from "../matrix.js";
import { h } from "../dom.js";
import { menus, nearest, placeMenu, places, say, span, spanMenu } from "../places.js";

export const gates = {
  id: "gates",
  title: "Gates",
  section: "recurrent",
  here: (/** @type {any} */ { trace, state }) => [`${nearest(some(trace), state.at).split(".")[0]}.recurrent`],
  exists: (/** @type {any} */ trace) => some(trace).length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state }) {
    const place = nearest(some(trace), state.at);
    const points = trace.outline.points.filter(
      (/** @type {any} */ point) => point.name.startsWith(`${place}.`) && point.axes.at(-1) === "unit",
    );
    const whole = await trace.tensor(points.at(-1).name);
    const columns = span(state, whole.shape[1], 48);
    const found = await Promise.all(
      points
        .filter((/** @type {any} */ point) => point.point !== "sum")
        .map(async (/** @type {any} */ point) => [point, await trace.tensor(point.name, { columns })]),
    );
    root.append(
      say(
        "A recurrent network reads one token after the other, and carries a state along. Its gates are numbers between 0 and 1 that say, for each unit, what to let in, what to keep and what to show.",
      ),
      menus(placeMenu(some(trace), place), spanMenu(state, whole.shape[1], 48)),
      h(
        "div",
        { class: "stacked" },
        found.map(
          ([point, one]) =>
            matrix({
              title: point.point.replaceAll("_", " "),
              note: point.what,
              values: one.values,
              rows: one.labels[0],
              from: columns[0],
              top: 1,
            }).element,
        ),
      ),
    );
  },
};

/** @param {any} trace */
function some(trace) {
  return places(trace, "hidden").filter((place) => /\.(forwards|backwards)$/.test(place));
}
