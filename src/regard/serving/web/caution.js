// Warning shown next to attention weights.

import { h } from "./dom.js";
import { link } from "./state.js";

/** @param {boolean} [away] whether to link to the step with the switches */
export function caution(away = true) {
  return h(
    "p",
    { class: "caution" },
    h("b", {}, "Attention is not explanation. "),
    "Attention weights show which tokens a head attends to, not what the output depends on: a head with sharp attention may not affect the output at all. To find out, ",
    away ? h("a", { href: link({ step: "switchboard" }) }, "switch it off") : "switch it off",
    " and compare the output.",
  );
}
