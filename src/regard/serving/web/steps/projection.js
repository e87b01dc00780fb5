// Step: query, key and value projections, with all products of one cell.

import { h, replace } from "../dom.js";
import { matrix } from "../matrix.js";
import { newest } from "../newest.js";
import { exact } from "../numbers.js";
import { formula, headMenu, heads, menu, menus, nearest, pin, placeMenu, places, say } from "../places.js";
import { tabular } from "../picture.js";
import { factors, multiplied, readout } from "../readout.js";

const ASKS = /** @type {Record<string, string>} */ ({
  q: "query: what the token attends to",
  k: "key: what queries are compared with",
  v: "value: what the token contributes when attended to",
});

export const projection = {
  id: "projection",
  title: "Queries, keys, values",
  section: "§3.2.1",
  here: (/** @type {any} */ { trace, state }) => [nearest(places(trace, "q"), state.at).replace(/\.\d+\./, ".")],
  exists: (/** @type {any} */ trace) => places(trace, "q").length > 0,
  /** @param {HTMLElement} root @param {import("../places.js").Here} here */
  async show(root, { trace, state, about }) {
    const some = places(trace, "q");
    const place = nearest(some, state.at);
    const letter = "qkv".includes(state.letter) && state.letter ? state.letter : "q";
    const count = heads(trace, place);
    const head = Math.min(state.head, count - 1);
    const at = `${place}.${letter}[${head}]`;
    const found = await trace.tensor(at);
    const say_ = readout();
    const list = h("div", { class: "list" });
    root.append(
      say(
        "Each token's vector x is multiplied by three learned matrices, which gives a query, a key and a value for every head. Each cell is a sum of products, listed here.",
      ),
      formula(`${letter} = x · W_${letter}     one row of x times one column of W_${letter}`),
      menus(
        placeMenu(some, place),
        headMenu(count, head),
        menu(
          "letter",
          "Vector",
          ["q", "k", "v"].map((one) => [one, ASKS[one]]),
          letter,
          (one) => ({ letter: one }),
        ),
      ),
    );
    const ask = (/** @type {number} */ row, /** @type {number} */ column) => trace.product(at, row, column);
    const onCell = newest(ask, (cell, row, column) => {
      const { left, right } = factors(cell);
      const turned = about.settings.positions?.kind === "rotary" && letter !== "v";
      const theirs = turned ? cell.sum : cell.value;
      say_.show(`${found.labels[0][row]}, unit ${column} of ${letter}, head ${head}`, [
        { ...multiplied(`${letter}[${row}, ${column}]`, cell), theirs },
      ]);
      let running = cell.bias ?? 0;
      const rows = left.map((x, n) => [String(n), x, right[n], x * right[n], (running += x * right[n])]);
      replace(
        list,
        h("h3", {}, `All ${left.length} products`),
        h("p", { class: "note" }, `Row ${row} of ${cell.left}, column ${column} of ${cell.right}`),
        turned &&
          h(
            "p",
            { class: "note" },
            `The rotary position embedding then rotates the vector; the value becomes ${exact(cell.value)}.`,
          ),
        tabular("the products", { head: ["unit", "x", `W_${letter}`, "product", "sum so far"], rows }),
      );
    });
    const shown = matrix({
      title: `${letter}, head ${head}`,
      values: found.values,
      rows: found.labels[0],
      onCell,
      onPin: pin,
    });
    root.append(h("div", { class: "two" }, h("div", {}, shown.element, say_.element), list));
    const [row, column] = [
      Math.min(state.row, found.values.length - 1),
      Math.min(state.column, found.values[0].length - 1),
    ];
    shown.mark(row, column);
    await onCell(row, column);
  },
};
