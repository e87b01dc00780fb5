// Diagram of this network, after figure 1 of the paper: marks the current step and links to the others.

import { h, s } from "./dom.js";
import { figure } from "./figure.js";
import { locationsWith } from "./locations.js";
import { linkTo } from "./state.js";

const [WIDE, HIGH, GAP] = [112, 26, 9];

/** Label of each box, and the step it links to. @type {Record<string, [string, string]>} */
const BOXES = {
  attention: ["Self-attention", "scores"],
  cross_attention: ["Cross-attention", "scores"],
  attention_residual: ["Add & Norm", "residual"],
  cross_attention_residual: ["Add & Norm", "residual"],
  feed_forward: ["Feed-forward", "feed_forward"],
  feed_forward_residual: ["Add & Norm", "residual"],
  recurrent: ["Recurrent layers", "gates"],
};

/** @param {import("./api.js").Trace} trace @param {string[]} here @param {string[]} known ids of steps that exist */
export function drawMap(trace, here, known) {
  const stacks = ["encoder", "decoder"].filter((stack) => trace.has(`${stack}.embedding.lookup`));
  const columns = stacks.map((stack) => stackBoxes(trace, stack));
  const tallest = Math.max(...columns.map((column) => column.length));
  const height = tallest * (HIGH + GAP) + 22;
  const width = stacks.length * (WIDE + 36) + 38;
  /** @type {any[]} */
  const drawn = [];
  /** @type {Record<string, {x: number, y: number}>} */
  const at = {};
  columns.forEach((boxes, n) => {
    const x = 36 + n * (WIDE + 36);
    boxes.forEach((box, m) => {
      at[box.name] = { x, y: height - 4 - (m + 1) * (HIGH + GAP) };
    });
    const inner = boxes.filter((box) => box.repeated);
    if (inner.length) {
      const [low, high] = [at[inner[0].name], at[/** @type {any} */ (inner.at(-1)).name]];
      drawn.push(
        s("rect", {
          class: "frame",
          x: x - 9,
          y: high.y - 8,
          width: WIDE + 18,
          height: low.y - high.y + HIGH + 16,
          rx: 9,
        }),
        s(
          "text",
          {
            class: "times",
            x: n ? x + WIDE + 14 : x - 14,
            y: (high.y + low.y + HIGH) / 2 + 4,
            "text-anchor": n ? "start" : "end",
          },
          `${layers(trace, stacks[n])}×`,
        ),
      );
    }
    boxes
      .slice(1)
      .forEach((box, m) =>
        drawn.push(s("path", { class: "connector", d: `M${x + WIDE / 2} ${at[boxes[m].name].y}V${at[box.name].y + HIGH}` })),
      );
  });
  if (stacks.length === 2 && at["decoder.cross_attention"]) {
    const [from, to] = [at[columns[0][columns[0].length - 1].name], at["decoder.cross_attention"]];
    drawn.push(
      s("path", {
        class: "connector",
        d: `M${from.x + WIDE / 2} ${from.y}V${from.y - 16}H${to.x - 19}V${to.y + HIGH / 2}H${to.x}`,
      }),
    );
  }
  for (const column of columns)
    for (const box of column) drawn.push(drawBox(box, at[box.name], here.includes(box.name), known.includes(box.step)));
  const title = "Map of the network";
  return h(
    "nav",
    { class: "map", "aria-label": title },
    figure({
      title,
      shown: s("svg", { viewBox: `0 0 ${width} ${height}`, width, height }, drawn),
      table: () => ({
        head: ["part", "stack", "times"],
        rows: columns.flatMap((boxes, n) =>
          boxes.map(({ text, repeated }) => [text, stacks[n], repeated ? String(layers(trace, stacks[n])) : "1"]),
        ),
      }),
    }),
  );
}

/** @param {any} trace @param {string} stack */
function layers(trace, stack) {
  return stack === "decoder" ? trace.outline.model.decoder_layers : trace.outline.model.layers;
}

/** @typedef {{name: string, text: string, step: string, at: string, repeated: boolean}} Box */

/** Boxes of a stack, from bottom to top. @param {any} trace @param {string} stack @returns {Box[]} */
function stackBoxes(trace, stack) {
  const box = (
    /** @type {string} */ name,
    /** @type {string} */ text,
    /** @type {string} */ step,
    at = stack,
    repeated = false,
  ) => ({ name: `${stack}.${name}`, text, step, at, repeated });
  const boxes = [
    box(
      "input",
      trace.outline.kind !== "translation" ? "Text" : stack === "encoder" ? "Source" : "Output so far",
      "tokens",
    ),
    box("embedding", "Embedding", "embedding", `${stack}.embedding`),
  ];
  if (trace.has(`${stack}.embedding.positions`))
    boxes.push(box("positions", "+ Positions", "positions", `${stack}.embedding`));
  if (locationsWith(trace, "hidden").some((location) => location.startsWith(stack) && /wards$/.test(location)))
    boxes.push(box("recurrent", ...BOXES.recurrent, stack, true));
  for (const part of ["attention", "cross_attention", "feed_forward"]) {
    const location =
      locationsWith(trace, part === "feed_forward" ? "inner" : "head_outputs").find(
        (candidate) => candidate.startsWith(`${stack}.`) && candidate.endsWith(`.${part}`),
      ) ??
      locationsWith(trace, "gates", "expert_outputs").find((candidate) => candidate.startsWith(`${stack}.`) && candidate.endsWith(`.${part}`)) ??
      (trace.has(`${stack}.${part}.weights`) ? `${stack}.${part}` : undefined);
    if (!location) continue;
    const [text, step] = trace.has(`${location}.gates`) ? ["Experts", "experts"] : BOXES[part];
    const inside = /\.\d+\./.test(location);
    boxes.push(
      box(
        part,
        stack === "decoder" && part === "attention" ? "Masked self-att." : text,
        inside ? step : "kinds",
        location,
        inside,
      ),
    );
    if (inside) boxes.push(box(`${part}_residual`, "Add & Norm", "residual", location, true));
  }
  if (stack === "decoder" && trace.has("output.logits")) {
    boxes.push(
      { name: "output.logits", text: "Linear", step: "output", at: stack, repeated: false },
      { name: "output.probabilities", text: "Softmax", step: "output", at: stack, repeated: false },
    );
  }
  if (trace.outline.kind === "encoding") boxes.push(...headBoxes(trace));
  return boxes;
}

/** Boxes above an encoder: mixing, pooling and head. @param {any} trace @returns {Box[]} */
function headBoxes(trace) {
  const kind = trace.outline.head?.kind;
  const boxes = [];
  if (trace.has("encoder.mixing.shares")) boxes.push(["encoder.mixing", "Mixing", "mixing"]);
  if (!kind || kind === "classes") boxes.push(["pooling.vector", "Pooling", "pooling"]);
  if (kind) boxes.push(["head.logits", "Linear", "head_output"], ["head.probabilities", "Softmax", "head_output"]);
  return boxes.map(([name, text, step]) => ({ name, text, step, at: "encoder", repeated: false }));
}

/** @param {Box} box @param {{x: number, y: number}} at @param {boolean} here @param {boolean} known */
function drawBox(box, { x, y }, here, known) {
  const kind = box.name.split(".")[1].replace(/^.*_residual$/, "residual");
  const inside = [
    s("rect", { x, y, width: WIDE, height: HIGH, rx: 6 }),
    s("text", { x: x + WIDE / 2, y: y + HIGH / 2 + 4, "text-anchor": "middle" }, box.text),
    here && s("circle", { class: "pin", cx: x + WIDE - 1, cy: y + 1, r: 5 }),
  ];
  const attributes = { class: `box ${kind}${here ? " here" : ""}`, "aria-current": here ? "location" : null };
  if (!known) return s("g", attributes, inside);
  return s(
    "a",
    {
      ...attributes,
      ...linkTo({ view: "look", step: box.step, at: box.at, row: 0, column: 0 }),
      "aria-label": `${box.text}, ${box.name.split(".")[0]}${here ? ": you are here" : ""}`,
    },
    inside,
  );
}
