// The formulas of the paper, computed in the browser to check the model's values. Independent of the page.

/** @typedef {(number | null)[]} Row a row of numbers; null is −∞ */

/** @param {number[]} a @param {number[]} b */
export function dot(a, b) {
  return a.reduce((sum, value, n) => sum + value * b[n], 0);
}

/** a · b @param {number[][]} a @param {number[][]} b */
export function matmul(a, b) {
  return a.map((row) =>
    b[0].map((_, n) =>
      dot(
        row,
        b.map((other) => other[n]),
      ),
    ),
  );
}

/** @param {number[][]} a */
export function transpose(a) {
  return a[0].map((_, n) => a.map((row) => row[n]));
}

/** e^x / Σ e^x; the maximum is subtracted first for numerical stability. @param {Row} row */
export function softmax(row) {
  const top = Math.max(...row.map((value) => value ?? -Infinity));
  const exponentials = row.map((value) => (value === null ? 0 : Math.exp(value - top)));
  const sum = exponentials.reduce((total, value) => total + value, 0);
  return exponentials.map((value) => (sum ? value / sum : 0));
}

/** @param {number[]} row */
export function mean(row) {
  return row.reduce((sum, value) => sum + value, 0) / row.length;
}

/** √(variance + ε), or of a root-mean-square norm √(mean square + ε). @param {number[]} row @param {number} epsilon @param {boolean} centered */
export function deviation(row, epsilon, centered) {
  const middle = centered ? mean(row) : 0;
  return Math.sqrt(mean(row.map((value) => (value - middle) ** 2)) + epsilon);
}

/** §3.5: sinusoidal encoding of a position. @param {number} position @param {number} unit @param {number} width @param {string} layout */
export function sinusoid(position, unit, width, layout) {
  const { pair, odd } = frequencyOf(unit, width, layout);
  const angle = position / 10000 ** ((2 * pair) / width);
  return odd ? Math.cos(angle) : Math.sin(angle);
}

/** Frequency of a unit, and whether it is a cosine: interleaved, or all sines first. @param {number} unit @param {number} width @param {string} layout */
export function frequencyOf(unit, width, layout) {
  const half = width / 2;
  return layout === "interleaved"
    ? { pair: Math.floor(unit / 2), odd: unit % 2 === 1 }
    : { pair: unit % half, odd: unit >= half };
}

/** @param {number} x */
function swish(x) {
  return x / (1 + Math.exp(-x));
}

/** Activation functions by their names in a model's settings. @type {Record<string, (x: number) => number>} */
export const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  relu2: (x) => Math.max(0, x) ** 2,
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  "gelu-tanh": (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  swish,
};

/** Gated activation functions, of a gate and a value. @type {Record<string, (gate: number, value: number) => number>} */
export const GATED = {
  swiglu: (gate, value) => swish(gate) * value,
  geglu: (gate, value) => ACTIVATIONS.gelu(gate) * value,
  "geglu-tanh": (gate, value) => ACTIVATIONS["gelu-tanh"](gate) * value,
};

/** Error function by its Taylor series; the usual approximation (Abramowitz and Stegun 7.1.26) is not accurate enough. @param {number} x */
function erf(x) {
  if (Math.abs(x) > 4) return Math.sign(x);
  let term = x;
  let sum = x;
  for (let n = 1; n < 80; n += 1) {
    term *= (-x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}
