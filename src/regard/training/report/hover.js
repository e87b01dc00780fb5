// Reads a curve out under the pointer. Without it the page lacks nothing else.
for (const plot of document.querySelectorAll(".plot")) {
  const field = plot.querySelector(".field");
  const series = [...plot.querySelectorAll("path[data-points]")].map((path) => ({
    name: path.dataset.name,
    colour: path.getAttribute("class").split(" ").pop(),
    points: JSON.parse(path.dataset.points),
  }));
  const last = Number(plot.dataset.last);
  const line = document.createElement("span");
  const box = document.createElement("div");
  line.className = "cursor";
  box.className = "readout";

  const shown = (value) =>
    value !== 0 && Math.abs(value) < 1e-2
      ? value.toExponential(2)
      : Number(value.toPrecision(4)).toLocaleString("en");

  const nearest = (points, step) =>
    points.reduce((a, b) => (Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a));

  function read(event) {
    const room = field.getBoundingClientRect();
    const step = ((event.clientX - room.left) / room.width) * last;
    const all = series.map((one) => nearest(one.points, step));
    const at = all.reduce((a, b) => (Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a))[0];
    line.style.left = `${(100 * at) / last}%`;
    box.classList.toggle("left", at > last / 2);
    box.style.left = `${(100 * at) / last}%`;
    box.replaceChildren(`step ${at.toLocaleString("en")}`);
    series.forEach((one, index) => {
      const key = document.createElement("span");
      key.className = `key ${one.colour}`;
      const where = all[index][0] === at ? "" : ` (step ${all[index][0].toLocaleString("en")})`;
      key.textContent = `${one.name} ${shown(all[index][1])}${where}`;
      box.append(key);
    });
    field.append(line, box);
  }

  field.addEventListener("pointermove", read);
  field.addEventListener("pointerdown", read);
  field.addEventListener("pointerleave", () => {
    line.remove();
    box.remove();
  });
}
