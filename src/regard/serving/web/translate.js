// View of a translation model: translates while the user types.

import { errorMessage, request, RequestError, Trace } from "./api.js";
import { candidates } from "./candidates.js";
import { h, replace } from "./dom.js";
import { liveRequest } from "./live_request.js";
import { percent } from "./numbers.js";
import { linkTo, updateUrl } from "./state.js";
import { confidenceClass, confidenceLegend, groupTokens } from "./words.js";

/** @param {HTMLElement} root @param {any} app @param {import("./state.js").State} state */
export async function showTranslate(root, app, state) {
  const { about } = app;
  const source = h("textarea", {
    id: "source",
    rows: 5,
    spellcheck: "true",
    lang: about.source.code,
    dir: "auto",
    maxlength: app.limits.max_characters,
    placeholder: "Type here",
    value: state.text,
  });
  const target = h("div", {
    id: "target",
    class: "target",
    lang: about.target.code,
    dir: "auto",
    role: "region",
    "aria-live": "polite",
    "aria-labelledby": "target-label",
  });
  const domain = h("p", { class: "note", id: "domain", "aria-live": "polite" }, domainNote([], about.covers));
  const others = h("div", { class: "others" });
  const detail = h("div", { class: "detail", "aria-live": "polite" });
  const latency = h("p", { class: "latency", id: "latency" });
  const inside = h("a", { ...linkTo({ view: "look" }), class: "look-link" }, "Look inside →");
  replace(
    root,
    h(
      "div",
      { class: "panes" },
      h("div", { class: "pane" }, h("label", { for: "source" }, about.source.name), source),
      h(
        "div",
        { class: "pane" },
        h("p", { class: "label", id: "target-label" }, about.target.name),
        target,
        domain,
        h("div", { class: "pane-footer" }, latency, inside),
      ),
    ),
    confidenceLegend("Select a word to see its source words and alternatives.", target),
    detail,
    others,
  );
  let requestCount = 0; // number of the latest request: older responses are dropped
  const translate = liveRequest({
    fields: [source],
    state: () => ({ text: source.value, word: 0, sentence: 0 }),
    clear: () => replace(others),
    out: target,
    latency,
    request: (signal) => {
      const text = source.value;
      requestCount += 1;
      replace(detail);
      replace(domain, domainNote([], about.covers));
      if (!text.trim()) return null;
      const fields = {
        text: text.split("\n"),
        model: about.name,
        format: "text", // tags are words here, whose alternatives and alignment can be shown
        n_best: Math.min(3, app.limits.max_beam),
        token_scores: true,
      };
      return request("/v1/translate", fields, signal);
    },
    show: (response) => show(response?.translations ?? []),
  });
  const show = (/** @type {any[]} */ lines) => {
    replace(
      target,
      ...lines.map((line) =>
        h(
          "p",
          { dir: "auto" },
          line.sentences.flatMap((/** @type {any} */ sentence) => wordButtons(sentence)),
        ),
      ),
    );
    const sentences = lines.flatMap((line) => line.sentences);
    replace(domain, domainNote(sentences, about.covers));
    const ambiguous = sentences.filter((sentence) => sentence.alternatives.length > 1);
    replace(
      others,
      ambiguous.length ? h("h2", {}, "Alternative translations") : null,
      ...ambiguous.map((sentence) =>
        h(
          "ul",
          { class: "alternatives" },
          sentence.alternatives
            .slice(1)
            .map((/** @type {any} */ item) =>
              h(
                "li",
                {},
                h("span", { lang: about.target.code, dir: "auto" }, item.text),
                h("span", { class: "unit" }, ` ${percent(Math.exp(item.log_probability ?? 0))}`),
              ),
            ),
        ),
      ),
    );
  };
  const wordButtons = (/** @type {any} */ sentence) => {
    const [best] = sentence.alternatives;
    if (!best) return [];
    const words = groupTokens(best.tokens, best.token_scores);
    const pageWords = words.map((word) => word.text);
    return words.flatMap((word, n) => [
      h(
        "button",
        {
          type: "button",
          class: `output-word ${confidenceClass(word.probability)}`,
          data: { probability: String(word.probability) },
          on: { click: (/** @type {Event} */ event) => explain(sentence, pageWords, n, word, event.currentTarget) },
        },
        word.text,
      ),
      " ",
    ]);
  };
  const explain = async (
    /** @type {any} */ sentence,
    /** @type {string[]} */ pageWords,
    /** @type {number} */ n,
    /** @type {any} */ word,
    /** @type {any} */ button,
  ) => {
    const all = [...target.querySelectorAll(".output-word")];
    for (const other of all) other.removeAttribute("aria-pressed");
    button.setAttribute("aria-pressed", "true");
    updateUrl({ word: all.indexOf(button) + 1 });
    replace(detail, h("p", { class: "note" }, "Loading …"));
    requestCount += 1;
    const ownCount = requestCount;
    try {
      const trace = await Trace.of({ text: sentence.source, target: sentence.alternatives[0].text, model: about.name });
      const parts = await explanation(trace, pageWords, n, word);
      if (ownCount === requestCount) replace(detail, ...parts);
    } catch (error) {
      if (!(error instanceof RequestError)) throw error;
      if (ownCount === requestCount) replace(detail, errorMessage(error, () => button.click()));
    }
  };
  await translate();
  target.querySelectorAll(".output-word")[state.word - 1]?.click();
  source.focus({ preventScroll: true });
}

/** Says which sentences are unlike the training data, and what these cover. @param {any[]} sentences @param {string | undefined} covers */
function domainNote(sentences, covers) {
  const words = sentences.flatMap((sentence) => sentence.unknown_words);
  const reasons = [
    words.length ? `unknown words: ${words.slice(0, 5).join(", ")}${words.length > 5 ? ", …" : ""}` : "",
    sentences.some((sentence) => sentence.flags.includes("low_confidence")) ? "low confidence" : "",
  ].filter(Boolean);
  const warning = reasons.length ? `Unlike the training data (${reasons.join("; ")}): do not rely on this translation.` : "";
  return [warning, covers ? `Covers: ${covers}` : ""].filter(Boolean).join(" ");
}

/** Source words of a target word, and alternatives to it. @param {Trace} trace @param {string[]} pageWords @param {number} n @param {any} word */
async function explanation(trace, pageWords, n, word) {
  const { target, steps, has_alignment: aligned } = trace.outline;
  const words = target.words.filter((/** @type {any} */ item) => !item.special);
  const covered = coveredWords(words, pageWords, n);
  const first = steps[covered[0]?.tokens[0] ?? 0];
  const parts = [h("h2", {}, h("bdi", {}, word.text), h("span", { class: "unit" }, ` ${percent(word.probability)}`))];
  if (aligned) {
    const alignment = await trace.request("alignment");
    const row = target.words.indexOf(covered[0]);
    const weights = alignment.weights[row] ?? [];
    const costs = alignment.costs[row] ?? [];
    const top = Math.max(1e-6, ...costs);
    parts.push(
      h("h3", {}, "Source words"),
      h(
        "div",
        { class: "tokens" },
        alignment.source.map((/** @type {string} */ text, /** @type {number} */ m) =>
          h(
            "span",
            { class: "word highlighted" },
            h("span", { class: "highlight", style: { opacity: String(weights[m] ?? 0) } }),
            h(
              "span",
              { class: "token" },
              h("b", { dir: "auto" }, text),
              h("i", {}, percent(weights[m] ?? 0)),
              h(
                "span",
                { class: "bar c2" },
                h("span", { style: { width: `${(100 * Math.max(0, costs[m])) / top}%` } }),
              ),
            ),
          ),
        ),
      ),
      h(
        "p",
        { class: "note" },
        `Blue: attention (${alignment.chosen.point.replace(".weights", "")}, head ${alignment.chosen.head}). Orange: cost of removing the source word. Attention is not explanation; where they differ, rely on the cost.`,
      ),
    );
  }
  parts.push(h("h3", {}, "Alternatives"), candidates(first.candidates.slice(0, 6), first.id));
  return parts;
}

/**
 * The words of a trace that a word on the page covers. The trace splits at punctuation, the page at spaces, so characters are counted.
 * @param {any[]} words @param {string[]} pageWords @param {number} n
 */
function coveredWords(words, pageWords, n) {
  const characterCount = (/** @type {string[]} */ texts) => texts.join("").replace(/\s/g, "").length;
  const [start, end] = [characterCount(pageWords.slice(0, n)), characterCount(pageWords.slice(0, n + 1))];
  let at = 0;
  const response = words.filter((item) => {
    const before = at;
    at += characterCount([item.text]);
    return before < end && at > start;
  });
  return response.length ? response : words.slice(-1);
}
