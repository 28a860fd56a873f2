"use strict";
// What one does with a timeline: point, select, move, zoom, and light up its critical path or a finding.
class TimeLineInput extends TimeLine {
  // What is drawn at a place of the canvas, and how many more share its pixel.
  itemAt(x, y) {
    const row = this.rows.find((row) => y >= row.y - 2 && y < row.y + LEVEL * row.lanes.length);
    if (!row || x < this.left) return null;
    const lane = row.lanes[Math.min(Math.max(0, Math.floor((y - row.y) / LEVEL)), row.lanes.length - 1)];
    const [from, to] = [this.at(x - 2), this.at(x + 2)];
    const first = above(lane.reach, from, 0, lane.count), behind = above(lane.starts, to, first, lane.count);
    let best = -1;
    for (let n = first; n < behind && n < first + 1000; n++)
      if (best < 0 || Math.abs(this.distance(lane.members[n], x)) <= Math.abs(this.distance(best, x))) best = lane.members[n];
    return best < 0 ? null : { item: best, more: Math.max(0, behind - first - 1) };
  }
  distance(i, x) {
    return Math.max(this.x(this.items.start[i]) - x, 0, x - this.x(this.end[i]));
  }

  select(i) {
    if (i >= 0 && this.rowOf(i).group === "path" && this.items.cause[i] >= 0) i = this.items.cause[i];
    this.selected = i;
    this.chosen = i < 0 ? [] : this.links(i);
    const name = (k) => this.header.names[this.items.name[k]] || this.rowOf(k).label;
    const list = (some) => `${some.slice(0, 3).map(name).join("; ")}${some.length > 3 ? ` and ${some.length - 3} more` : ""}`;
    const [before, behind] = [this.chosen.filter(([, to]) => to === i), this.chosen.filter(([from]) => from === i)];
    const lines = i < 0 ? [] : this.words(i);
    if (before.length) lines.push(`after: ${list(before.map(([from]) => from))}`);
    if (behind.length) lines.push(`then: ${list(behind.map(([, to]) => to))}`);
    this.description.textContent = lines.join(" · ");
    this.redraw();
  }

  show(from, to) {
    const least = Math.min(20, this.whole), length = Math.min(Math.max(to - from, least), this.whole);
    const start = Math.min(Math.max(from, 0), this.whole - length);
    this.span = [start, start + length];
    this.hover.hidden = true;
    this.redraw();
  }
  zoom(factor, x = this.left + this.wide / 2) {
    const centre = Math.min(Math.max(this.at(x), this.span[0]), this.span[1]);
    this.show(centre - (centre - this.span[0]) / factor, centre + (this.span[1] - centre) / factor);
  }
  move(share) {
    const by = share * (this.span[1] - this.span[0]);
    this.show(this.span[0] + by, this.span[1] + by);
  }
  step(by) {
    const row = this.selected >= 0 ? this.rowOf(this.selected) : this.rows.find((row) => row.group !== "path") || this.rows[0];
    if (!row) return;
    const next = this.selected < 0 ? row.from : Math.min(Math.max(this.selected + by, row.from), row.to - 1);
    this.select(next);
    const [start, end] = [this.items.start[next], this.end[next]], length = this.span[1] - this.span[0];
    if (start < this.span[0] || end > this.span[1]) this.show((start + end - length) / 2, (start + end + length) / 2);
  }

  // The parts of the run in which the lit items lie, with some room; and what they are is said.
  mark(bit, title) {
    this.light((i) => this.items.marks[i] & (1 << bit));
    let [from, to, count] = [Infinity, 0, 0];
    for (let i = 0; i < this.header.count; i++)
      if (this.lit[i]) [from, to, count] = [Math.min(from, this.items.start[i]), Math.max(to, this.end[i]), count + 1];
    this.description.textContent = `${title}: ${count.toLocaleString("en")} shown bright; “Whole run” resets this`;
    if (count) this.show(from - (to - from) / 20, to + (to - from) / 20);
  }

  path(button) {
    const on = button.getAttribute("aria-pressed") !== "true";
    const lit = new Uint8Array(this.header.count);
    for (const row of this.rows)
      if (row.group === "path")
        for (let i = row.from; i < row.to; i++) lit[i] = lit[this.items.cause[i]] = 1;
    this.light(on ? (i) => lit[i] : null);
    button.setAttribute("aria-pressed", on);
  }

  listen() {
    const { canvas, element } = this, held = new Map(), tools = element.querySelector(".tools");
    const doing = {
      in: () => this.zoom(2),
      out: () => this.zoom(0.5),
      whole: () => {
        this.select(-1);
        this.light(null);
        this.show(0, this.whole);
      },
    };
    for (const button of tools.children) {
      button.addEventListener("click", doing[button.dataset.do] || (() => this.path(button)));
    }
    tools.hidden = false;
    const keys = {
      w: doing.in, "+": doing.in, "=": doing.in, s: doing.out, "-": doing.out,
      a: () => this.move(-0.2), ArrowLeft: () => this.move(-0.2),
      d: () => this.move(0.2), ArrowRight: () => this.move(0.2),
      0: doing.whole, Home: doing.whole, Escape: () => this.select(-1), n: () => this.step(1), p: () => this.step(-1),
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 200), event.offsetX);
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) this.move((event.deltaX || event.deltaY) / this.wide);
      else return;
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      held.set(event.pointerId, event.offsetX);
      this.pressed = { x: event.offsetX, y: event.offsetY, moved: 0, shift: event.shiftKey };
      if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const x = event.offsetX, before = held.get(event.pointerId);
      if (before === undefined) return this.point(event);
      const fingers = [...held].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      held.set(event.pointerId, x);
      this.pressed.moved += Math.abs(x - before);
      if (fingers.length) {
        const [old, now] = [Math.abs(before - fingers[0]), Math.abs(x - fingers[0])];
        if (old > 8 && now > 8) this.zoom(now / old, (x + fingers[0]) / 2);
      } else if (!this.pressed.shift && this.pressed.moved > 3) this.move((before - x) / this.wide);
      else if (this.pressed.shift) {
        this.draw();
        this.pen.globalAlpha = 0.25;
        this.pen.fillStyle = this.ink;
        this.pen.fillRect(this.pressed.x, 0, x - this.pressed.x, this.high);
        this.pen.globalAlpha = 1;
      }
    });
    const released = (event) => {
      if (!held.delete(event.pointerId) || held.size) return;
      const { x, y, moved, shift } = this.pressed, ends = [this.at(x), this.at(event.offsetX)].sort((a, b) => a - b);
      if (moved > 3 && shift) this.show(...ends);
      else if (moved <= 3 && event.type === "pointerup") this.select(this.itemAt(x, y)?.item ?? -1);
    };
    for (const type of ["pointerup", "pointercancel"]) canvas.addEventListener(type, released);
    canvas.addEventListener("pointerleave", () => { this.hover.hidden = true; });
    canvas.addEventListener("dblclick", doing.whole);
    for (const button of document.querySelectorAll("button[data-shows]")) {
      const bit = this.header.marks.indexOf(button.dataset.shows);
      if (bit < 0) continue;
      button.hidden = false;
      button.addEventListener("click", () => {
        this.mark(bit, button.dataset.title);
        element.scrollIntoView({ block: "start" });
        canvas.focus({ preventScroll: true });
      });
    }
    new ResizeObserver(() => this.redraw()).observe(canvas.parentNode);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    addEventListener("beforeprint", () => this.draw(true));
    addEventListener("afterprint", () => this.redraw());
  }

  point(event) {
    const under = this.itemAt(event.offsetX, event.offsetY);
    this.hover.hidden = !under;
    this.canvas.style.cursor = under ? "pointer" : "grab";
    if (!under) return;
    const lines = this.words(under.item);
    if (under.more) lines.push(`and ${under.more.toLocaleString("en")} more here: zoom in to separate them`);
    this.hover.replaceChildren(...lines.map((line) => {
      const part = document.createElement("div");
      part.textContent = line;
      return part;
    }));
    const room = this.left + this.wide - this.hover.offsetWidth - 4;
    this.hover.style.left = `${Math.max(0, Math.min(event.offsetX + 12, room))}px`;
    this.hover.style.top = `${this.canvas.offsetTop + event.offsetY + 18}px`;
  }
}

const drawn = [...document.querySelectorAll(".time-line")].map(async (element) => {
  if (!window.DecompressionStream) {
    element.querySelector(".selected").textContent = "This browser cannot unpack the timeline: it lacks DecompressionStream.";
    return;
  }
  const packed = element.querySelector("script");
  const line = new TimeLineInput(element, await unpack(packed.textContent));
  packed.remove();
  element.timeLine = line;
  line.listen();
  line.draw();
});
Promise.all(drawn).then(() => { document.body.dataset.drawn = "yes"; });
