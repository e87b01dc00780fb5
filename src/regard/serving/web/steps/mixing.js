// Step: layer mixing of ELMo, a learned weighted average of all layers.

import { h } from "../dom.js";
import { exact, percent } from "../numbers.js";
import { formula, say } from "../places.js";
import { readout } from "../readout.js";

export const mixing = {
  id: "mixing",
  title: "Layer mixing",
  section: "",
  here: () => ["encoder.mixing"],
  exists: (/** @type {any} */ trace) => trace.has("encoder.mixing.shares"),
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace }) {
    const shares = /** @type {[string, number][]} */ (Object.entries(trace.outline.mixing));
    const names = shares.map((_, n) => `encoder.${n ? n - 1 : "embedding"}.states`);
    const part = { rows: [0, 1], columns: [0, 1] };
    const [scale, mixed, ...layers] = await Promise.all([
      trace.ask("weight", { name: "encoder.mixing.scale" }),
      trace.tensor("encoder.states", part),
      ...names.map((name) => trace.tensor(name, part)),
    ]);
    const factor = [scale.values].flat()[0];
    const told = readout();
    const sum = shares.reduce((total, [, share], n) => total + share * layers[n].values[0][0], 0);
    told.show(`${mixed.labels[0][0]}, unit 0`, [
      {
        name: "x",
        how: `${exact(factor)} × (${shares.map(([, share], n) => `${exact(share)} · ${exact(layers[n].values[0][0])}`).join(" + ")})`,
        mine: factor * sum,
        theirs: mixed.values[0][0],
      },
    ]);
    root.append(
      say(
        "Lower layers represent more of a word's form, higher layers more of its meaning in context. The vector of a token is a weighted average of all layers; the weights are learned and the same for every token.",
      ),
      formula("x = γ · (s₀ · embedding + s₁ · layer 0 + …)"),
      h(
        "ol",
        { class: "candidates" },
        shares.map(([name, share]) =>
          h(
            "li",
            {},
            h(
              "div",
              { class: "candidate" },
              h("span", {}, name),
              h("span", { class: "bar" }, h("span", { style: { width: `${100 * share}%` } })),
              h("span", { class: "share" }, percent(share)),
            ),
          ),
        ),
      ),
      told.element,
    );
  },
};
