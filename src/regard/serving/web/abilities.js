// The view of each ability of a model: its title, description and example text.

import { showClassify } from "./classify.js";
import { showCompare } from "./compare.js";
import { showFill } from "./fill.js";
import { showGenerate } from "./generate.js";
import { showTag } from "./tag.js";
import { showTranslate } from "./translate.js";

/**
 * @typedef {object} Ability
 * @property {string} title
 * @property {(root: HTMLElement, app: any, state: any) => Promise<void>} show
 * @property {(about: any) => string} description describes the model
 * @property {string} example
 */

const GREETING = "I would like two coffees, please.";

/** By the first ability that the server lists. @type {Record<string, Ability>} */
const ABILITIES = {
  translate: {
    title: "Translate",
    show: showTranslate,
    description: ({ source, target }) => `Translates ${source.name} to ${target.name}.`,
    example: GREETING,
  },
  generate: { title: "Generate", show: showGenerate, description: () => "Continues texts.", example: "Once upon a time" },
  classify: {
    title: "Classify",
    show: showClassify,
    description: ({ settings }) =>
      `Assigns texts one of ${settings.head.labels.length} labels: ${settings.head.labels.join(", ")}.`,
    example: GREETING,
  },
  tag: {
    title: "Tag",
    show: showTag,
    description: ({ settings }) =>
      `Assigns words one of ${settings.head.labels.length} tags: ${settings.head.labels.join(", ")}.`,
    example: "Ada Lovelace lived in London .",
  },
  fill: {
    title: "Fill masks",
    show: showFill,
    description: () => "Predicts masked words.",
    example: "I would like two [MASK], please.",
  },
  embed: { title: "Compare", show: showCompare, description: () => "Computes embeddings of texts.", example: GREETING },
};

/** @param {any} about @returns {Ability} */
export function abilityOf(about) {
  return ABILITIES[about.abilities[0]];
}
