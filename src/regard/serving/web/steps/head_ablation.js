// Step: switch heads and sublayers off, and decode the text again without them.

import { h, replace } from "../dom.js";
import { figure } from "../figure.js";
import { attentionWarning, locationName, locationsWith, paragraph } from "../locations.js";
import { short } from "../numbers.js";
import { updateUrl } from "../state.js";

export const headAblation = {
  id: "switchboard",
  title: "Head ablation",
  section: "",
  here: (/** @type {any} */ { trace }) => [
    ...new Set(locationsWith(trace, "weights").map((location) => location.replace(/\.\d+\./, "."))),
  ],
  exists: (/** @type {any} */ trace) => trace.outline.steps.length > 0 && locationsWith(trace, "weights").length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state }) {
    /** @type {any[]} */
    const heads = await trace.request("heads");
    const top = Math.max(1e-6, ...heads.map((head) => head.cost ?? 0));
    const board = rowsOf(trace, heads);
    const names = new Set(
      board.flatMap(({ location, rowHeads, whole }) => [...rowHeads.map((head) => head.name), ...(whole ? [location] : [])]),
    );
    const off = new Set(state.off.split(",").filter((name) => names.has(name)));
    const result = h("div", { class: "result ablation-result", "aria-live": "polite" });
    let callCount = 0;
    const update = async () => {
      callCount += 1;
      const ownCount = callCount;
      updateUrl({ off: [...off].join(",") });
      for (const item of switches) item.setAttribute("aria-pressed", String(!off.has(item.dataset.name ?? "")));
      if (!off.size) {
        result.removeAttribute("aria-busy");
        return replace(
          result,
          h("p", { class: "note" }, "All heads are on. Switch one off to see the output without it."),
        );
      }
      result.setAttribute("aria-busy", "true");
      try {
        const comparison = await trace.request("intervene", { interventions: [...off] });
        if (ownCount === callCount) replace(result, ...difference(comparison), all);
      } finally {
        if (ownCount === callCount) result.removeAttribute("aria-busy");
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
      const item = h(
        "button",
        {
          type: "button",
          class: head ? "switch" : "switch part",
          data: { name },
          "aria-label": `${name}${head ? `, cost ${short(head.cost ?? 0)}` : ""}`,
          on: { click: () => (off.delete(name) || off.add(name), update()) },
        },
        head &&
          h("span", { class: "highlight", style: { opacity: String(0.8 * Math.sqrt(Math.max(0, head.cost ?? 0) / top)) } }),
        h("span", { class: "switch-name" }, text),
        head && h("span", { class: "switch-cost" }, short(head.cost ?? 0)),
      );
      switches.push(item);
      return item;
    };
    root.append(
      paragraph(
        "Each switch is a head or a whole sublayer. The number is the decrease of the output's log-probability without that head; stronger colors mean larger decreases. When heads are switched off, the text is decoded again with the full search.",
      ),
      figure({
        title: "Cost of removing each head",
        shown: h(
          "div",
          { class: "board" },
          board.map(({ location, rowHeads, whole }) =>
            h(
              "div",
              { class: "row", role: "group", "aria-label": locationName(location) },
              h("span", { class: "row-name" }, locationName(location)),
              h(
                "div",
                { class: "switches" },
                rowHeads.map((head) => button(head.name, `head ${head.head}`, head)),
                whole && button(location, "whole layer", null),
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
      attentionWarning(false),
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
  for (const location of parts) rows.set(location, []);
  for (const head of heads) {
    const location = [head.stack, head.layer, head.part].filter((part) => part !== null).join(".");
    rows.set(location, [...(rows.get(location) ?? []), head]);
  }
  return [...rows].map(([location, rowHeads]) => ({ location, rowHeads, whole: parts.includes(location) }));
}

/** @param {any} comparison */
function difference(comparison) {
  const [before, after] = [comparison.before, comparison.after].map((/** @type {string} */ text) => text.split(/(\s+)/));
  const same = commonSubsequence(before, after);
  const top = Math.max(1e-6, ...comparison.steps.map((/** @type {any} */ step) => Math.abs(step.before - step.after)));
  return [
    h(
      "dl",
      { class: "compared" },
      h("dt", {}, "all on"),
      h("dd", {}, comparison.before),
      h("dt", {}, "ablated"),
      h(
        "dd",
        { class: "after" },
        after.map((/** @type {string} */ word, /** @type {number} */ n) => (same.has(n) ? word : h("mark", {}, word))),
        !comparison.after && h("span", { class: "empty" }, "empty output"),
      ),
    ),
    h(
      "p",
      { class: "note", data: { cost: String(comparison.cost) } },
      comparison.same ? "The output is the same. " : `The output differs from step ${comparison.first_difference} on. `,
      `The log-probability of the original output decreases by ${short(comparison.cost, 3)}.`,
    ),
    h(
      "ol",
      { class: "step-costs" },
      comparison.steps.map((/** @type {any} */ step) =>
        h(
          "li",
          {},
          h("code", {}, step.token),
          h(
            "span",
            { class: "bar c2" },
            h("span", { style: { width: `${(100 * Math.max(0, step.before - step.after)) / top}%` } }),
          ),
          h("span", { class: "percentage" }, short(step.after - step.before)),
        ),
      ),
    ),
  ];
}

/** Indices in `b` of the longest common subsequence of `a` and `b`. @param {string[]} a @param {string[]} b */
function commonSubsequence(a, b) {
  const longest = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let n = a.length - 1; n >= 0; n -= 1)
    for (let m = b.length - 1; m >= 0; m -= 1)
      longest[n][m] = a[n] === b[m] ? longest[n + 1][m + 1] + 1 : Math.max(longest[n + 1][m], longest[n][m + 1]);
  const indices = new Set();
  for (let [n, m] = [0, 0]; n < a.length && m < b.length; ) {
    if (a[n] === b[m]) {
      indices.add(m);
      [n, m] = [n + 1, m + 1];
    } else if (longest[n + 1][m] >= longest[n][m + 1]) n += 1;
    else m += 1;
  }
  return indices;
}
