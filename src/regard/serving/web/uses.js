// What a model is for: the view that shows it at work, what that is called, and a text to begin with.

import { showClassify } from "./classify.js";
import { showCompare } from "./compare.js";
import { showFill } from "./fill.js";
import { showGenerate } from "./generate.js";
import { showTag } from "./tag.js";
import { showTranslate } from "./translate.js";

/**
 * @typedef {object} Use
 * @property {string} title
 * @property {(root: HTMLElement, app: any, state: any) => Promise<void>} show
 * @property {(about: any) => string} says what the model does
 * @property {string} example
 */

const GREETING = "I would like two coffees, please.";

/** By the first thing that the server says of a model. @type {Record<string, Use>} */
const USES = {
  translate: {
    title: "Translate",
    show: showTranslate,
    says: ({ source, target }) => `Translates ${source.name} to ${target.name}.`,
    example: GREETING,
  },
  generate: { title: "Go on", show: showGenerate, says: () => "Goes on with texts.", example: "Once upon a time" },
  classify: {
    title: "Classify",
    show: showClassify,
    says: ({ settings }) =>
      `Gives texts one of ${settings.head.labels.length} labels: ${settings.head.labels.join(", ")}.`,
    example: GREETING,
  },
  tag: {
    title: "Tag",
    show: showTag,
    says: ({ settings }) =>
      `Gives words one of ${settings.head.labels.length} tags: ${settings.head.labels.join(", ")}.`,
    example: "Ada Lovelace lived in London .",
  },
  fill: {
    title: "Fill in",
    show: showFill,
    says: () => "Guesses words that are hidden.",
    example: "I would like two [MASK], please.",
  },
  embed: { title: "Compare", show: showCompare, says: () => "Gives vectors for texts.", example: GREETING },
};

/** @param {any} about @returns {Use} */
export function useOf(about) {
  return USES[about.abilities[0]];
}
