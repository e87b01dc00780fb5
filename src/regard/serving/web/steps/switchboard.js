// Step: switch heads and sublayers off, and decode the text again without them.

import { caution } from "../caution.js";
import { h, replace } from "../dom.js";
import { called, places, say } from "../places.js";
import { short } from "../numbers.js";
import { picture } from "../picture.js";
import { note } from "../state.js";

export const switchboard = {
  id: "switchboard",
  title: "Head ablation",
  section: "",
  here: (/** @type {any} */ { trace }) => [
    ...new Set(places(trace, "weights").map((place) => place.replace(/\.\d+\./, "."))),
  ],
  exists: (/** @type {any} */ trace) => trace.outline.steps.length > 0 && places(trace, "weights").length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state }) {
    /** @type {any[]} */
    const heads = await trace.ask("heads");
    const top = Math.max(1e-6, ...heads.map((head) => head.cost ?? 0));
    const board = rowsOf(trace, heads);
    const known = new Set(
      board.flatMap(({ place, some, whole }) => [...some.map((head) => head.name), ...(whole ? [place] : [])]),
    );
    const off = new Set(state.off.split(",").filter((name) => known.has(name)));
    const result = h("div", { class: "result outcome", "aria-live": "polite" });
    let latest = 0;
    const update = async () => {
      latest += 1;
      const turn = latest;
      note({ off: [...off].join(",") });
      for (const one of switches) one.setAttribute("aria-pressed", String(!off.has(one.dataset.name ?? "")));
      if (!off.size) {
        result.removeAttribute("aria-busy");
        return replace(
          result,
          h("p", { class: "note" }, "All heads are on. Switch one off to see the output without it."),
        );
      }
      result.setAttribute("aria-busy", "true");
      try {
        const found = await trace.ask("intervene", { interventions: [...off] });
        if (turn === latest) replace(result, ...difference(found), all);
      } finally {
        if (turn === latest) result.removeAttribute("aria-busy");
      }
    };
    const all = h(
      "p",
      { class: "all" },
      h("button", { type: "button", on: { click: () => (off.clear(), update()) } }, "All on"),
    );
    /** @type {HTMLElement[]} */
    const switches = [];
    const button = (/** @type {string} */ name, /** @type {string} */ text, /** @type {any} */ head) => {
      const one = h(
        "button",
        {
          type: "button",
          class: head ? "switch" : "switch part",
          data: { name },
          "aria-label": `${name}${head ? `, cost ${short(head.cost ?? 0)}` : ""}`,
          on: { click: () => (off.delete(name) || off.add(name), update()) },
        },
        head &&
          h("span", { class: "light", style: { opacity: String(0.8 * Math.sqrt(Math.max(0, head.cost ?? 0) / top)) } }),
        h("span", { class: "switch-name" }, text),
        head && h("span", { class: "switch-cost" }, short(head.cost ?? 0)),
      );
      switches.push(one);
      return one;
    };
    root.append(
      say(
        "Each switch is a head or a whole sublayer. The number is the decrease of the output's log-probability without that head; stronger colors mean larger decreases. When heads are switched off, the text is decoded again with the full search.",
      ),
      picture({
        title: "Cost of removing each head",
        shown: h(
          "div",
          { class: "board" },
          board.map(({ place, some, whole }) =>
            h(
              "div",
              { class: "row", role: "group", "aria-label": called(place) },
              h("span", { class: "row-name" }, called(place)),
              h(
                "div",
                { class: "switches" },
                some.map((head) => button(head.name, `head ${head.head}`, head)),
                whole && button(place, "whole layer", null),
              ),
            ),
          ),
        ),
        table: () => ({
          head: ["head", "cost of removal", "attention entropy"],
          rows: heads.map((head) => [head.name, head.cost, head.entropy]),
        }),
      }),
      result,
      caution(false),
    );
    await update();
  },
};

/** Every sublayer with its heads, in the order of the network. @param {any} trace @param {any[]} heads */
function rowsOf(trace, heads) {
  /** @type {Map<string, any[]>} */
  const rows = new Map();
  /** @type {string[]} */
  const parts = trace.outline.points
    .filter((/** @type {any} */ point) => point.point === "added")
    .map((/** @type {any} */ point) => `${point.stack}.${point.layer}.${point.part.replace(/_residual$/, "")}`);
  for (const place of parts) rows.set(place, []);
  for (const head of heads) {
    const place = [head.stack, head.layer, head.part].filter((part) => part !== null).join(".");
    rows.set(place, [...(rows.get(place) ?? []), head]);
  }
  return [...rows].map(([place, some]) => ({ place, some, whole: parts.includes(place) }));
}

/** @param {any} found */
function difference(found) {
  const [before, after] = [found.before, found.after].map((/** @type {string} */ text) => text.split(/(\s+)/));
  const same = common(before, after);
  const top = Math.max(1e-6, ...found.steps.map((/** @type {any} */ step) => Math.abs(step.before - step.after)));
  return [
    h(
      "dl",
      { class: "compared" },
      h("dt", {}, "all on"),
      h("dd", {}, found.before),
      h("dt", {}, "ablated"),
      h(
        "dd",
        { class: "after" },
        after.map((/** @type {string} */ word, /** @type {number} */ n) => (same.has(n) ? word : h("mark", {}, word))),
        !found.after && h("span", { class: "empty" }, "empty output"),
      ),
    ),
    h(
      "p",
      { class: "note", data: { cost: String(found.cost) } },
      found.same ? "The output is the same. " : `The output differs from step ${found.first_difference} on. `,
      `The log-probability of the original output decreases by ${short(found.cost, 3)}.`,
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

/** Indices in `b` of the longest common subsequence of `a` and `b`. @param {string[]} a @param {string[]} b */
function common(a, b) {
  const longest = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let n = a.length - 1; n >= 0; n -= 1)
    for (let m = b.length - 1; m >= 0; m -= 1)
      longest[n][m] = a[n] === b[m] ? longest[n + 1][m + 1] + 1 : Math.max(longest[n + 1][m], longest[n][m + 1]);
  const found = new Set();
  for (let [n, m] = [0, 0]; n < a.length && m < b.length; ) {
    if (a[n] === b[m]) {
      found.add(m);
      [n, m] = [n + 1, m + 1];
    } else if (longest[n + 1][m] >= longest[n][m + 1]) n += 1;
    else m += 1;
  }
  return found;
}
