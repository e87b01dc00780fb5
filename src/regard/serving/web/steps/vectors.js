// A vector for each token, a window of its units at a time: pictures walked together, and how their cells follow.

import { beside, matrix } from "../matrix.js";
import { menu, menus, nearest, pin, places, span, spanMenu } from "../places.js";
import { readout } from "../readout.js";

/** @typedef {import("../places.js").Here} Here */
/** @typedef {import("../readout.js").Sum} Sum */
/** @typedef {{title: string, note?: string, values: number[][], top?: number}} Vectors */

/** The embedding in view, and the units that are: what `tensors` below reads. @param {Here} here @param {string} point one that it must have */
export async function embedded({ trace, state }, point) {
  const some = places(trace, point);
  const place = nearest(some, state.at);
  const { shape } = await trace.tensor(`${place}.${point}`, { rows: [0, 1] }); // ELMo's are narrower than its states
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
          "Where",
          some.map((one) => [one, one.split(".")[0]]),
          place,
          (at) => ({ at }),
        ),
      spanMenu(state, width),
    ),
  };
}

/**
 * Pictures of the same tokens and units, with one cursor.
 * @param {import("../state.js").State} state @param {number[]} columns the units that are shown, from and to
 * @param {string[]} rows @param {Vectors[]} pictures
 * @param {(row: number, column: number, unit: number) => Sum[]} explain a cell; its column here, and the number of its unit
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
