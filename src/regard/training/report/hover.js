// Shows the values of a chart at the pointer. The page works without it.
for (const plot of document.querySelectorAll(".plot")) {
  const field = plot.querySelector(".field");
  const series = [...plot.querySelectorAll("path[data-points]")].map((path) => ({
    name: path.dataset.name,
    color: path.getAttribute("class").split(" ").pop(),
    points: JSON.parse(path.dataset.points),
  }));
  const last = Number(plot.dataset.last);
  const cursor = document.createElement("span");
  const box = document.createElement("div");
  cursor.className = "cursor";
  box.className = "readout";

  const format = (value) =>
    value !== 0 && Math.abs(value) < 1e-2
      ? value.toExponential(2)
      : Number(value.toPrecision(4)).toLocaleString("en");

  const nearest = (points, step) =>
    points.reduce((a, b) => (Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a));

  function show(event) {
    const bounds = field.getBoundingClientRect();
    const step = ((event.clientX - bounds.left) / bounds.width) * last;
    const values = series.map((line) => nearest(line.points, step));
    const at = values.reduce((a, b) => (Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a))[0];
    cursor.style.left = `${(100 * at) / last}%`;
    box.classList.toggle("left", at > last / 2);
    box.style.left = `${(100 * at) / last}%`;
    box.replaceChildren(`step ${at.toLocaleString("en")}`);
    series.forEach((line, index) => {
      const key = document.createElement("span");
      key.className = `key ${line.color}`;
      const note = values[index][0] === at ? "" : ` (step ${values[index][0].toLocaleString("en")})`;
      key.textContent = `${line.name} ${format(values[index][1])}${note}`;
      box.append(key);
    });
    field.append(cursor, box);
  }

  field.addEventListener("pointermove", show);
  field.addEventListener("pointerdown", show);
  field.addEventListener("pointerleave", () => {
    cursor.remove();
    box.remove();
  });
}
