// Step: the head of an encoder computes logits and probabilities of labels, tags or tokens.

import { MOST } from "../api.js";
import { softmax } from "../arithmetic.js";
import { candidates } from "../candidates.js";
import { h } from "../dom.js";
import { formula, menu, menus, say } from "../places.js";
import { multiplied, powers, readout } from "../readout.js";

/** @type {Record<string, string>} */
const SAYS = {
  classes: "The vector of the text is multiplied by one weight column per label, which gives the logits.",
  tags: "The vector of each token is multiplied by one weight column per tag, which gives the logits. A word gets the tag of its first token.",
  tokens:
    "The vector at each position is multiplied by one weight column per token of the vocabulary, which gives the logits.",
};

export const reading = {
  id: "reading",
  title: "Head: logits and softmax",
  section: "",
  here: () => ["head.logits", "head.probabilities"],
  exists: (/** @type {any} */ trace) => Boolean(trace.outline.head),
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state }) {
    /** @type {{kind: string, predictions: any[]}} */
    const { kind, predictions: readings } = trace.outline.head;
    const number = Math.min(state.time ? state.time - 1 : firstOf(readings), readings.length - 1); // 0: no position selected
    const one = readings[number];
    const at = one.direction ? `head.${one.direction}.logits` : "head.logits";
    const row = rowOf(one);
    const seen = await logits(trace, at, kind === "classes" ? null : row);
    const shares = seen && softmax(seen);
    const told = readout();
    const choose = async (/** @type {number} */ id) => {
      const cell = await trace.product(at, row, id);
      const known = one.candidates.find((/** @type {any} */ other) => other.id === id);
      const sums = [multiplied("logit", cell)];
      if (seen && shares)
        sums.push({ name: "softmax", how: powers(seen, id), mine: shares[id], theirs: known.probability });
      told.show(known.token, sums);
    };
    root.append(
      say(SAYS[kind], " Softmax converts them to probabilities."),
      formula(formulaOf(trace, kind)),
      readings.length > 1
        ? menus(
            menu(
              "reading",
              "Position",
              readings.map((other, n) => [
                n + 1,
                `${other.position}: ${other.token}${other.direction ? `, ${other.direction}` : ""}`,
              ]),
              number + 1,
              (chosen) => ({ time: Number(chosen) }),
            ),
          )
        : "",
      h("h3", {}, ...heading(kind, one)),
      candidates(one.candidates, one.candidates[0].id, choose),
      told.element,
    );
    await choose(one.candidates[0].id);
  },
};

/** Initial position: the first mask, else the first token of the text. @param {any[]} readings */
function firstOf(readings) {
  const hole = readings.findIndex((one) => /mask/i.test(one.token ?? ""));
  return hole >= 0 ? hole : Math.min(1, readings.length - 1);
}

/** Row of the logits of a prediction: in a bidirectional language model, a token is predicted at its neighbor. @param {any} one */
function rowOf({ position, direction }) {
  return (position ?? 0) + (direction === "forwards" ? -1 : direction === "backwards" ? 1 : 0);
}

/** @param {any} trace @param {string} at @param {number | null} row null: there is only one row @returns {Promise<number[] | null>} */
async function logits(trace, at, row) {
  if (row === null) return (await trace.tensor(at)).values;
  if (at !== "head.logits" || trace.outline.head.kind === "tokens") {
    if (trace.outline.model.vocab_size > MOST) return null;
  }
  return (await trace.tensor(at, { rows: [row, row + 1] })).values[0];
}

/** @param {any} trace @param {string} kind */
function formulaOf(trace, kind) {
  if (kind === "classes") return "p = softmax(v · W + b)";
  if (!trace.has("head.norm.norm_input")) return "p = softmax(x · W + b)";
  return "h = LayerNorm(act(x · W_dense + b_dense))     p = softmax(h · W + b)";
}

/** @param {string} kind @param {any} one */
function heading(kind, one) {
  if (kind === "classes") return ["Labels of the text"];
  if (kind === "tags") return ["Tags of ", h("code", {}, one.token)];
  const side = one.direction === "forwards" ? ", from the left context" : one.direction ? ", from the right context" : "";
  return ["Predictions at ", h("code", {}, one.token), side];
}
