// Client of the HTTP API. The page sends requests to its own server only.

import { h } from "./dom.js";

/** Maximum number of values in one tensor response. */
export const MAX_VALUES = 65536;

const KEY = "regard-key";
const UNREACHABLE = "The server does not answer. If it was stopped, start it again with regard serve and try again.";

/** The server refused a request or cannot be reached; the message explains why. */
export class RequestError extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * A message about a failed request; where it can succeed later, with a button that repeats it.
 * @param {RequestError} error @param {() => void} retry
 */
export function errorMessage(error, retry) {
  const canSucceed = error.status === 0 || error.status === 429 || error.status >= 500;
  const button = canSucceed && h("button", { type: "button", on: { click: () => retry() } }, "Try again");
  return h("p", { class: "error", role: "alert" }, error.message, " ", button);
}

/** Gets an event "answer" when the server has answered a request. */
export const server = new EventTarget();

/** Prompt for the API key when the server requires one; set by main.js. @type {{prompt: () => Promise<string>}} */
export const apiKeys = { prompt: async () => "" };

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
    const response = await fetch(path, {
      method: fields ? "POST" : "GET",
      headers,
      body: fields && JSON.stringify(fields),
      signal,
    }).catch((error) => {
      if (error instanceof DOMException) throw error; // the request was aborted
      throw new RequestError(0, UNREACHABLE);
    });
    if (response.ok) {
      server.dispatchEvent(new Event("answer"));
      return response;
    }
    if (response.status === 401) {
      sessionStorage.setItem(KEY, await apiKeys.prompt());
      continue;
    }
    const { error } = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
    throw new RequestError(response.status, typeof error === "string" ? error : error.message);
  }
}

/** @param {string} path @param {any} [fields] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function request(path, fields, signal) {
  return (await send(path, fields, signal)).json();
}

/** A trace on the server: its outline, and requests for its tensors. */
export class Trace {
  /** @param {any} outline @param {any} body body of the request that creates the trace again after the server has dropped it */
  constructor(outline, body) {
    this.outline = outline;
    this.body = body;
    this.names = new Set(outline.points.map((/** @type {any} */ point) => point.name));
    /** @type {Map<string, Promise<any>>} */
    this.cache = new Map();
  }

  /** @param {any} body @param {AbortSignal} [signal] */
  static async of(body, signal) {
    return new Trace(await request("/v1/look", body, signal), body);
  }

  /** Whether the trace has a tensor at a point. @param {string} name */
  has(name) {
    return this.names.has(name);
  }

  /** @param {string} at @param {{rows?: number[], columns?: number[]}} [part] */
  tensor(at, part = {}) {
    return this.request("tensor", { at, ...part });
  }

  /** @param {string} at @param {number} row @param {number} column */
  product(at, row, column) {
    return this.request("product", { at, row, column });
  }

  /**
   * Request a part of this trace; responses are cached.
   * @param {string} part @param {any} [fields] @returns {Promise<any>}
   */
  request(part, fields = {}) {
    const key = part + JSON.stringify(fields);
    const known = this.cache.get(key);
    if (known) return known;
    const promise = this.requestAgain(`/v1/look/${part}`, { trace: this.outline.id, ...fields });
    promise.catch(() => this.cache.delete(key));
    this.cache.set(key, promise);
    return promise;
  }

  /** @param {string} path @param {any} fields */
  async requestAgain(path, fields) {
    try {
      return await request(path, fields);
    } catch (error) {
      if (!(error instanceof RequestError) || error.status !== 404) throw error;
      await request("/v1/look", this.body);
      return request(path, fields);
    }
  }
}
