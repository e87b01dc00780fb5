// Step: switch heads and sublayers off, and decode the text again without them.

import { h, replace } from "../dom.js";
import { figure } from "../figure.js";
import { attentionWarning, headCount, locationName, locationsWith, paragraph } from "../locations.js";
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
    const board = rowsOf(trace);
    const names = new Set(board.flatMap(({ location, heads, whole }) => [...heads, ...(whole ? [location] : [])]));
    /** @type {any[]} */
    let costs = []; // of the heads; they take a while, and the board is drawn before
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
    const button = (/** @type {string} */ name, /** @type {string} */ text, /** @type {boolean} */ isHead) => {
      const item = h(
        "button",
        {
          type: "button",
          class: isHead ? "switch" : "switch part",
          data: { name },
          "aria-label": name,
          on: { click: () => (off.delete(name) || off.add(name), update()) },
        },
        isHead && h("span", { class: "highlight", style: { opacity: 0 } }),
        h("span", { class: "switch-name" }, text),
        isHead && h("span", { class: "switch-cost" }, "…"),
      );
      switches.push(item);
      return item;
    };
    const showCosts = () => {
      const top = largest(costs.map((head) => head.cost ?? 0));
      for (const head of costs) {
        const item = switches.find(({ dataset }) => dataset.name === head.name);
        if (!item) continue;
        const [color, number] = [...item.children].filter((child) => !child.classList.contains("switch-name"));
        color.classList.toggle("c2", head.cost > 0);
        /** @type {HTMLElement} */ (color).style.setProperty("opacity", String(Math.sqrt(Math.abs(head.cost ?? 0) / top)));
        number.textContent = head.cost === null ? "–" : short(head.cost);
        item.setAttribute("aria-label", `${head.name}, cost ${number.textContent}`);
      }
    };
    root.append(
      paragraph(
        "Each switch is a head or a whole sublayer. The number is the cost of removing that head: the decrease of the output's log-probability. ",
        h("span", { class: "cost-color c2" }, "Orange"),
        ": the output becomes less probable without it. ",
        h("span", { class: "cost-color" }, "Blue"),
        ", a negative cost: more probable. When heads are switched off, the text is decoded again with the full search.",
      ),
      figure({
        title: "Cost of removing each head",
        shown: h(
          "div",
          { class: "board" },
          board.map(({ location, heads, whole }) =>
            h(
              "div",
              { class: "row", role: "group", "aria-label": locationName(location) },
              h("span", { class: "row-name" }, locationName(location)),
              h(
                "div",
                { class: "switches" },
                heads.map((name, n) => button(name, `head ${n}`, true)),
                whole && button(location, "whole layer", false),
              ),
            ),
          ),
        ),
        table: () => ({
          head: ["head", "cost of removal", "attention entropy"],
          rows: costs.map((head) => [head.name, head.cost, head.entropy]),
        }),
      }),
      result,
      attentionWarning(false),
    );
    await update();
    costs = await trace.request("heads");
    showCosts();
  },
};

/** The largest absolute value; at least what is shown as 0.01, so that smaller ones get no color. @param {number[]} values */
function largest(values) {
  return Math.max(0.01, ...values.map(Math.abs));
}

/** Every sublayer with the names of its heads, in the order of the network. @param {any} trace */
function rowsOf(trace) {
  /** @type {Map<string, string[]>} */
  const rows = new Map();
  /** @type {string[]} */
  const parts = trace.outline.points
    .filter((/** @type {any} */ point) => point.point === "added")
    .map((/** @type {any} */ point) => `${point.stack}.${point.layer}.${point.part.replace(/_residual$/, "")}`);
  for (const location of parts) rows.set(location, []);
  for (const location of locationsWith(trace, "weights")) {
    const isLayer = /\.\d+\./.test(location); // the attention of a recurrent network is one head without a number
    const count = isLayer ? headCount(trace, location) : 1;
    rows.set(location, Array.from({ length: count }, (_, n) => (isLayer ? `${location}[${n}]` : location)));
  }
  return [...rows].map(([location, heads]) => ({ location, heads, whole: parts.includes(location) }));
}

/** @param {any} comparison */
function difference(comparison) {
  const [before, after] = [comparison.before, comparison.after].map((/** @type {string} */ text) => text.split(/(\s+)/));
  const same = commonSubsequence(before, after);
  const costs = comparison.steps.map((/** @type {any} */ step) => step.before - step.after);
  const top = largest(costs);
  return [
    h(
      "dl",
      { class: "compared" },
      h("dt", {}, "all on"),
      h("dd", { dir: "auto" }, comparison.before),
      h("dt", {}, "ablated"),
      h(
        "dd",
        { class: "after", dir: "auto" },
        after.map((/** @type {string} */ word, /** @type {number} */ n) => (same.has(n) ? word : h("mark", {}, word))),
        !comparison.after && h("span", { class: "empty" }, "empty output"),
      ),
    ),
    h(
      "p",
      { class: "note", data: { cost: String(comparison.cost) } },
      comparison.same ? "The output is the same. " : `The output differs from step ${comparison.first_difference} on. `,
      `The log-probability of the original output ${comparison.cost < 0 ? "increases" : "decreases"} by ${short(Math.abs(comparison.cost), 3)}. Cost of each token:`,
    ),
    h(
      "ol",
      { class: "step-costs" },
      comparison.steps.map((/** @type {any} */ step, /** @type {number} */ n) =>
        h(
          "li",
          {},
          h("code", { dir: "auto" }, step.token),
          h(
            "span",
            { class: costs[n] > 0 ? "bar c2" : "bar" },
            h("span", { style: { width: `${(100 * Math.abs(costs[n])) / top}%` } }),
          ),
          h("span", { class: "percentage" }, short(costs[n])),
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
