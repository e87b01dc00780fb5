// Step: the search tree of beam search.

import { h, replace } from "../dom.js";
import { locationsWith, paragraph } from "../locations.js";
import { matrix } from "../matrix.js";
import { short } from "../numbers.js";
import { updateUrl } from "../state.js";
import { drawTree } from "../tree_figure.js";

const STATES = /** @type {Record<string, string>} */ ({
  root: "Start.",
  kept: "Among the best hypotheses, and continued.",
  pruned: "Pruned: other hypotheses had higher scores.",
  finished: "Finished hypothesis.",
  open: "Unfinished when the search ended.",
  cut: "The length limit was reached.",
});

export const beamTree = {
  id: "tree",
  title: "Beam search tree",
  section: "§6.1",
  here: () => ["output.probabilities", "decoder.input"],
  exists: (/** @type {any} */ trace) => trace.outline.search !== null,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state }) {
    const searchTree = await trace.request("tree");
    const about = h("div", { class: "result", "aria-live": "polite" });
    const crossAttentions = locationsWith(trace, "weights").filter((location) => location.includes("cross_attention"));
    let callCount = 0;
    const choose = async (/** @type {any} */ node) => {
      callCount += 1;
      const ownCount = callCount;
      const branch = await trace.request("node", {
        node: node.number,
        ...(crossAttentions.length ? { at: crossAttentions.at(-1) } : {}),
      });
      if (ownCount !== callCount) return;
      replace(
        about,
        h("p", { class: "location", dir: "auto" }, branch.text || node.token),
        h(
          "p",
          { class: "note" },
          `${STATES[node.state]} log p of this token ${short(node.token_log_probability, 3)} · of the hypothesis ${short(node.log_probability, 3)} · after the length penalty ${short(node.score, 3)}`,
        ),
        branch.attention &&
          matrix({
            title: `Cross-attention when predicting ${node.token}`,
            note: crossAttentions.at(-1),
            values: branch.attention.values,
            rows: branch.attention.values.map((/** @type {any} */ _, /** @type {number} */ n) => `head ${n}`),
            columns: branch.attention.labels,
            top: 1,
          }).element,
      );
    };
    const drawn = drawTree(searchTree, choose, (node) => updateUrl({ node: node.number }));
    root.append(
      paragraph(
        searchTree.beam > 1
          ? `Beam search keeps the ${searchTree.beam} best hypotheses at every step. This is every hypothesis that it considered. Select a node to see its attention.`
          : "Greedy search selects the most probable token at every step, so the tree is a single path.",
      ),
      drawn.element,
      about,
    );
    const best = searchTree.nodes.filter((/** @type {any} */ node) => node.on_best_path);
    const now = best[Math.min(state.time + 1, best.length - 1)];
    await drawn.choose((state.node && searchTree.nodes[state.node]) || now);
  },
};
