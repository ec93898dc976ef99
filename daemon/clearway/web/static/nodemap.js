// The nodes as a map: a square each, coloured by what Clearway does with it and else by its state. Drawn on a canvas, for
// ten thousand elements would take a browser seconds; the table beside it says the same, and the arrow keys walk over it.

import { useEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";
import { count, fold, hosts } from "./format.js";
import { html } from "./ui.js";

// In the order in which they are told; uses before states.
const KINDS = [
  ["l", "leave", "jobs leave it"],
  ["h", "held", "held for an urgent job"],
  ["r", "runs", "runs an urgent job that room was made for"],
  ["w", "wait", "a plan that waits would empty it"],
  ["d", "drain", "drained by Clearway"],
  ["m", "move", "jobs move off it"],
  ["f", "free", "free"],
  ["p", "part", "partly occupied"],
  ["b", "busy", "occupied"],
  ["s", "silent", "Slurm waits for its answer"],
  ["u", "down", "unavailable (down, drained, failing)"],
];
const STATES = "fpbsu";
const NAMES = Object.fromEntries(KINDS.map(([code, , name]) => [code, name]));
const [SMALLEST, LARGEST] = [4, 22];
const MOST_NAMED = 12;

export const kindOf = (map, n) => (map.uses[n] === "-" ? map.states[n] : map.uses[n]);

function layout(total, width) {
  const height = Math.max(160, Math.min(340, width * 0.5));
  const cell = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(Math.sqrt((width * height) / Math.max(1, total)))));
  const columns = Math.max(1, Math.floor(width / cell));
  return { cell, columns, rows: Math.ceil(total / columns) };
}

function draw(canvas, map, { cell, columns, rows }, width, chosen) {
  const ratio = devicePixelRatio || 1;
  const total = map.states.length;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(rows * cell * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(rows * cell * ratio);
  }
  canvas.style.height = `${rows * cell}px`;
  const ink = canvas.getContext("2d");
  const style = getComputedStyle(canvas);
  ink.setTransform(ratio, 0, 0, ratio, 0, 0);
  ink.clearRect(0, 0, width, rows * cell);
  const size = cell - (cell > 6 ? 2 : 1);
  const places = new Map(KINDS.map(([code]) => [code, []]));
  for (let n = 0; n < total; n += 1) places.get(kindOf(map, n))?.push(n);
  for (const [code, name] of KINDS) { // one colour after another: to change it costs more than a square
    ink.fillStyle = style.getPropertyValue(`--map-${name}`);
    for (const n of places.get(code)) ink.fillRect((n % columns) * cell, Math.floor(n / columns) * cell, size, size);
  }
  if (chosen !== null && chosen < total) {
    ink.strokeStyle = style.getPropertyValue("--text");
    ink.lineWidth = 2;
    ink.strokeRect((chosen % columns) * cell - 1, Math.floor(chosen / columns) * cell - 1, size + 2, size + 2);
  }
}

export function NodeMap({ map, counts }) {
  const canvas = useRef(null);
  const [width, setWidth] = useState(0);
  const [chosen, choose] = useState(null);
  const names = useMemo(() => hosts(map.names), [map.names]);
  const total = map.states.length;
  const grid = layout(total, width || 600);
  useEffect(() => {
    const seen = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    seen.observe(canvas.current.parentElement);
    return () => seen.disconnect();
  }, []);
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setTheme((n) => n + 1);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  useEffect(() => {
    if (width) draw(canvas.current, map, grid, width, chosen);
  }, [map, width, chosen, theme]);
  const at = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / grid.cell);
    const n = Math.floor((event.clientY - box.top) / grid.cell) * grid.columns + column;
    return column < grid.columns && n >= 0 && n < total ? n : null;
  };
  const walk = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: grid.columns, ArrowUp: -grid.columns }[event.key];
    if (event.key === "Enter" && chosen !== null) location.hash = `#/search?node=${encodeURIComponent(names[chosen])}`;
    if (!step) return;
    event.preventDefault();
    choose(chosen === null ? 0 : Math.max(0, Math.min(total - 1, chosen + step)));
  };
  const open = (event) => {
    const n = at(event);
    if (n !== null) location.hash = `#/search?node=${encodeURIComponent(names[n])}`;
  };
  const told = chosen === null || chosen >= total ? "" : `${names[chosen]}: ${NAMES[map.states[chosen]]}${map.uses[chosen] === "-" ? "" : `, ${NAMES[map.uses[chosen]]}`}`;
  return html`<div class="map">
    <div>
      <div class="canvas">
        <canvas ref=${canvas} tabindex="0" role="application" aria-roledescription="map of nodes" aria-describedby="map-help"
          aria-label=${`Map of ${count(total)} nodes; ${count(counts.free)} are free, ${count(counts.unavailable)} are unavailable`}
          onKeyDown=${walk} onMouseMove=${(e) => choose(at(e))} onMouseLeave=${() => choose(null)} onClick=${open}></canvas>
      </div>
      <p class="quiet" id="map-help" aria-live="polite">${told || "Point at a square, or walk with the arrow keys, to see which node it is."}</p>
    </div>
    <${Legend} map=${map} names=${names} />
  </div>`;
}

function Legend({ map, names }) {
  const found = useMemo(() => {
    const own = new Map(KINDS.map(([code]) => [code, []]));
    for (let n = 0; n < map.states.length; n += 1) own.get(kindOf(map, n))?.push(names[n]);
    return own;
  }, [map, names]);
  const rows = KINDS.filter(([code]) => found.get(code).length || code === "f");
  return html`<table class="legend"><caption class="unseen">Nodes by what Clearway does with them, else by state</caption>
    <thead class="unseen"><tr><th scope="col">Kind</th><th scope="col">Number</th></tr></thead>
    <tbody>${rows.map(([code, name, text]) => {
      const own = found.get(code);
      const listed = !STATES.includes(code) || code === "u" || code === "s";
      return html`<tr key=${code}><th scope="row"><span class=${`key ${name}`} aria-hidden="true"></span>${text}
        ${listed && own.length > 0 && html`<small>${own.length > MOST_NAMED * 20 ? `${own[0]} … ${own.at(-1)}` : fold(own)}</small>`}</th>
        <td class="number">${count(own.length)}</td></tr>`;
    })}</tbody></table>`;
}
