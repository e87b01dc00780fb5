// The tree of the beam search.

import { h, replace } from "../dom.js";
import { matrix } from "../matrix.js";
import { places, say } from "../places.js";
import { short } from "../numbers.js";
import { note } from "../state.js";
import { drawTree } from "../tree.js";

const STATES = /** @type {Record<string, string>} */ ({
  root: "The beginning.",
  kept: "It was among the best, and was continued.",
  pruned: "Others were better: it was given up.",
  finished: "It ended here, and was kept aside.",
  open: "The search ended while this was still among the best.",
  cut: "There was no more room.",
});

export const tree = {
  id: "tree",
  title: "The beam tree",
  section: "§6.1",
  here: () => ["output.probabilities", "decoder.input"],
  exists: (/** @type {any} */ trace) => trace.outline.search !== null,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state }) {
    const found = await trace.ask("tree");
    const about = h("div", { class: "result", "aria-live": "polite" });
    const crossing = places(trace, "weights").filter((place) => place.includes("cross_attention"));
    let latest = 0;
    const choose = async (/** @type {any} */ node) => {
      latest += 1;
      const turn = latest;
      const branch = await trace.ask("node", {
        node: node.number,
        ...(crossing.length ? { at: crossing.at(-1) } : {}),
      });
      if (turn !== latest) return;
      replace(
        about,
        h("p", { class: "where" }, branch.text || node.token),
        h(
          "p",
          { class: "note" },
          `${STATES[node.state]} log p of this token ${short(node.token_log_probability, 3)} · of the whole ${short(node.log_probability, 3)} · after the length penalty ${short(node.score, 3)}`,
        ),
        branch.attention &&
          matrix({
            title: `Where it looked when it wrote ${node.token}`,
            note: crossing.at(-1),
            values: branch.attention.values,
            rows: branch.attention.values.map((/** @type {any} */ _, /** @type {number} */ n) => `head ${n}`),
            columns: branch.attention.labels,
            top: 1,
          }).element,
      );
    };
    const drawn = drawTree(found, choose, (node) => note({ node: node.number }));
    root.append(
      say(
        found.beam > 1
          ? `Beam search keeps the ${found.beam} best beginnings at every step; here is everything that it looked at. Choose a node to see its attention.`
          : "Greedy search takes the best token at every step: its tree is one path.",
      ),
      drawn.element,
      about,
    );
    const best = found.nodes.filter((/** @type {any} */ node) => node.on_best_path);
    const now = best[Math.min(state.time + 1, best.length - 1)];
    await drawn.choose((state.node && found.nodes[state.node]) || now);
  },
};
