// The text that each token adds, from tokens that spell it in marks of their own.

const SEEN = /** @type {[number, number][]} */ ([
  [33, 126],
  [161, 172],
  [174, 255],
]); // bytes that stand for themselves in byte-level vocabularies; the others come after 255, in order

const BYTES = new Map();
for (let byte = 0, next = 256; byte < 256; byte += 1)
  BYTES.set(String.fromCharCode(SEEN.some(([from, to]) => byte >= from && byte <= to) ? byte : next++), byte);

/** @param {string[]} tokens @returns {string[]} a letter that several tokens share is the last one's */
export function spelled(tokens) {
  const decoder = new TextDecoder();
  if (inBytes(tokens)) return tokens.map((token) => decoder.decode(bytesOf(token), { stream: true }));
  return tokens.map((token) => {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
    return byte ? decoder.decode(Uint8Array.of(Number.parseInt(byte[1], 16)), { stream: true }) : token.replaceAll("▁", " ");
  });
}

/** Whether tokens are bytes in letters' clothing: they can be read as such, and make text. @param {string[]} tokens */
function inBytes(tokens) {
  const all = tokens.join("");
  if (![...all].every((letter) => BYTES.has(letter))) return false;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(bytesOf(all), { stream: true });
    return true;
  } catch {
    return false;
  }
}

/** @param {string} token */
function bytesOf(token) {
  return Uint8Array.from([...token].map((letter) => BYTES.get(letter)));
}
