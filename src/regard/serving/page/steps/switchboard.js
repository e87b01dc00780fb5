// Every head with a switch: off, and the text is decoded again without it.

import { caution } from "../caution.js";
import { h, replace } from "../dom.js";
import { called, places, say } from "../places.js";
import { short } from "../numbers.js";
import { tabular } from "../picture.js";

export const switchboard = {
  id: "switchboard",
  title: "Switch heads off",
  section: "what matters",
  here: (/** @type {any} */ { trace }) => [
    ...new Set(places(trace, "weights").map((place) => place.replace(/\.\d+\./, "."))),
  ],
  exists: (/** @type {any} */ trace) => trace.outline.steps.length > 0 && places(trace, "weights").length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace }) {
    /** @type {any[]} */
    const heads = await trace.ask("heads");
    const top = Math.max(1e-6, ...heads.map((head) => head.cost ?? 0));
    /** @type {Map<string, any[]>} */
    const rows = new Map();
    for (const head of heads) {
      const place = [head.stack, head.layer, head.part].filter((part) => part !== null).join(".");
      rows.set(place, [...(rows.get(place) ?? []), head]);
    }
    /** @type {Set<string>} */
    const off = new Set();
    const result = h("div", { class: "result", "aria-live": "polite" });
    const all = h(
      "button",
      {
        type: "button",
        on: {
          click: () => {
            off.clear();
            switches.forEach((one) => one.setAttribute("aria-pressed", "true"));
            update();
          },
        },
      },
      "All on",
    );
    let latest = 0;
    const update = async () => {
      latest += 1;
      const turn = latest;
      if (!off.size)
        return replace(
          result,
          h(
            "p",
            { class: "note" },
            "Everything is on. Switch a head off to see what the output would have been without it.",
          ),
        );
      result.setAttribute("aria-busy", "true");
      const found = await trace.ask("changed", { changes: [...off] });
      if (turn !== latest) return;
      result.removeAttribute("aria-busy");
      replace(result, ...difference(found));
    };
    /** @type {HTMLElement[]} */
    const switches = [];
    const button = (/** @type {string} */ name, /** @type {string} */ text, /** @type {any} */ head) => {
      const one = h(
        "button",
        {
          type: "button",
          class: head ? "switch" : "switch part",
          "aria-pressed": "true",
          data: { name },
          "aria-label": `${name}${head ? `, cost ${short(head.cost ?? 0)}` : ""}`,
          on: {
            click: () => {
              const on = off.has(name);
              on ? off.delete(name) : off.add(name);
              one.setAttribute("aria-pressed", String(on));
              update();
            },
          },
        },
        head &&
          h("span", { class: "light", style: { opacity: String(0.8 * Math.sqrt(Math.max(0, head.cost ?? 0) / top)) } }),
        h("span", { class: "switch-name" }, text),
        head && h("span", { class: "switch-cost" }, short(head.cost ?? 0)),
      );
      switches.push(one);
      return one;
    };
    /** @type {string[]} */
    const parts = trace.outline.points
      .filter((/** @type {any} */ point) => point.point === "added")
      .map((/** @type {any} */ point) => `${point.stack}.${point.layer}.${point.part.replace(/_residual$/, "")}`);
    root.append(
      say(
        "Each switch is a head; the number is by how much the log-probability of the output falls without it, and the stronger the colour, the more the output needs it. Switch some off: the text is decoded again, by the real search.",
      ),
      caution(),
      h(
        "div",
        { class: "board" },
        [...rows].map(([place, some]) =>
          h(
            "div",
            { class: "row", role: "group", "aria-label": called(place) },
            h("span", { class: "row-name" }, called(place)),
            h(
              "div",
              { class: "switches" },
              some.map((head) => button(head.name, `head ${head.head}`, head)),
            ),
          ),
        ),
      ),
      parts.length ? h("h3", {}, "Whole sub-layers") : "",
      h(
        "div",
        { class: "switches" },
        parts.map((name) => button(name, called(name), null)),
      ),
      h("p", { class: "all" }, all),
      result,
      tabularBehind(heads),
    );
    await update();
  },
};

/** @param {any[]} heads */
function tabularBehind(heads) {
  const behind = h("details", { class: "behind" }, h("summary", {}, "Table of all heads"));
  behind.append(
    tabular("heads", {
      head: ["head", "cost of losing it", "entropy of its attention"],
      rows: heads.map((head) => [head.name, head.cost, head.entropy]),
    }),
  );
  return behind;
}

/** @param {any} found */
function difference(found) {
  const [before, after] = [found.before, found.after].map((/** @type {string} */ text) => text.split(/(\s+)/));
  const common = new Set(before);
  const top = Math.max(1e-6, ...found.steps.map((/** @type {any} */ step) => Math.abs(step.before - step.after)));
  return [
    h(
      "dl",
      { class: "compared" },
      h("dt", {}, "with all"),
      h("dd", {}, found.before),
      h("dt", {}, "without"),
      h(
        "dd",
        { class: "after" },
        after.map((/** @type {string} */ word) => (common.has(word) ? word : h("mark", {}, word))),
        !found.after && h("span", { class: "empty" }, "nothing"),
      ),
    ),
    h(
      "p",
      { class: "note", data: { cost: String(found.cost) } },
      found.same ? "The output is the same. " : `The output differs from step ${found.first} on. `,
      `The log-probability of the first output falls by ${short(found.cost, 3)}.`,
    ),
    h(
      "ol",
      { class: "falls" },
      found.steps.map((/** @type {any} */ step) =>
        h(
          "li",
          {},
          h("code", {}, step.token),
          h(
            "span",
            { class: "bar c2" },
            h("span", { style: { width: `${(100 * Math.max(0, step.before - step.after)) / top}%` } }),
          ),
          h("span", { class: "share" }, short(step.after - step.before)),
        ),
      ),
    ),
  ];
}
