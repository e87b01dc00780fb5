// Step: the search tree of beam search.

import { h, replace } from "../dom.js";
import { matrix } from "../matrix.js";
import { places, say } from "../places.js";
import { short } from "../numbers.js";
import { note } from "../state.js";
import { drawTree } from "../tree.js";

const STATES = /** @type {Record<string, string>} */ ({
  root: "Start.",
  kept: "Among the best hypotheses, and continued.",
  pruned: "Pruned: other hypotheses had higher scores.",
  finished: "Finished hypothesis.",
  open: "Unfinished when the search ended.",
  cut: "The length limit was reached.",
});

export const tree = {
  id: "tree",
  title: "Beam search tree",
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
          `${STATES[node.state]} log p of this token ${short(node.token_log_probability, 3)} · of the hypothesis ${short(node.log_probability, 3)} · after the length penalty ${short(node.score, 3)}`,
        ),
        branch.attention &&
          matrix({
            title: `Cross-attention when predicting ${node.token}`,
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
          ? `Beam search keeps the ${found.beam} best hypotheses at every step. This is every hypothesis that it considered. Select a node to see its attention.`
          : "Greedy search selects the most probable token at every step, so the tree is a single path.",
      ),
      drawn.element,
      about,
    );
    const best = found.nodes.filter((/** @type {any} */ node) => node.on_best_path);
    const now = best[Math.min(state.time + 1, best.length - 1)];
    await drawn.choose((state.node && found.nodes[state.node]) || now);
  },
};
