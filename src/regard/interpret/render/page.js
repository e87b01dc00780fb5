// Attention section of a trace's page: a thumbnail of every head, and the numbers of the selected one.
const { attentions } = JSON.parse(document.getElementById("attention-data").textContent);
const gallery = document.getElementById("gallery");
const detail = document.getElementById("detail");
const state = { attention: attentions.length - 1, head: 0, point: "weights" };

function createElement(name, content, attributes = {}) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") element.className = value;
    else element.setAttribute(key, value);
  }
  element.append(...[content ?? []].flat());
  return element;
}

function drawThumbnail(values) {
  const canvas = createElement("canvas", null, { width: values[0].length, height: values.length });
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--c1");
  values.forEach((row, y) =>
    row.forEach((value, x) => {
      context.globalAlpha = Math.max(0, Math.min(1, value ?? 0));
      context.fillRect(x, y, 1, 1);
    }),
  );
  return canvas;
}

function renderGallery() {
  gallery.replaceChildren(
    ...attentions.map((attention, index) => {
      const thumbnails = attention.points.weights.map((values, head) => {
        const selected = index === state.attention && head === state.head;
        const label = `${attention.title}, head ${head}`;
        const button = createElement("button", drawThumbnail(values), {
          class: "thumb", type: "button", title: label, "aria-label": label, "aria-pressed": String(selected),
        });
        button.addEventListener("click", () => select({ attention: index, head }));
        return button;
      });
      const row = [createElement("span", attention.title), createElement("div", thumbnails)];
      return createElement("div", row, { class: "strip" });
    }),
  );
}

function formatNumber(value) {
  const size = Math.abs(value);
  return size < 0.005 ? "" : value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

function createCell(value, maximum, showStatus) {
  if (value === null) {
    const masked = createElement("td", "−∞", { class: "masked" });
    masked.addEventListener("pointerenter", () => showStatus("masked"));
    return masked;
  }
  const fraction = Math.min(1, Math.abs(value) / maximum);
  const classes = [value < 0 ? "negative" : "", fraction > 0.6 ? "strong" : ""].join(" ").trim();
  const cell = createElement("td", formatNumber(value), { class: classes });
  cell.style.setProperty("--shade", fraction.toFixed(3));
  cell.addEventListener("pointerenter", () => showStatus(String(value)));
  return cell;
}

function renderDetail() {
  const attention = attentions[state.attention];
  const values = attention.points[state.point][state.head];
  const absolute = values.flat().map((value) => Math.abs(value ?? 0));
  const maximum = state.point === "weights" ? 1 : Math.max(1e-9, ...absolute);
  const readout = createElement("p", "", { class: "readout" });
  const columnLabels = attention.columns.map((label) =>
    createElement("th", createElement("span", label), { scope: "col" }),
  );
  const head = createElement("tr", [createElement("td"), ...columnLabels]);
  const body = attention.rows.map((label, y) =>
    createElement("tr", [
      createElement("th", label, { scope: "row" }),
      ...values[y].map((value, x) =>
        createCell(value, maximum, (text) => (readout.textContent = `${label} → ${attention.columns[x]}: ${text}`)),
      ),
    ]),
  );
  const points = Object.keys(attention.points).map((point) => {
    const button = createElement("button", point, { type: "button", "aria-pressed": String(point === state.point) });
    button.addEventListener("click", () => select({ point }));
    return button;
  });
  const title = createElement("b", `${attention.title}, head ${state.head}`);
  const table = createElement("table", [createElement("thead", head), createElement("tbody", body)], { class: "heat" });
  detail.replaceChildren(
    createElement("div", [title, ...points], { class: "toolbar" }),
    createElement("div", table, { class: "wide" }),
    readout,
  );
}

function select(change) {
  Object.assign(state, change);
  if (!(state.point in attentions[state.attention].points)) state.point = "weights";
  renderGallery();
  renderDetail();
}

if (gallery && attentions.length) {
  select({});
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renderGallery);
}
