"use strict";
// What a user does with a timeline: point, select, move, zoom, search, and light up its critical path or a finding.
class TimeLineInput extends TimeLine {
  // What is drawn at a place of the canvas, and how many more share its pixel.
  itemAt(x, y) {
    const row = this.rows.find((row) => y >= row.y - 2 && y < row.y + row.high);
    if (!row || x < this.left) return null;
    const far = (i) => Math.max(this.x(this.items.start[i]) - x, 0, x - this.x(this.end[i]));
    for (let level = row.lanes.length - 1; level >= 0; level--) {
      if (level && y < this.edges(row, level)[0]) continue;
      const lane = row.lanes[level], first = above(lane.reach, this.at(x - 2), 0, lane.count);
      const behind = above(lane.starts, this.at(x + 2), first, lane.count);
      const item = lane.members.slice(first, Math.min(behind, first + 1000)).reduce((best, i) => (best < 0 || far(i) <= far(best) ? i : best), -1);
      if (item >= 0 || row.group === "work") return item < 0 ? null : { item, more: behind - first - 1 };
    }
    return null;
  }

  select(i) {
    this.selected = i;
    this.chosen = i < 0 ? [] : this.links(i);
    const name = (k) => (this.header.names[this.items.name[k]] || this.rowOf(k).label).replace(/^(.{70}).+/, "$1…");
    const list = (some) => `${some.slice(0, 3).map(name).join("; ")}${some.length > 3 ? ` and ${some.length - 3} more` : ""}`;
    const [before, behind] = [this.chosen.filter(([, to]) => to === i), this.chosen.filter(([from]) => from === i)];
    const lines = i < 0 ? [] : this.words(i);
    if (before.length) lines.push(`${this.rowOf(i).group === "path" ? "set by" : "after"}: ${list(before.map(([from]) => from))}`);
    if (behind.length) lines.push(`then: ${list(behind.map(([, to]) => to))}`);
    this.description.textContent = lines.join("\n") || this.hint;
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
  // Selects what is next: of the matches of a search or a finding, else in the row.
  step(by) {
    const row = this.rowOf(Math.max(this.selected, 0)), { matches } = this, many = matches.length;
    if (many) this.match = this.match < 0 && by < 0 ? many - 1 : (this.match + by + many) % many;
    const i = many ? matches[this.match] : this.selected < 0 ? 0 : Math.min(Math.max(this.selected + by, row.from), row.to - 1);
    this.count();
    this.select(i);
    const [start, length, shown] = [this.items.start[i], this.items.length[i], this.span[1] - this.span[0]];
    const tiny = (length / shown) * this.wide < 2, room = tiny ? 200 * length : Math.max(shown, 1.2 * length);
    if (tiny || start < this.span[0] || this.end[i] > this.span[1]) this.show(start - (room - length) / 2, start + (room + length) / 2);
  }

  search(text) {
    const wanted = text.trim().toLowerCase(), fits = this.header.names.map((name) => name.toLowerCase().includes(wanted));
    this.light(wanted ? (i) => fits[this.items.name[i]] : null);
    this.count();
  }
  count() {
    const place = this.match < 0 ? "" : `${(this.match + 1).toLocaleString("en")} of `;
    this.element.querySelector("output").textContent = this.lit ? place + this.matches.length.toLocaleString("en") : "";
  }

  // The parts of the run in which the lit items lie, with some room; and what they are.
  mark(bit, title) {
    this.light((i) => this.items.marks[i] & (1 << bit));
    const { matches } = this, from = this.items.start[matches[0]], to = matches.reduce((most, i) => Math.max(most, this.end[i]), 0);
    this.count();
    this.description.textContent = `${title}: ${matches.length.toLocaleString("en")} shown bright; “Whole run” resets this`;
    if (matches.length) this.show(from - (to - from) / 20, to + (to - from) / 20);
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
    const { canvas, element, items } = this, held = new Map(), tools = element.querySelector(".tools"), field = tools.querySelector("input");
    const doing = {
      in: () => this.zoom(2),
      out: () => this.zoom(0.5),
      whole: () => {
        field.value = "";
        this.search("");
        this.select(-1);
        this.show(0, this.whole);
      },
      path: (button) => this.path(button),
    };
    for (const button of tools.querySelectorAll("button")) button.addEventListener("click", () => doing[button.dataset.do](button));
    tools.hidden = false;
    const fit = (i = this.selected) => i >= 0 && this.show(items.start[i] - 2 * items.length[i], this.end[i] + 2 * items.length[i]);
    const keys = {
      w: doing.in, "+": doing.in, "=": doing.in, s: doing.out, "-": doing.out, f: () => fit(), "/": () => field.focus(),
      a: () => this.move(-0.2), ArrowLeft: () => this.move(-0.2), d: () => this.move(0.2), ArrowRight: () => this.move(0.2),
      0: doing.whole, Home: doing.whole, Escape: () => this.select(-1),
      n: () => this.step(1), N: () => this.step(-1), p: () => this.step(-1),
    };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    field.addEventListener("input", () => this.search(field.value));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.matches.length) this.step(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") canvas.focus();
    });
    // A page that scrolls goes on scrolling where the timeline comes below the pointer, and where there is no more to see.
    let [scrolled, zoomed] = [-1000, -1000];
    addEventListener("scroll", () => { scrolled = performance.now(); }, { passive: true });
    canvas.addEventListener("wheel", (event) => {
      const across = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY), pinch = event.ctrlKey || event.metaKey;
      const whole = event.deltaY > 0 && this.span[1] - this.span[0] >= this.whole, now = performance.now();
      if (!across && !pinch && now - zoomed > 400 && (whole || now - scrolled < 400)) return;
      const lines = event.deltaMode === 1 ? 16 : 1;
      zoomed = now;
      if (across) this.move((lines * (event.deltaX || event.deltaY)) / this.wide);
      else this.zoom(Math.exp((-event.deltaY * lines) / (pinch ? 200 : 400)), event.offsetX);
      event.preventDefault();
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      held.set(event.pointerId, event.offsetX);
      this.pressed = { x: event.offsetX, y: event.offsetY, moved: 0 };
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
      } else if (this.pressed.moved > 3) this.move((before - x) / this.wide);
    });
    const released = (event) => {
      if (!held.delete(event.pointerId) || held.size || this.pressed.moved > 3 || event.type !== "pointerup") return;
      this.select(this.itemAt(this.pressed.x, this.pressed.y)?.item ?? -1);
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
    this.hover.textContent = lines.join("\n");
    const room = this.left + this.wide - this.hover.offsetWidth - 4;
    this.hover.style.left = `${Math.max(0, Math.min(event.offsetX + 12, room))}px`;
    this.hover.style.top = `${this.canvas.offsetTop + event.offsetY + 18}px`;
  }
}

const drawn = [...document.querySelectorAll(".time-line")].map(async (element) => {
  const packed = element.querySelector("script"), words = element.querySelector(".selected");
  if (!window.DecompressionStream) return (words.textContent = "This browser is too old for the timeline: it lacks DecompressionStream.");
  element.timeLine = new TimeLineInput(element, await unpack(packed.textContent));
  packed.remove();
  element.timeLine.listen();
  element.timeLine.draw();
});
Promise.all(drawn).then(() => { document.body.dataset.drawn = "yes"; });
