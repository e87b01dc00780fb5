// What must be said wherever heads are shown.

import { h } from "./dom.js";
import { link } from "./state.js";

/** @param {boolean} [away] whether the switches are elsewhere */
export function caution(away = true) {
  return h(
    "p",
    { class: "caution" },
    h("b", {}, "Attention is not explanation. "),
    "Weights say where a head looks, not what the output depends on: a head may look sharply and change nothing. To find out, ",
    away ? h("a", { href: link({ step: "switchboard" }) }, "switch it off") : "switch it off",
    " and see what becomes of the output.",
  );
}
