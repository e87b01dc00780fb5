// Figure of a search tree, from left to right; the path of the best hypothesis is highlighted.

import { s } from "./dom.js";
import { figure } from "./figure.js";
import { truncate } from "./matrix.js";

const [STEP, LINE] = [112, 22];

/**
 * The figure, and a function that selects a node.
 * @param {any} tree @param {(node: any) => Promise<void>} choose @param {(node: any) => void} onPin called when the user selects a node
 */
export function drawTree(tree, choose, onPin) {
  /** @type {Map<number, any[]>} */
  const children = new Map();
  for (const node of tree.nodes)
    if (node.parent !== null) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  for (const siblings of children.values()) siblings.sort((a, b) => Number(b.on_best_path) - Number(a.on_best_path) || a.rank - b.rank);
  const rows = compactRows(tree.nodes[0], children);
  /** @type {Map<number, {x: number, y: number}>} */
  const at = new Map();
  for (const node of tree.nodes)
    at.set(node.number, { x: 14 + (node.step + 1) * STEP, y: 16 + LINE * /** @type {number} */ (rows.get(node.number)) });
  const width = Math.max(...[...at.values()].map(({ x }) => x)) + 100;
  const height = 16 + LINE * (Math.max(...rows.values()) + 1);
  const inOrder = [...tree.nodes.slice(1)].sort(
    (/** @type {any} */ a, /** @type {any} */ b) => Number(a.on_best_path) - Number(b.on_best_path),
  ); // the best on top
  const edges = inOrder.map((/** @type {any} */ node) => {
    const [from, to] = [at.get(node.parent), at.get(node.number)].map(
      (other) => /** @type {{x: number, y: number}} */ (other),
    );
    const parent = tree.nodes[node.parent];
    const start = from.x + (parent.parent === null ? 6 : 14 + 8 * truncate(parent.token, 8).length);
    const bend = Math.min(to.x - 20, Math.max(start, to.x - 30));
    const d =
      from.y === to.y
        ? `M${start} ${from.y}H${to.x - 7}`
        : `M${start} ${from.y}H${bend - 6}Q${bend} ${from.y} ${bend} ${from.y + 8}V${to.y - 8}Q${bend} ${to.y} ${bend + 8} ${to.y}H${to.x - 7}`;
    return s("path", { class: `edge ${node.state}${node.on_best_path ? " best" : ""}`, d });
  });
  const select = (/** @type {any} */ node) => {
    for (const other of nodes) other.classList.remove("chosen");
    nodes[node.number].classList.add("chosen");
    return choose(node);
  };
  const nodes = tree.nodes.map((/** @type {any} */ node) => {
    const { x, y } = /** @type {{x: number, y: number}} */ (at.get(node.number));
    const text = node.parent === null ? "" : truncate(node.token, 8);
    const act = () => {
      onPin(node);
      return select(node);
    };
    const group = s(
      "g",
      {
        class: `node ${node.state}${node.on_best_path ? " best" : ""}`,
        ...(node.parent === null
          ? {}
          : {
              role: "button",
              tabindex: node.on_best_path ? "0" : "-1",
              "aria-label": `${node.token}, step ${node.step}, ${node.state}`,
            }),
        data: { number: node.number },
      },
      s("rect", { x: x - 5, y: y - LINE / 2, width: STEP - 14, height: LINE, fill: "transparent" }),
      s("circle", { cx: x, cy: y, r: node.state === "finished" ? 4.5 : 3.5 }),
      s("text", { x: x + 9, y: y + 4 }, text),
    );
    if (node.parent !== null) {
      group.addEventListener("click", act);
      group.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          act();
        }
        const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
        const side = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step && !side) return;
        event.preventDefault();
        move(node, step ?? 0, side ?? 0);
      });
    }
    return group;
  });
  const move = (/** @type {any} */ node, /** @type {number} */ down, /** @type {number} */ right) => {
    const from = /** @type {{x: number, y: number}} */ (at.get(node.number));
    const there = tree.nodes.filter(
      (/** @type {any} */ other) =>
        other.parent !== null &&
        (right
          ? other.step === node.step + right
          : other.step === node.step && Math.sign(/** @type {any} */ (at.get(other.number)).y - from.y) === down),
    );
    there.sort(
      (/** @type {any} */ a, /** @type {any} */ b) =>
        Math.abs(/** @type {any} */ (at.get(a.number)).y - from.y) -
        Math.abs(/** @type {any} */ (at.get(b.number)).y - from.y),
    );
    if (there.length) nodes[there[0].number].focus();
  };
  const svg = s(
    "svg",
    { class: "tree", viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Beam tree" },
    edges,
    nodes,
  );
  const element = figure({
    title: "Beam tree",
    note: "blue: best hypothesis · large dot: finished · ring: pruned",
    shown: svg,
    table: () => ({
      head: ["node", "from", "step", "token", "log p of token", "log p", "score", "state"],
      rows: tree.nodes
        .slice(1)
        .map((/** @type {any} */ node) => [
          String(node.number),
          String(node.parent),
          String(node.step),
          node.token,
          node.token_log_probability,
          node.log_probability,
          node.score,
          node.state,
        ]),
    }),
  });
  return { element, choose: select };
}

/**
 * The row of each node. The first child is in its parent's row; the subtrees of the others are as high as those above them permit, so
 * that the alternatives of a step are close to it, however long the best hypothesis is.
 * @param {any} root @param {Map<number, any[]>} children @returns {Map<number, number>}
 */
function compactRows(root, children) {
  /** @type {Map<number, number>} */
  const offsets = new Map(); // of a node from its parent
  /** First and last row of a subtree at each step, from the row of its root. @param {any} node @returns {Map<number, [number, number]>} */
  const shape = (node) => {
    /** @type {Map<number, [number, number]>} */
    const taken = new Map([[node.step, [0, 0]]]);
    let row = -1;
    for (const child of children.get(node.number) ?? []) {
      const own = shape(child);
      row += 1;
      for (const [step, [first]] of own) row = Math.max(row, (taken.get(step)?.[1] ?? -1) + 1 - first);
      offsets.set(child.number, row);
      for (const [step, [first, last]] of own) taken.set(step, [taken.get(step)?.[0] ?? row + first, row + last]);
    }
    return taken;
  };
  shape(root);
  /** @type {Map<number, number>} */
  const rows = new Map([[root.number, 0]]);
  const place = (/** @type {any} */ node) => {
    for (const child of children.get(node.number) ?? []) {
      rows.set(child.number, /** @type {number} */ (rows.get(node.number)) + /** @type {number} */ (offsets.get(child.number)));
      place(child);
    }
  };
  place(root);
  return rows;
}
