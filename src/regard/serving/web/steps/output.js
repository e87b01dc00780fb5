// Step: output logits and softmax.

import { MOST } from "../api.js";
import { softmax } from "../arithmetic.js";
import { candidates } from "../candidates.js";
import { h } from "../dom.js";
import { formula, menu, menus, say } from "../places.js";
import { multiplied, powers, readout } from "../readout.js";

export const output = {
  id: "output",
  title: "Logits and softmax",
  section: "§3.4",
  here: () => ["output.logits", "output.probabilities"],
  exists: (/** @type {any} */ trace) => trace.has("output.logits") && trace.outline.steps.length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state }) {
    const { steps, model } = trace.outline;
    const time = Math.min(state.time, steps.length - 1);
    const step = steps[time];
    const say_ = readout();
    root.append(
      say(
        `The last hidden state is multiplied by one weight column for each of the ${model.vocab_size.toLocaleString("en")} tokens, which gives the logits. Softmax converts them to probabilities of the next token.`,
      ),
      formula("p = softmax(state · W)"),
      menus(
        menu(
          "time",
          "Step",
          steps.map((/** @type {any} */ one, /** @type {number} */ n) => [n, `${n}: ${one.input_token} → ${one.token}`]),
          time,
          (one) => ({ time: Number(one) }),
        ),
      ),
    );
    const few = model.vocab_size <= MOST;
    const row = few ? (await trace.tensor(`output.logits@${time}`)).values[0] : null;
    const shares = row && softmax(row);
    const choose = async (/** @type {number} */ id) => {
      const cell = await trace.product("output.logits", time, id);
      const known = step.candidates.find((/** @type {any} */ one) => one.id === id)?.probability ?? step.probability;
      const sums = [multiplied("logit", cell)];
      if (row && shares) sums.push({ name: "softmax", how: powers(row, id), mine: shares[id], theirs: known });
      say_.show(step.candidates.find((/** @type {any} */ one) => one.id === id)?.token ?? step.token, sums);
    };
    root.append(
      h("h3", {}, "Candidates after ", h("code", {}, step.input_token)),
      candidates(step.candidates, step.id, choose),
      say_.element,
    );
    await choose(step.candidates[0].id);
  },
};
