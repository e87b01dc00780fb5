// What an encoder's head tells: vectors become logits of labels, tags or tokens, and logits probabilities.

import { MOST } from "../api.js";
import { softmax } from "../arithmetic.js";
import { candidates } from "../candidates.js";
import { h } from "../dom.js";
import { formula, menu, menus, say } from "../places.js";
import { multiplied, powers, readout } from "../readout.js";

/** @type {Record<string, string>} */
const SAYS = {
  classes: "The vector of the text is multiplied by a column for each label: a logit each.",
  tags: "The vector of each token is multiplied by a column for each tag: a logit each. A word has the tag of its first token.",
  tokens:
    "The vector at each place is multiplied by a column for each token of the vocabulary: how well it would stand there.",
};

export const reading = {
  id: "reading",
  title: "What the head tells",
  section: "",
  here: () => ["head.logits", "head.probabilities"],
  exists: (/** @type {any} */ trace) => Boolean(trace.outline.head),
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state }) {
    /** @type {{kind: string, predictions: any[]}} */
    const { kind, predictions: readings } = trace.outline.head;
    const number = Math.min(state.time ? state.time - 1 : firstOf(readings), readings.length - 1); // 0 is: not said
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
      say(SAYS[kind], " Softmax makes them probabilities."),
      formula(formulaOf(trace, kind)),
      readings.length > 1
        ? menus(
            menu(
              "reading",
              "Where",
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

/** Where to begin: at a hole, else at the first token that is text. @param {any[]} readings */
function firstOf(readings) {
  const hole = readings.findIndex((one) => /mask/i.test(one.token ?? ""));
  return hole >= 0 ? hole : Math.min(1, readings.length - 1);
}

/** The row of the logits that a reading comes from: where two directions read, a token is guessed at its neighbour. @param {any} one */
function rowOf({ position, direction }) {
  return (position ?? 0) + (direction === "forwards" ? -1 : direction === "backwards" ? 1 : 0);
}

/** @param {any} trace @param {string} at @param {number | null} row null: there is only one @returns {Promise<number[] | null>} */
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
  if (kind === "classes") return ["The labels of the text"];
  if (kind === "tags") return ["The tags of ", h("code", {}, one.token)];
  const side = one.direction === "forwards" ? ", from what is before" : one.direction ? ", from what is after" : "";
  return ["What could stand at ", h("code", {}, one.token), side];
}
