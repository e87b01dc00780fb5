// Step: output logits and softmax.

import { MAX_VALUES } from "../api.js";
import { softmax } from "../arithmetic.js";
import { candidates } from "../candidates.js";
import { computationDetails, matrixProduct, softmaxTerms } from "../computation_details.js";
import { h } from "../dom.js";
import { formula, menu, menus, paragraph } from "../locations.js";

export const output = {
  id: "output",
  title: "Logits and softmax",
  section: "§3.4",
  here: () => ["output.logits", "output.probabilities"],
  exists: (/** @type {any} */ trace) => trace.has("output.logits") && trace.outline.steps.length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state }) {
    const { steps, model } = trace.outline;
    const time = Math.min(state.time, steps.length - 1);
    const step = steps[time];
    const details = computationDetails();
    root.append(
      paragraph(
        `The last hidden state is multiplied by one weight column for each of the ${model.vocab_size.toLocaleString("en")} tokens, which gives the logits. Softmax converts them to probabilities of the next token.`,
      ),
      formula("p = softmax(state · W)"),
      menus(
        menu(
          "time",
          "Step",
          steps.map((/** @type {any} */ item, /** @type {number} */ n) => [n, `${n}: ${item.input_token} → ${item.token}`]),
          time,
          (item) => ({ time: Number(item) }),
        ),
      ),
    );
    const few = model.vocab_size <= MAX_VALUES;
    const row = few ? (await trace.tensor(`output.logits@${time}`)).values[0] : null;
    const probabilities = row && softmax(row);
    const choose = async (/** @type {number} */ id) => {
      const cell = await trace.product("output.logits", time, id);
      const known = step.candidates.find((/** @type {any} */ item) => item.id === id)?.probability ?? step.probability;
      const calculations = [matrixProduct("logit", cell)];
      if (row && probabilities) calculations.push({ name: "softmax", expression: softmaxTerms(row, id), computed: probabilities[id], modelValue: known });
      details.show(step.candidates.find((/** @type {any} */ item) => item.id === id)?.token ?? step.token, calculations);
    };
    root.append(
      h("h3", {}, "Candidates after ", h("code", {}, step.input_token)),
      candidates(step.candidates, step.id, choose),
      details.element,
    );
    await choose(step.candidates[0].id);
  },
};
