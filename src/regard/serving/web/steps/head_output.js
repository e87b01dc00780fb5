// Step: the head of an encoder computes logits and probabilities of labels, tags or tokens.

import { MAX_VALUES } from "../api.js";
import { softmax } from "../arithmetic.js";
import { candidates } from "../candidates.js";
import { computationDetails, matrixProduct, softmaxTerms } from "../computation_details.js";
import { h } from "../dom.js";
import { formula, menu, menus, paragraph } from "../locations.js";

/** @type {Record<string, string>} */
const DESCRIPTIONS = {
  classes: "The vector of the text is multiplied by one weight column per label, which gives the logits.",
  tags: "The vector of each token is multiplied by one weight column per tag, which gives the logits. A word gets the tag of its first token.",
  tokens:
    "The vector at each position is multiplied by one weight column per token of the vocabulary, which gives the logits.",
};

export const headOutput = {
  id: "head_output",
  title: "Head: logits and softmax",
  section: "",
  here: () => ["head.logits", "head.probabilities"],
  exists: (/** @type {any} */ trace) => Boolean(trace.outline.head),
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state }) {
    /** @type {{kind: string, predictions: any[]}} */
    const { kind, predictions } = trace.outline.head;
    const number = Math.min(state.time ? state.time - 1 : firstOf(predictions), predictions.length - 1); // 0: no position selected
    const prediction = predictions[number];
    const at = prediction.direction ? `head.${prediction.direction}.logits` : "head.logits";
    const row = rowOf(prediction);
    const scores = await logits(trace, at, kind === "classes" ? null : row);
    const probabilities = scores && softmax(scores);
    const details = computationDetails();
    const choose = async (/** @type {number} */ id) => {
      const cell = await trace.product(at, row, id);
      const known = prediction.candidates.find((/** @type {any} */ candidate) => candidate.id === id);
      const calculations = [matrixProduct("logit", cell)];
      if (scores && probabilities)
        calculations.push({ name: "softmax", expression: softmaxTerms(scores, id), computed: probabilities[id], modelValue: known.probability });
      details.show(known.token, calculations);
    };
    root.append(
      paragraph(DESCRIPTIONS[kind], " Softmax converts them to probabilities."),
      formula(formulaOf(trace, kind)),
      predictions.length > 1
        ? menus(
            menu(
              "position",
              "Position",
              predictions.map((other, n) => [
                n + 1,
                `${other.position}: ${other.token}${other.direction ? `, ${other.direction}` : ""}`,
              ]),
              number + 1,
              (chosen) => ({ time: Number(chosen) }),
            ),
          )
        : "",
      h("h3", {}, ...heading(kind, prediction)),
      candidates(prediction.candidates, prediction.candidates[0].id, choose),
      details.element,
    );
    await choose(prediction.candidates[0].id);
  },
};

/** Initial position: the first mask, else the first token of the text. @param {any[]} predictions */
function firstOf(predictions) {
  const maskIndex = predictions.findIndex((prediction) => /mask/i.test(prediction.token ?? ""));
  return maskIndex >= 0 ? maskIndex : Math.min(1, predictions.length - 1);
}

/** Row of the logits of a prediction: in a bidirectional language model, a token is predicted at its neighbor. @param {any} prediction */
function rowOf({ position, direction }) {
  return (position ?? 0) + (direction === "forwards" ? -1 : direction === "backwards" ? 1 : 0);
}

/** @param {any} trace @param {string} at @param {number | null} row null: there is only one row @returns {Promise<number[] | null>} */
async function logits(trace, at, row) {
  if (row === null) return (await trace.tensor(at)).values;
  if (at !== "head.logits" || trace.outline.head.kind === "tokens") {
    if (trace.outline.model.vocab_size > MAX_VALUES) return null;
  }
  return (await trace.tensor(at, { rows: [row, row + 1] })).values[0];
}

/** @param {any} trace @param {string} kind */
function formulaOf(trace, kind) {
  if (kind === "classes") return "p = softmax(v · W + b)";
  if (!trace.has("head.norm.norm_input")) return "p = softmax(x · W + b)";
  return "h = LayerNorm(act(x · W_dense + b_dense))     p = softmax(h · W + b)";
}

/** @param {string} kind @param {any} prediction */
function heading(kind, prediction) {
  if (kind === "classes") return ["Labels of the text"];
  if (kind === "tags") return ["Tags of ", h("code", {}, prediction.token)];
  const side = prediction.direction === "forwards" ? ", from the left context" : prediction.direction ? ", from the right context" : "";
  return ["Predictions at ", h("code", {}, prediction.token), side];
}
