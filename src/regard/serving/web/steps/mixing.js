// Step: layer mixing of ELMo, a learned weighted average of all layers.

import { computationDetails } from "../computation_details.js";
import { h } from "../dom.js";
import { formula, paragraph } from "../locations.js";
import { exact, percent } from "../numbers.js";

export const mixing = {
  id: "mixing",
  title: "Layer mixing",
  section: "",
  here: () => ["encoder.mixing"],
  exists: (/** @type {any} */ trace) => trace.has("encoder.mixing.shares"),
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace }) {
    const weights = /** @type {[string, number][]} */ (Object.entries(trace.outline.mixing));
    const names = weights.map((_, n) => `encoder.${n ? n - 1 : "embedding"}.states`);
    const part = { rows: [0, 1], columns: [0, 1] };
    const [scale, mixed, ...layers] = await Promise.all([
      trace.request("weight", { name: "encoder.mixing.scale" }),
      trace.tensor("encoder.states", part),
      ...names.map((name) => trace.tensor(name, part)),
    ]);
    const factor = [scale.values].flat()[0];
    const details = computationDetails();
    const sum = weights.reduce((total, [, share], n) => total + share * layers[n].values[0][0], 0);
    details.show(`${mixed.labels[0][0]}, unit 0`, [
      {
        name: "x",
        expression: `${exact(factor)} × (${weights.map(([, share], n) => `${exact(share)} · ${exact(layers[n].values[0][0])}`).join(" + ")})`,
        computed: factor * sum,
        modelValue: mixed.values[0][0],
      },
    ]);
    root.append(
      paragraph(
        "Lower layers represent more of a word's form, higher layers more of its meaning in context. The vector of a token is a weighted average of all layers; the weights are learned and the same for every token.",
      ),
      formula("x = γ · (s₀ · embedding + s₁ · layer 0 + …)"),
      h(
        "ol",
        { class: "candidates" },
        weights.map(([name, share]) =>
          h(
            "li",
            {},
            h(
              "div",
              { class: "candidate" },
              h("span", {}, name),
              h("span", { class: "bar" }, h("span", { style: { width: `${100 * share}%` } })),
              h("span", { class: "percentage" }, percent(share)),
            ),
          ),
        ),
      ),
      details.element,
    );
  },
};
