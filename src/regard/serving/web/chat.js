// View of a conversation: answers are streamed, and every token of an answer is a link to the look inside at that token.

import { errorMessage, request, RequestError, send } from "./api.js";
import { h, replace, visible } from "./dom.js";
import { events } from "./events.js";
import { percent } from "./numbers.js";
import { linkTo, RESET_SELECTION } from "./state.js";
import { confidenceClass, confidenceLegend } from "./words.js";

const CANDIDATES = 3; // other tokens that the title of a token names

/**
 * @typedef {{token: string, logprob: number, top_logprobs: {token: string, logprob: number}[]}} Token
 * @typedef {{role: string, content: string, tokens?: Token[], prompt?: {text: string, tokens: number}}} Message
 * @typedef {{system: string, messages: Message[]}} Conversation
 */

/** By model, while the page is open. @type {Map<string, Conversation>} */
const conversations = new Map();

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} _state */
export async function showChat(root, app, _state) {
  const { about, limits } = app;
  const conversation = conversations.get(about.name) ?? { system: "", messages: [] };
  conversations.set(about.name, conversation);
  let running = /** @type {AbortController | null} */ (null);
  const list = h("ol", { class: "messages", "aria-live": "polite", "aria-label": "Conversation" });
  const problem = h("div", {});
  const system = h("input", {
    id: "system",
    type: "text",
    dir: "auto",
    autocomplete: "off",
    maxlength: limits.max_characters,
    placeholder: "none",
    value: conversation.system,
    on: { input: () => (conversation.system = system.value) },
  });
  const length = h("input", { id: "length", type: "number", value: 256, min: 1, max: 1000 });
  const temperature = h("input", { id: "temperature", type: "number", value: 1, min: 0, max: 2, step: 0.1 });
  const field = h("textarea", {
    id: "message",
    rows: 1,
    dir: "auto",
    autocomplete: "off",
    maxlength: limits.max_characters,
    placeholder: "Write a message",
    "aria-label": "Message",
    on: {
      keydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        form.requestSubmit();
      },
    },
  });
  const button = h("button", { type: "submit", class: "primary" }, "Send");
  const fresh = h("button", { type: "button", on: { click: () => reset() } }, "New chat");

  const reset = () => {
    running?.abort();
    conversation.messages = [];
    draw();
    replace(problem);
    field.focus();
  };
  const draw = () => {
    replace(list, ...conversation.messages.map((message) => messageItem(message, limits)));
    fresh.hidden = conversation.messages.length === 0;
  };
  const sent = () => [
    ...(conversation.system.trim() ? [{ role: "system", content: conversation.system }] : []),
    ...conversation.messages.map(({ role, content }) => ({ role, content })),
  ];
  const answer = async () => {
    running = new AbortController();
    button.textContent = "Stop";
    replace(problem);
    const messages = sent();
    /** @type {Message} */
    const message = { role: "assistant", content: "", tokens: [] };
    const text = h("p", { class: "message-text", dir: "auto" });
    const fields = {
      model: about.name,
      messages,
      max_completion_tokens: Number(length.value),
      temperature: Number(temperature.value),
      logprobs: true,
      top_logprobs: CANDIDATES,
      stream: true,
    };
    list.append(h("li", { class: "message assistant" }, h("p", { class: "label" }, "Model"), text));
    try {
      const rendered = request("/v1/chat/render", { model: about.name, messages }, running.signal).catch(() => undefined); // asked again below
      for await (const part of events(await send("/v1/chat/completions", fields, running.signal))) {
        if (part.error) throw new RequestError(500, part.error.message);
        for (const choice of part.choices ?? []) {
          message.content += choice.delta.content ?? "";
          message.tokens?.push(...(choice.logprobs?.content ?? []));
        }
        text.textContent = visible(message.content);
        if (list.isConnected) text.scrollIntoView({ block: "nearest" });
      }
      message.prompt = await rendered;
    } catch (error) {
      if (!(error instanceof DOMException)) {
        const failure = error instanceof RequestError ? error : new RequestError(0, "The connection was lost during the answer.");
        replace(problem, errorMessage(failure, retry));
        if (!(error instanceof RequestError) && !(error instanceof TypeError)) throw error;
      } // otherwise the user stopped it: keep the text
    } finally {
      running = null;
      button.textContent = "Send";
    }
    if (message.content) {
      conversation.messages.push(message);
      message.prompt ??= (await request("/v1/chat/render", { model: about.name, messages }).catch(() => null)) ?? undefined;
    }
    draw();
  };
  const retry = () => {
    replace(problem);
    return answer();
  };
  const form = h(
    "form",
    {
      class: "chat-form",
      on: {
        submit: async (/** @type {Event} */ event) => {
          event.preventDefault();
          if (running) return running.abort();
          if (!field.value.trim()) return;
          conversation.messages.push({ role: "user", content: field.value });
          field.value = "";
          draw();
          await answer();
          field.focus({ preventScroll: true });
        },
      },
    },
    field,
    button,
  );
  draw();
  replace(
    root,
    h(
      "div",
      { class: "menus" },
      h("label", { class: "menu system", for: "system" }, h("span", {}, "System message"), system),
      h("label", { class: "menu", for: "length" }, h("span", {}, "Max tokens"), length),
      h("label", { class: "menu", for: "temperature" }, h("span", {}, "Temperature"), temperature),
      fresh,
    ),
    list,
    problem,
    form,
    confidenceLegend("Select a token of an answer to look inside the model at that point.", list),
  );
}

/** @param {Message} message @param {any} limits */
function messageItem(message, limits) {
  const isUser = message.role === "user";
  return h(
    "li",
    { class: `message ${message.role}` },
    h("p", { class: "label" }, isUser ? "You" : "Model"),
    h("p", { class: "message-text", dir: "auto" }, isUser ? message.content : answerTokens(message, limits)),
  );
}

/** The tokens of an answer as links to the trace of the conversation up to each of them. @param {Message} message @param {any} limits */
function answerTokens({ content, tokens, prompt }, limits) {
  if (prompt === undefined) return content;
  let before = "";
  return alignTokens(content, tokens ?? []).map(({ text, token, index }) => {
    const characters = [...(prompt.text + before)];
    // a trace is of a limited number of characters: the last ones before the token
    const traced = characters.slice(-limits.max_trace_characters).join("");
    const time = characters.length > limits.max_trace_characters ? 0 : prompt.tokens + index - 1; // the position that predicts the token
    before += text;
    const probability = Math.exp(token.logprob);
    const others = token.top_logprobs.map((other) => `${JSON.stringify(other.token)} ${percent(Math.exp(other.logprob))}`);
    const link = linkTo({ ...RESET_SELECTION, view: "look", step: "output", text: traced, special: 1, time });
    return h(
      "a",
      {
        ...link,
        class: `output-word ${confidenceClass(probability)}`,
        title: others.join(" · "),
        data: { ...link.data, probability: String(probability) },
      },
      text,
    );
  });
}

/**
 * The parts of a text that its tokens write; tokens that are parts of a character are one part.
 * @param {string} content @param {Token[]} tokens @returns {{text: string, token: Token, index: number}[]}
 */
function alignTokens(content, tokens) {
  /** @type {{text: string, token: Token, index: number}[]} */
  const parts = [];
  let end = 0;
  let pending = -1; // the first of the tokens whose text is not known
  tokens.forEach((token, index) => {
    const name = index === 0 && !content.startsWith(" ") ? token.token.replace(/^ /, "") : token.token;
    const start = name ? content.indexOf(name, end) : -1;
    if (start < 0 || (start > end && pending < 0)) {
      if (pending < 0) pending = index;
      return;
    }
    if (start > end) parts.push({ text: content.slice(end, start), token: tokens[pending], index: pending });
    pending = -1;
    parts.push({ text: name, token, index });
    end = start + name.length;
  });
  const rest = Math.max(0, pending < 0 ? tokens.length - 1 : pending);
  if (end < content.length && tokens.length) parts.push({ text: content.slice(end), token: tokens[rest], index: rest });
  return parts;
}
