// All steps in the order of the paper. Steps that do not apply to a network are left out.

import { attentionKinds } from "./attention_kinds.js";
import { beamTree } from "./beam_tree.js";
import { embedding } from "./embedding.js";
import { experts } from "./experts.js";
import { feedForward } from "./feed_forward.js";
import { gates } from "./gates.js";
import { headAblation } from "./head_ablation.js";
import { headOutput } from "./head_output.js";
import { heads } from "./heads.js";
import { mixing } from "./mixing.js";
import { output } from "./output.js";
import { player } from "./player.js";
import { pooling } from "./pooling.js";
import { positions } from "./positions.js";
import { projection } from "./projection.js";
import { residual } from "./residual.js";
import { scores } from "./scores.js";
import { tokens } from "./tokens.js";
import { weightedSum } from "./weighted_sum.js";

/**
 * @typedef {object} Step
 * @property {string} id
 * @property {string} title
 * @property {string} section section of the paper, or an empty string
 * @property {(here: any) => string[]} here names of the boxes of the map to highlight
 * @property {(trace: any) => boolean} exists
 * @property {(root: HTMLElement, here: any) => Promise<void>} show
 */

/** @type {Step[]} */
const ALL = [
  tokens,
  embedding,
  positions,
  gates,
  projection,
  scores,
  weightedSum,
  heads,
  attentionKinds,
  residual,
  feedForward,
  experts,
  mixing,
  pooling,
  headOutput,
  output,
  player,
  beamTree,
  headAblation,
];

/** @param {import("../api.js").Trace} trace */
export function stepsOf(trace) {
  return ALL.filter((step) => step.exists(trace));
}
