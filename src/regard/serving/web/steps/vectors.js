// Matrices of token vectors (a range of their units), with a shared cursor and the calculation of the selected cell.

import { computationDetails } from "../computation_details.js";
import { locationsWith, menu, menus, nearestLocation, selectCell, unitRange, unitRangeMenu } from "../locations.js";
import { matrix, sideBySide } from "../matrix.js";

/** @typedef {import("../locations.js").StepContext} StepContext */
/** @typedef {import("../computation_details.js").Calculation} Calculation */
/** @typedef {{title: string, note?: string, values: number[][], top?: number}} Vectors */

/** The selected embedding and the range of units shown; `tensors` requests its points. @param {StepContext} here @param {string} point a point that the embedding must have */
export async function embeddingView({ trace, state }, point) {
  const locations = locationsWith(trace, point);
  const location = nearestLocation(locations, state.at);
  const { shape } = await trace.tensor(`${location}.${point}`, { rows: [0, 1] }); // embeddings of ELMo are narrower than its states
  const width = shape[1];
  const columns = unitRange(state, width);
  return {
    width,
    columns,
    tensors: (/** @type {string[]} */ ...points) =>
      Promise.all(points.map((item) => trace.tensor(`${location}.${item}`, { columns }))),
    menus: menus(
      locations.length > 1 &&
        menu(
          "location",
          "Stack",
          locations.map((item) => [item, item.split(".")[0]]),
          location,
          (at) => ({ at }),
        ),
      unitRangeMenu(state, width),
    ),
  };
}

/**
 * Matrices of the same tokens and units with a shared cursor.
 * @param {import("../state.js").State} state @param {number[]} columns range of units shown, as [from, to]
 * @param {string[]} rows @param {Vectors[]} matrices
 * @param {(row: number, column: number, unit: number) => Calculation[]} explain calculations of a cell, from its row, its column and the number of its unit
 */
export function linkedMatrices(state, columns, rows, matrices, explain) {
  const details = computationDetails();
  const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
    for (const item of figures) item.mark(row, column);
    const unit = column + columns[0];
    details.show(`${rows[row]}, position ${row}, unit ${unit}`, explain(row, column, unit));
  };
  const onPin = (/** @type {number} */ row, /** @type {number} */ column) => selectCell(row, column + columns[0]);
  const figures = matrices.map((item) => matrix({ ...item, rows, from: columns[0], onCell, onPin }));
  onCell(Math.min(state.row, rows.length - 1), Math.max(0, Math.min(state.column, columns[1] - 1) - columns[0]));
  return [sideBySide(...figures.map((item) => item.element)), details.element];
}
