// Matrices of token vectors (a range of their units), with a shared cursor and the calculation of the selected cell.

import { beside, matrix } from "../matrix.js";
import { menu, menus, nearest, pin, places, span, spanMenu } from "../places.js";
import { readout } from "../readout.js";

/** @typedef {import("../places.js").Here} Here */
/** @typedef {import("../readout.js").Sum} Sum */
/** @typedef {{title: string, note?: string, values: number[][], top?: number}} Vectors */

/** The selected embedding and the range of units shown; `tensors` requests its points. @param {Here} here @param {string} point a point that the embedding must have */
export async function embedded({ trace, state }, point) {
  const some = places(trace, point);
  const place = nearest(some, state.at);
  const { shape } = await trace.tensor(`${place}.${point}`, { rows: [0, 1] }); // embeddings of ELMo are narrower than its states
  const width = shape[1];
  const columns = span(state, width);
  return {
    width,
    columns,
    tensors: (/** @type {string[]} */ ...points) =>
      Promise.all(points.map((one) => trace.tensor(`${place}.${one}`, { columns }))),
    menus: menus(
      some.length > 1 &&
        menu(
          "place",
          "Stack",
          some.map((one) => [one, one.split(".")[0]]),
          place,
          (at) => ({ at }),
        ),
      spanMenu(state, width),
    ),
  };
}

/**
 * Matrices of the same tokens and units with a shared cursor.
 * @param {import("../state.js").State} state @param {number[]} columns range of units shown, as [from, to]
 * @param {string[]} rows @param {Vectors[]} pictures
 * @param {(row: number, column: number, unit: number) => Sum[]} explain calculations of a cell, from its row, its column and the number of its unit
 */
export function walked(state, columns, rows, pictures, explain) {
  const told = readout();
  const onCell = (/** @type {number} */ row, /** @type {number} */ column) => {
    for (const one of drawn) one.mark(row, column);
    const unit = column + columns[0];
    told.show(`${rows[row]}, position ${row}, unit ${unit}`, explain(row, column, unit));
  };
  const onPin = (/** @type {number} */ row, /** @type {number} */ column) => pin(row, column + columns[0]);
  const drawn = pictures.map((one) => matrix({ ...one, rows, from: columns[0], onCell, onPin }));
  onCell(Math.min(state.row, rows.length - 1), Math.max(0, Math.min(state.column, columns[1] - 1) - columns[0]));
  return [beside(...drawn.map((one) => one.element)), told.element];
}
