// Detokenize: the text of each token, for byte-level and SentencePiece vocabularies.

const SEEN = /** @type {[number, number][]} */ ([
  [33, 126],
  [161, 172],
  [174, 255],
]); // bytes that byte-level vocabularies represent as themselves; the others are mapped to 256 and above, in order

const BYTES = new Map();
for (let byte = 0, next = 256; byte < 256; byte += 1)
  BYTES.set(String.fromCharCode(SEEN.some(([from, to]) => byte >= from && byte <= to) ? byte : next++), byte);

/** @param {string[]} tokens @returns {string[]} a character encoded by several tokens belongs to the last of them */
export function spelled(tokens) {
  const decoder = new TextDecoder();
  if (inBytes(tokens)) return tokens.map((token) => decoder.decode(bytesOf(token), { stream: true }));
  return tokens.map((token) => {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
    return byte ? decoder.decode(Uint8Array.of(Number.parseInt(byte[1], 16)), { stream: true }) : token.replaceAll("▁", " ");
  });
}

/** Whether tokens are byte-level: all characters map to bytes that are valid UTF-8. @param {string[]} tokens */
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
