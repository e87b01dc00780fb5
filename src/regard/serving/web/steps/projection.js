// Step: query, key and value projections, with all products of one cell.

import { computationDetails, factors, matrixProduct } from "../computation_details.js";
import { h, replace } from "../dom.js";
import { dataTable } from "../figure.js";
import { latestOnly } from "../live_request.js";
import {
  formula,
  headCount,
  headMenu,
  locationMenu,
  locationsWith,
  menu,
  menus,
  nearestLocation,
  paragraph,
  selectCell,
} from "../locations.js";
import { matrix } from "../matrix.js";
import { exact } from "../numbers.js";

const VECTOR_NAMES = /** @type {Record<string, string>} */ ({
  q: "query: what the token attends to",
  k: "key: what queries are compared with",
  v: "value: what the token contributes when attended to",
});

export const projection = {
  id: "projection",
  title: "Queries, keys, values",
  section: "§3.2.1",
  here: (/** @type {any} */ { trace, state }) => [nearestLocation(locationsWith(trace, "q"), state.at).replace(/\.\d+\./, ".")],
  exists: (/** @type {any} */ trace) => locationsWith(trace, "q").length > 0,
  /** @param {HTMLElement} root @param {import("../locations.js").StepContext} here */
  async show(root, { trace, state, about }) {
    const locations = locationsWith(trace, "q");
    const location = nearestLocation(locations, state.at);
    const letter = "qkv".includes(state.letter) && state.letter ? state.letter : "q";
    const count = headCount(trace, location);
    const head = Math.min(state.head, count - 1);
    const at = `${location}.${letter}[${head}]`;
    const tensor = await trace.tensor(at);
    const details = computationDetails();
    const list = h("div", { class: "list" });
    root.append(
      paragraph(
        "Each token's vector x is multiplied by three learned matrices, which gives a query, a key and a value for every head. Each cell is a sum of products, listed here.",
      ),
      formula(`${letter} = x · W_${letter}     one row of x times one column of W_${letter}`),
      menus(
        locationMenu(locations, location),
        headMenu(count, head),
        menu(
          "letter",
          "Vector",
          ["q", "k", "v"].map((name) => [name, VECTOR_NAMES[name]]),
          letter,
          (name) => ({ letter: name }),
        ),
      ),
    );
    const request = (/** @type {number} */ row, /** @type {number} */ column) => trace.product(at, row, column);
    const onCell = latestOnly(request, (cell, row, column) => {
      const { left, right } = factors(cell);
      const rotated = about.settings.positions?.kind === "rotary" && letter !== "v";
      const modelValue = rotated ? cell.sum : cell.value;
      details.show(`${tensor.labels[0][row]}, unit ${column} of ${letter}, head ${head}`, [
        { ...matrixProduct(`${letter}[${row}, ${column}]`, cell), modelValue },
      ]);
      let running = cell.bias ?? 0;
      const rows = left.map((x, n) => [String(n), x, right[n], x * right[n], (running += x * right[n])]);
      replace(
        list,
        h("h3", {}, `All ${left.length} products`),
        h("p", { class: "note" }, `Row ${row} of ${cell.left}, column ${column} of ${cell.right}`),
        rotated &&
          h(
            "p",
            { class: "note" },
            `The rotary position embedding then rotates the vector; the value becomes ${exact(cell.value)}.`,
          ),
        dataTable("the products", { head: ["unit", "x", `W_${letter}`, "product", "sum so far"], rows }),
      );
    });
    const shown = matrix({
      title: `${letter}, head ${head}`,
      values: tensor.values,
      rows: tensor.labels[0],
      onCell,
      onPin: selectCell,
    });
    root.append(h("div", { class: "two-columns" }, h("div", {}, shown.element, details.element), list));
    const [row, column] = [
      Math.min(state.row, tensor.values.length - 1),
      Math.min(state.column, tensor.values[0].length - 1),
    ];
    shown.mark(row, column);
    await onCell(row, column);
  },
};
