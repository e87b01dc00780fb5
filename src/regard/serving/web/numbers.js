// Number formatting.

/**
 * A number in few characters; null stands for −∞, which JSON cannot represent.
 * @param {any} value @param {number} [digits]
 */
export function short(value, digits = 2) {
  if (value === null) return "−∞";
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0"; // exactly zero; 0.00 is a small nonzero value
  const text = value.toFixed(digits === 2 && Math.abs(value) >= 10 ? 1 : digits);
  return withMinusSign(Number(text) === 0 ? text.replace("-", "") : text);
}

/** A number with five decimals. @param {any} value */
export function exact(value) {
  if (value === null) return "−∞";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  return withMinusSign(size !== 0 && (size < 1e-4 || size >= 1e6) ? value.toExponential(3) : value.toFixed(5));
}

/** @param {number} value */
export function percent(value) {
  if (value === 0) return "0 %";
  return value >= 0.9995 ? "100 %" : value < 0.001 ? "< 0.1 %" : `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;
}

/** 1178624 → 1.2 million. @param {number} value */
export function abbreviateCount(value) {
  return value >= 1e6 ? `${(value / 1e6).toFixed(1)} million` : value.toLocaleString("en");
}

/** @param {string} text */
function withMinusSign(text) {
  return text.replace(/^-/, "−");
}
