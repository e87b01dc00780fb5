// All steps in the order of the paper. Steps that do not apply to a network are left out.

import { embedding } from "./embedding.js";
import { feedForward } from "./feed_forward.js";
import { gates } from "./gates.js";
import { heads } from "./heads.js";
import { kinds } from "./kinds.js";
import { output } from "./output.js";
import { mixing } from "./mixing.js";
import { player } from "./player.js";
import { pooling } from "./pooling.js";
import { positions } from "./positions.js";
import { projection } from "./projection.js";
import { reading } from "./reading.js";
import { residual } from "./residual.js";
import { scores } from "./scores.js";
import { switchboard } from "./switchboard.js";
import { tokens } from "./tokens.js";
import { tree } from "./tree.js";
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
  kinds,
  residual,
  feedForward,
  mixing,
  pooling,
  reading,
  output,
  player,
  tree,
  switchboard,
];

/** @param {import("../api.js").Trace} trace */
export function stepsOf(trace) {
  return ALL.filter((step) => step.exists(trace));
}
