"use strict";
// Timelines: operations and calls are unpacked once and drawn on a canvas, those of one pixel as one bar. A draw looks at
// no more than a few of them a pixel, by bisection, however many there are.
const MOST_LEVELS = 4, LEVEL = 20, NESTED = 4, GAP = 5, AXIS = 34, NARROW = 600, LOOKED_AT = 12, MOST_LINES = 200;

const unpack = async (text) => {
  const letters = atob(text), packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const data = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(data.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(data.subarray(4, 4 + length)));
  const items = {};
  let at = 4 + length;
  for (const [name, planes] of header.columns) {
    const exact = name === "start" || name === "length" || name === "bytes";
    const column = exact ? new Float64Array(header.count) : new Int32Array(header.count);
    for (let i = 0, value = 0; i < header.count; i++) {
      let coded = 0;
      for (let plane = planes - 1; plane >= 0; plane--) coded = coded * 256 + data[at + plane * header.count + i];
      value += coded % 2 ? -(coded + 1) / 2 : coded / 2;
      column[i] = value;
    }
    items[name] = column;
    at += planes * header.count;
  }
  // How far before itself something names what it means, and 0 for nothing: from here on its place, and -1.
  for (const column of [items.cause, items.after])
    for (let i = 0; i < header.count; i++) column[i] = column[i] ? column[i] + i : -1;
  return { header, items };
};

const amount = (value, limits, last) => {
  for (const [limit, unit] of limits)
    if (Math.abs(value) >= limit * 0.9995) return `${Number((value / limit).toPrecision(3)).toLocaleString("en")} ${unit}`;
  return `${Math.round(value).toLocaleString("en")} ${last}`;
};
const time = (ns) => amount(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]], "ns");
const percent = (share) => `${share < 0.1 ? Number((100 * share).toPrecision(2)) : Math.round(100 * share)} %`;
const size = (bytes) => amount(bytes, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]], "B");

// The first place in `sorted` (up to `end`) whose value is above `value`.
const above = (sorted, value, start, end) => {
  while (start < end) {
    const middle = (start + end) >> 1;
    if (sorted[middle] > value) end = middle;
    else start = middle + 1;
  }
  return start;
};

class TimeLine {
  constructor(element, { header, items }) {
    Object.assign(this, { element, header, items });
    this.canvas = element.querySelector("canvas");
    this.hover = element.querySelector(".hover");
    this.description = element.querySelector(".selected");
    this.pen = this.canvas.getContext("2d");
    this.whole = Math.max(header.span, 1);
    this.span = [0, this.whole];
    this.selected = -1;
    [this.lit, this.matches, this.match, this.hint] = [null, [], -1, this.description.textContent];
    this.end = new Float64Array(header.count);
    for (let i = 0; i < header.count; i++) this.end[i] = items.start[i] + items.length[i];
    let first = 0;
    this.rows = header.rows.map(([label, group, count, predicted]) => {
      const row = { label, group, predicted, from: first, to: (first += count) };
      return Object.assign(row, { lanes: this.lanesOf(row) });
    });
  }

  // A row's items as lanes in order of their starts and, but for the last lane, of their ends: work that overlaps goes below
  // each other, and all calls within a call into one lane. `reach`: the latest end so far; `busy`: the time of all before.
  lanesOf({ group, from, to }) {
    const lanes = Array.from({ length: MOST_LEVELS }, () => []), last = new Float64Array(MOST_LEVELS).fill(-1);
    for (let i = from; i < to; i++) {
      let level = group === "calls" && this.end[i] <= last[0] ? 1 : 0;
      while (group === "work" && level < MOST_LEVELS - 1 && last[level] > this.items.start[i]) level++;
      last[level] = Math.max(last[level], this.end[i]);
      lanes[level].push(i);
    }
    return lanes.filter((lane) => lane.length).map((lane) => this.lane(Int32Array.from(lane)));
  }
  lane(members) {
    const count = members.length, [starts, reach, busy] = [0, 0, 1].map((more) => new Float64Array(count + more));
    members.forEach((i, n) => {
      starts[n] = this.items.start[i];
      reach[n] = Math.max(n ? reach[n - 1] : 0, this.end[i]);
      busy[n + 1] = busy[n] + this.items.length[i];
    });
    return { count, members, starts, reach, busy };
  }

  // The top and the height of a lane: calls within a call lie along its lower edge.
  edges(row, level) {
    const nested = row.group === "calls" && level > 0;
    return nested ? [row.y + LEVEL - 2 - NESTED, NESTED] : [row.y + LEVEL * level, LEVEL - 2];
  }

  // Only what `wanted` says of an item stays bright, and N steps through it; null: everything is bright.
  light(wanted) {
    this.element.querySelector("[data-do=path]")?.setAttribute("aria-pressed", false);
    this.lit = wanted && new Uint8Array(this.header.count);
    for (let i = 0; wanted && i < this.header.count; i++) this.lit[i] = wanted(i) ? 1 : 0;
    for (const lane of this.rows.flatMap(({ lanes }) => lanes)) lane.bright = wanted && this.lane(lane.members.filter((i) => this.lit[i]));
    const bright = (path) => this.rows.flatMap(({ group, lanes }) => lanes.flatMap(({ bright }) =>
      (bright && (group === "path") === path ? [...bright.members] : [])));
    this.matches = bright(false).length ? bright(false) : bright(true);
    this.matches.sort((a, b) => this.items.start[a] - this.items.start[b]);
    this.match = -1;
    this.redraw();
  }

  place() {
    const wide = this.canvas.clientWidth, dense = window.devicePixelRatio || 1;
    this.left = wide < NARROW ? 0 : 170;
    this.wide = wide - this.left;
    let y = AXIS;
    for (const row of this.rows) {
      row.y = y + (this.left ? 0 : 15);
      row.high = LEVEL * (row.group === "work" ? Math.max(row.lanes.length, 1) : 1);
      y = row.y + row.high + GAP;
    }
    this.high = y;
    this.canvas.style.height = `${y}px`;
    if (this.canvas.width !== Math.round(wide * dense) || this.canvas.height !== Math.round(y * dense)) {
      this.canvas.width = Math.round(wide * dense);
      this.canvas.height = Math.round(y * dense);
    }
    this.pen.setTransform(dense, 0, 0, dense, 0, 0);
  }

  x(time) {
    return this.left + ((time - this.span[0]) / (this.span[1] - this.span[0])) * this.wide;
  }
  at(x) {
    return this.span[0] + ((x - this.left) / this.wide) * (this.span[1] - this.span[0]);
  }
  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  draw(printed = false) {
    if (!this.canvas.clientWidth) return;
    this.place();
    const style = getComputedStyle(this.element), pen = this.pen;
    const colour = (name, onPaper) => (printed ? onPaper : style.getPropertyValue(name));
    this.ink = colour("--text", "#1a1d21");
    this.back = colour("--back", "#ffffff");
    pen.clearRect(0, 0, this.left + this.wide, this.high);
    pen.font = '12px system-ui, "Segoe UI", "Noto Sans", sans-serif';
    this.drawAxis(colour("--line", "#d8dde3"), colour("--dim", "#5a626c"));
    this.fills = {};
    for (const row of this.rows) {
      pen.fillStyle = this.ink;
      pen.fillText(this.fit(row.label, (this.left || this.wide) - 10), 0, this.left ? row.y + 12 : row.y - 3, (this.left || this.wide) - 8);
    }
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, this.wide, this.high);
    pen.clip();
    for (const row of this.rows)
      row.lanes.forEach((lane, level) => {
        const edges = this.edges(row, level);
        this.drawLane(row, lane, edges, lane.bright ? 0.16 : 1);
        if (lane.bright) this.drawLane(row, lane.bright, edges, 1);
      });
    pen.globalAlpha = 1;
    this.drawJoints();
    if (this.selected >= 0) this.drawSelected();
    pen.restore();
  }
  drawAxis(line, dim) {
    const pen = this.pen, [from, to] = this.span, scale = this.wide / this.whole;
    // Which part of the run is shown.
    pen.fillStyle = line;
    pen.fillRect(this.left, 2, this.wide, 4);
    pen.fillStyle = dim;
    pen.fillRect(this.left + from * scale, 2, Math.max((to - from) * scale, 3), 4);
    const raw = ((to - from) * 110) / this.wide, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
    const [unit, name] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([limit]) => to >= limit) || [1, "ns"];
    const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9)));
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      const x = Math.round(this.x(tick)) + 0.5;
      pen.fillStyle = line;
      pen.fillRect(x, AXIS - 12, 1, this.high);
      pen.fillStyle = dim;
      if (x < this.left + this.wide - 60) pen.fillText(`${(tick / unit).toFixed(digits)} ${name}`, x + 4, 24);
    }
  }

  // Colour of a kind of work; hatched where it is predicted.
  fill(kind, predicted) {
    const key = predicted ? -1 - kind : kind;
    if (this.fills[key]) return this.fills[key];
    const colour = this.header.kinds[kind][1];
    if (!predicted) return (this.fills[key] = colour);
    const tile = document.createElement("canvas"), pen = tile.getContext("2d");
    tile.width = tile.height = 6;
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 6, 6);
    pen.fillStyle = this.back;
    for (let n = 0; n < 6; n++) pen.fillRect(n, 5 - n, 2, 1);
    return (this.fills[key] = this.pen.createPattern(tile, "repeat"));
  }

  drawLane(row, lane, [y, high], alpha) {
    const { pen, items } = this, end = this.left + this.wide;
    let [kind, shade, from, to] = [-1, 0, 0, 0];
    const flush = () => {
      if (kind < 0) return;
      pen.globalAlpha = shade * alpha;
      if (high === NESTED) pen.clearRect(from, y - 1, to - from, 1);
      pen.fillStyle = this.fill(kind, row.predicted);
      pen.fillRect(from, y, to - from, high);
    };
    for (let x = this.left, n = 0; x < end; ) {
      const begun = this.at(x), next = this.at(x + 1);
      n = above(lane.reach, begun, n, lane.count);
      if (n === lane.count) break;
      const left = this.x(lane.starts[n]);
      if (left >= x + 1) {
        x = Math.floor(left);
        continue;
      }
      const right = this.x(lane.reach[n]);
      let [drawn, shown, a, b] = [items.kind[lane.members[n]], 1, Math.max(left, this.left - 1), right];
      if (right - left < 1) {
        const behind = above(lane.starts, next, n, lane.count);
        let longest = n;
        for (let k = n + 1; k < behind && k < n + LOOKED_AT; k++)
          if (items.length[lane.members[k]] > items.length[lane.members[longest]]) longest = k;
        drawn = items.kind[lane.members[longest]];
        const share = (lane.busy[behind] - lane.busy[n]) / (next - begun);
        [shown, a, b] = [share > 0.75 ? 1 : share > 0.4 ? 0.75 : share > 0.15 ? 0.55 : 0.4, x, x + 1];
      }
      b = Math.min(b, end + 1);
      if (drawn === kind && shown === shade && a <= to + 0.01 && right - left < 1) to = b;
      else {
        flush();
        [kind, shade, from, to] = [drawn, shown, a, b];
        // The next one begins where it ends, maybe in the same pixel.
        if (right - left >= 1) n++;
        if (b - a > 36 && alpha === 1 && high > NESTED) {
          flush();
          kind = -1;
          this.drawName(lane.members[n - 1], Math.max(a, this.left), b, y, row.predicted);
        }
      }
      x = Math.max(x + 1, Math.floor(b));
    }
    flush();
  }

  // Shortened to so many pixels.
  fit(text, room) {
    const share = room / this.pen.measureText(text).width;
    return share >= 1 ? text : `${text.slice(0, Math.max(0, Math.floor(text.length * share) - 1))}…`;
  }

  drawName(i, from, to, y, hatched) {
    const colour = this.header.kinds[this.items.kind[i]][1], { pen } = this;
    const [r, g, b] = [1, 3, 5].map((place) => (parseInt(colour.slice(place, place + 2), 16) / 255) ** 2.2);
    const text = this.fit(this.header.names[this.items.name[i]].replace(/^void /, ""), to - from - 8);
    pen.globalAlpha = 1;
    if (text.length < 4) return;
    if (hatched) {
      pen.fillStyle = colour;
      pen.fillRect(from + 2, y, Math.min(pen.measureText(text).width + 2, to - from - 4), LEVEL - 2);
    }
    pen.fillStyle = 0.21 * r + 0.72 * g + 0.07 * b > 0.18 ? "#000000" : "#ffffff";
    pen.fillText(text, from + 4, y + 12, to - from - 8);
  }

  drawJoints() {
    this.pen.fillStyle = this.ink;
    this.pen.globalAlpha = 0.45;
    let before = -1;
    for (const [at, first, last] of this.header.joints) {
      const x = Math.round(this.x(at));
      if (x === before || x < this.left || x > this.left + this.wide) continue;
      const [top, end] = [this.rows[first], this.rows[last]];
      this.pen.fillRect((before = x), top.y, 1, end.y + end.high - top.y);
    }
    this.pen.globalAlpha = 1;
  }

  // What it waited for and what waited for it, as [from, to] of items.
  links(i) {
    const { cause, after } = this.items, links = [];
    for (const from of [cause[i], after[i]]) if (from >= 0) links.push([from, i]);
    for (const row of this.rows)
      for (let k = row.from; k < row.to && row.group !== "path" && links.length < MOST_LINES; k++)
        if (cause[k] === i || after[k] === i) links.push([i, k]);
    return links;
  }
  rowOf(i) {
    return this.rows.find((row) => i >= row.from && i < row.to);
  }

  // Where an item is drawn: its left and right end, its top and its height.
  box(i) {
    const row = this.rowOf(i);
    let level = 0;
    row.lanes.forEach((lane, n) => {
      const place = above(lane.starts, this.items.start[i] - 0.5, 0, lane.count);
      for (let k = place; k < lane.count && lane.starts[k] === this.items.start[i]; k++) if (lane.members[k] === i) level = n;
    });
    const bound = (x) => Math.min(Math.max(x, -1e4), 1e4);
    return [bound(this.x(this.items.start[i])), bound(this.x(this.end[i])), ...this.edges(row, level)];
  }

  drawSelected() {
    const pen = this.pen, [left, right, y, high] = this.box(this.selected);
    pen.strokeStyle = this.ink;
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, y - 1, Math.max(right - left, 1) + 2, high + 2);
    pen.lineWidth = 1.4;
    for (const [from, to] of this.chosen) {
      const [start, end, top] = this.box(from), [arrived, , below] = this.box(to);
      const launches = this.rowOf(from).group === "calls", x0 = launches ? start : end;
      // A call that waited returns as what it waited for has ended.
      const x1 = this.rowOf(to).group === "calls" ? this.box(to)[1] : arrived;
      const [y0, y1] = [top + LEVEL / 2 - 1, below + LEVEL / 2 - 1], bend = Math.max(12, Math.abs(x1 - x0) / 3);
      for (const [colour, width] of [[this.back, 4], [this.ink, 1.4]]) {
        pen.strokeStyle = pen.fillStyle = colour;
        pen.lineWidth = width;
        pen.beginPath();
        pen.moveTo(x0, y0);
        pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
        pen.stroke();
      }
      pen.beginPath();
      pen.arc(x1, y1, 3, 0, 7);
      pen.fill();
    }
  }

  words(i) {
    const { items, header } = this, row = this.rowOf(i);
    const [start, length, bytes] = [items.start[i], items.length[i], items.bytes[i]];
    const name = header.names[items.name[i]], kind = header.kinds[items.kind[i]][0];
    const lines = [name ? `${name} (${row.label})` : row.label];
    if (kind === "waits" && row.group !== "path") lines[0] = `${kind}: ${lines[0]}`;
    lines.push(`${row.predicted ? "predicted: " : ""}${time(length)} (${percent(length / this.whole)} of the run), `
      + `from ${this.exact(start)} to ${this.exact(start + length)}`);
    if (bytes >= 0) lines.push(size(bytes) + (length > 0 ? `, ${size((bytes / length) * 1e9)}/s` : ""));
    if (header.streams[items.stream[i]]) lines.push(header.streams[items.stream[i]]);
    return lines;
  }
  exact(ns) {
    const [unit, name] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([limit]) => ns >= limit) || [1, "ns"];
    return `${(ns / unit).toFixed(Math.round(Math.log10(unit)))} ${name}`;
  }
}
