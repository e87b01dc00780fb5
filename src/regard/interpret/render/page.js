// Draws attention: a small picture of every head, and the chosen one with its numbers.
const { attentions } = JSON.parse(document.getElementById("attention-data").textContent);
const gallery = document.getElementById("gallery");
const detail = document.getElementById("detail");
const state = { attention: attentions.length - 1, head: 0, point: "weights" };

function make(name, content, attributes = {}) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") element.className = value;
    else element.setAttribute(key, value);
  }
  element.append(...[content ?? []].flat());
  return element;
}

function thumbnail(values) {
  const canvas = make("canvas", null, { width: values[0].length, height: values.length });
  const paint = canvas.getContext("2d");
  paint.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--c1");
  values.forEach((row, y) =>
    row.forEach((value, x) => {
      paint.globalAlpha = Math.max(0, Math.min(1, value ?? 0));
      paint.fillRect(x, y, 1, 1);
    }),
  );
  return canvas;
}

function strips() {
  gallery.replaceChildren(
    ...attentions.map((attention, number) => {
      const thumbs = attention.points.weights.map((values, head) => {
        const chosen = number === state.attention && head === state.head;
        const label = `${attention.title}, head ${head}`;
        const button = make("button", thumbnail(values), {
          class: "thumb", type: "button", title: label, "aria-label": label, "aria-pressed": String(chosen),
        });
        button.addEventListener("click", () => choose({ attention: number, head }));
        return button;
      });
      return make("div", [make("span", attention.title), make("div", thumbs)], { class: "strip" });
    }),
  );
}

const shown = (value) => (Math.abs(value) < 0.005 ? "" : value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2));

function cell(value, most, say) {
  if (value === null) {
    const hidden = make("td", "−∞", { class: "masked" });
    hidden.addEventListener("pointerenter", () => say("may not be looked at"));
    return hidden;
  }
  const share = Math.min(1, Math.abs(value) / most);
  const one = make("td", shown(value), { class: [value < 0 ? "below" : "", share > 0.6 ? "strong" : ""].join(" ").trim() });
  one.style.setProperty("--share", share.toFixed(3));
  one.addEventListener("pointerenter", () => say(String(value)));
  return one;
}

function matrix() {
  const attention = attentions[state.attention];
  const values = attention.points[state.point][state.head];
  const most = state.point === "weights" ? 1 : Math.max(1e-9, ...values.flat().map((value) => Math.abs(value ?? 0)));
  const said = make("p", "", { class: "said" });
  const head = make("tr", [make("td"), ...attention.columns.map((label) => make("th", make("span", label), { scope: "col" }))]);
  const body = attention.rows.map((label, y) =>
    make("tr", [
      make("th", label, { scope: "row" }),
      ...values[y].map((value, x) =>
        cell(value, most, (text) => (said.textContent = `${label} → ${attention.columns[x]}: ${text}`)),
      ),
    ]),
  );
  const points = Object.keys(attention.points).map((point) => {
    const button = make("button", point, { type: "button", "aria-pressed": String(point === state.point) });
    button.addEventListener("click", () => choose({ point }));
    return button;
  });
  const title = make("b", `${attention.title}, head ${state.head}`);
  const table = make("table", [make("thead", head), make("tbody", body)], { class: "heat" });
  detail.replaceChildren(make("div", [title, ...points], { class: "choice" }), make("div", table, { class: "wide" }), said);
}

function choose(change) {
  Object.assign(state, change);
  if (!(state.point in attentions[state.attention].points)) state.point = "weights";
  strips();
  matrix();
}

if (gallery && attentions.length) {
  choose({});
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", strips);
}
