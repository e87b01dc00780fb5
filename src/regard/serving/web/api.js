// Client of the HTTP API. The page sends requests to its own server only.

/** Maximum number of values in one tensor response. */
export const MOST = 65536;

const KEY = "regard-key";
const GONE = "The server does not answer. If it was stopped, start it again with regard serve and try again.";

/** The server refused a request or cannot be reached; the message explains why. */
export class Refused extends Error {
  /** @param {number} status @param {string} sentence */
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

/** Prompt for the API key when the server requires one; set by main.js. @type {{ask: () => Promise<string>}} */
export const keys = { ask: async () => "" };

/**
 * @param {string} path @param {any} [fields] JSON body; without it, the request is a GET
 * @param {AbortSignal} [signal] @returns {Promise<Response>}
 */
export async function send(path, fields, signal) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    /** @type {Record<string, string>} */
    const headers = {
      ...(fields ? { "Content-Type": "application/json" } : {}),
      ...(key ? { Authorization: `Bearer ${key}` } : {}),
    };
    const found = await fetch(path, {
      method: fields ? "POST" : "GET",
      headers,
      body: fields && JSON.stringify(fields),
      signal,
    }).catch((error) => {
      if (error instanceof DOMException) throw error; // the request was aborted
      throw new Refused(0, GONE);
    });
    if (found.ok) return found;
    if (found.status === 401) {
      sessionStorage.setItem(KEY, await keys.ask());
      continue;
    }
    const { error } = await found.json().catch(() => ({ error: `The server answered ${found.status}.` }));
    throw new Refused(found.status, typeof error === "string" ? error : error.message);
  }
}

/** @param {string} path @param {any} [fields] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function ask(path, fields, signal) {
  return (await send(path, fields, signal)).json();
}

/** A trace on the server: its outline, and requests for its tensors. */
export class Trace {
  /** @param {any} outline @param {any} question body of the request that creates the trace again after the server has dropped it */
  constructor(outline, question) {
    this.outline = outline;
    this.question = question;
    this.names = new Set(outline.points.map((/** @type {any} */ point) => point.name));
    /** @type {Map<string, Promise<any>>} */
    this.known = new Map();
  }

  /** @param {any} question @param {AbortSignal} [signal] */
  static async of(question, signal) {
    return new Trace(await ask("/v1/look", question, signal), question);
  }

  /** Whether the trace has a tensor at a point. @param {string} name */
  has(name) {
    return this.names.has(name);
  }

  /** @param {string} at @param {{rows?: number[], columns?: number[]}} [part] */
  tensor(at, part = {}) {
    return this.ask("tensor", { at, ...part });
  }

  /** @param {string} at @param {number} row @param {number} column */
  product(at, row, column) {
    return this.ask("product", { at, row, column });
  }

  /**
   * Request a part of this trace; responses are cached.
   * @param {string} what @param {any} [fields] @returns {Promise<any>}
   */
  ask(what, fields = {}) {
    const key = what + JSON.stringify(fields);
    const known = this.known.get(key);
    if (known) return known;
    const found = this.again(`/v1/look/${what}`, { trace: this.outline.id, ...fields });
    found.catch(() => this.known.delete(key));
    this.known.set(key, found);
    return found;
  }

  /** @param {string} path @param {any} fields */
  async again(path, fields) {
    try {
      return await ask(path, fields);
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 404) throw error;
      await ask("/v1/look", this.question);
      return ask(path, fields);
    }
  }
}
