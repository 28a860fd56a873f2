"use strict";
// Time lines: drag to zoom, double-click to go back, point at a bar for its name. All else of a page works without this.
for (const lanes of document.querySelectorAll("svg.lanes")) {
  const names = JSON.parse(lanes.dataset.names);
  const whole = lanes.viewBox.baseVal.width;
  const height = lanes.viewBox.baseVal.height;
  const ticks = [...lanes.parentNode.querySelectorAll(".tick")];
  const seconds = Number(lanes.dataset.seconds);
  const chosen = lanes.querySelector(".chosen");
  let from = null;
  const at = (event) => {
    const box = lanes.getBoundingClientRect();
    const view = lanes.viewBox.baseVal;
    return view.x + view.width * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const time = (value) => {
    for (const [limit, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]])
      if (Math.abs(value) >= limit) return `${Number((value / limit).toPrecision(4))} ${unit}`;
    return `${Math.round(value * 1e9)} ns`;
  };
  const show = (start, width) => {
    lanes.setAttribute("viewBox", `${start} 0 ${width} ${height}`);
    ticks.forEach((tick, n) => {
      tick.textContent = time((seconds * (start + (width * n) / (ticks.length - 1))) / whole);
    });
  };
  lanes.addEventListener("pointerdown", (event) => { from = at(event); });
  lanes.addEventListener("pointermove", (event) => {
    if (from === null) return;
    chosen.setAttribute("x", Math.min(from, at(event)));
    chosen.setAttribute("width", Math.abs(at(event) - from));
  });
  window.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [start, end] = [Math.min(from, at(event)), Math.max(from, at(event))];
    from = null;
    chosen.setAttribute("width", 0);
    if (end - start > 0.005 * lanes.viewBox.baseVal.width) show(start, end - start);
  });
  lanes.addEventListener("dblclick", () => show(0, whole));
  lanes.addEventListener("pointerover", ({ target }) => {
    if (!target.dataset.t || target.firstChild) return;
    const [name, ...more] = target.dataset.t.split("|");
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = [names[name], ...more].join("\n");
    target.append(title);
  });
}
document.body.dataset.drawn = "yes";
