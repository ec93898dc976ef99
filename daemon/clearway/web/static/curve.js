// The trade-off: the least work lost for every delay that the urgent job could wait. The chosen point is marked.

import { useEffect, useRef, useState } from "./vendor/hooks.mjs";
import { count, duration, nodeHours } from "./format.js";
import { Empty, Table, html } from "./ui.js";

const HEIGHT = 240;
const EDGE = { left: 64, right: 16, top: 14, bottom: 40 };

/** A round number of about a quarter of `most`, for the lines behind a chart. */
function step(most) {
  const rough = most / 4 || 1;
  const ten = 10 ** Math.floor(Math.log10(rough));
  return ten * [1, 2, 5, 10].find((n) => n * ten >= rough);
}

const SECONDS = [1, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400, 172_800];

/** Points where something changes; between them the curve is level. */
function corners(points) {
  const of = (p) => [p.feasible, p.lost_work_node_s, p.checkpoint_s, p.return_node_s, p.preemptees].join();
  return points.filter((p, n) => n === 0 || of(p) !== of(points[n - 1]));
}

export function Curve({ curve, chosen }) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const seen = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  const good = curve.points.filter((p) => p.feasible);
  if (!good.length) return html`<div ref=${box}><${Empty}>There is no way to free the nodes in time.<//></div>`;
  const rows = corners(curve.points);
  const is = (p) => p.feasible && p.max_delay_s <= chosen.max_delay_s && (rows[rows.indexOf(p) + 1]?.max_delay_s ?? Infinity) > chosen.max_delay_s;
  return html`<div ref=${box}>
    ${width > 0 && html`<${Chart} points=${curve.points} good=${good} chosen=${chosen} width=${width} />`}
    <p class="quiet">Each point is the cheapest way for one delay, ${curve.exact ? "proven" : "not proven"} by the planner ${curve.planner}.
      ${!curve.exact && curve.gap_ratio > 0 && ` At most ${Math.ceil(100 * curve.gap_ratio)} % of the lost work may be needless.`}</p>
    <details><summary>The same as a table</summary>
      <${Table} caption="Trade-off between delay and lost work" rows=${rows} id=${(p) => p.max_delay_s} columns=${[
        ["Delay", (p) => html`${is(p) ? html`<strong>${duration(p.max_delay_s)} (chosen)</strong>` : duration(p.max_delay_s)}`],
        ["Work lost", (p) => (p.feasible ? nodeHours(p.lost_work_node_s) : "not possible"), "number"],
        ["Jobs", (p) => (p.feasible ? count(p.preemptees) : "–"), "number"],
        ["Nodes freed", (p) => count(p.nodes_freed), "number"],
        ["Saving takes", (p) => duration(p.checkpoint_s), "number"],
        ["Coming back costs", (p) => (p.feasible ? nodeHours(p.return_node_s) : "–"), "number"],
      ]} />
    </details>
  </div>`;
}

function Chart({ points, good, chosen, width }) {
  const last = Math.max(points.at(-1).max_delay_s, 1);
  const most = Math.max(...good.map((p) => p.lost_work_node_s)) / 3_600 || 1;
  const x = (s) => EDGE.left + (s / last) * (width - EDGE.left - EDGE.right);
  const y = (hours) => HEIGHT - EDGE.bottom - (hours / (most * 1.08)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const first = good[0].max_delay_s;
  const path = good.map((p, n) => `${n ? `H${x(p.max_delay_s)}V` : `M${x(p.max_delay_s)} `}${y(p.lost_work_node_s / 3_600)}`).join("");
  const level = step(most);
  const levels = [];
  for (let n = 0; n * level <= most * 1.08; n += 1) levels.push(n * level);
  const tick = SECONDS.find((s) => (last / s) * 74 < width - EDGE.left) || 604_800;
  const ticks = [];
  for (let s = 0; s <= last; s += tick) ticks.push(s);
  const hours = (chosen.lost_work_node_s ?? 0) / 3_600;
  const [cx, cy] = [x(chosen.max_delay_s), y(hours)];
  const right = cx > width / 2;
  return html`<svg width=${width} height=${HEIGHT} viewBox=${`0 0 ${width} ${HEIGHT}`} role="img"
      aria-label=${`Work lost by delay. Chosen: ${duration(chosen.max_delay_s)}, ${nodeHours(chosen.lost_work_node_s)}. The table below has the numbers.`}>
    ${levels.map((n) => html`<g key=${`l${n}`}><line class="grid" x1=${EDGE.left} x2=${width - EDGE.right} y1=${y(n)} y2=${y(n)} /><text class="tick" x=${EDGE.left - 8} y=${y(n) + 4} text-anchor="end">${Number(n.toPrecision(3))}</text></g>`)}
    ${ticks.map((s) => html`<text key=${`t${s}`} class="tick" x=${x(s)} y=${HEIGHT - EDGE.bottom + 18} text-anchor="middle">${duration(s)}</text>`)}
    ${first > 0 && html`<rect class="impossible" x=${x(0)} y=${EDGE.top} width=${Math.max(0, x(first) - x(0))} height=${HEIGHT - EDGE.top - EDGE.bottom} />`}
    ${x(first) - x(0) > 110 && html`<text class="tick" x=${(x(0) + x(first)) / 2} y=${EDGE.top + 18} text-anchor="middle">not possible</text>`}
    <path class="curve" d=${path} />
    <line class="chosen" x1=${cx} x2=${cx} y1=${cy} y2=${HEIGHT - EDGE.bottom} />
    <circle class="chosen" cx=${cx} cy=${cy} r="6" />
    <text class="head" x=${cx + (right ? -12 : 12)} y=${Math.max(EDGE.top + 12, cy - 12)} text-anchor=${right ? "end" : "start"}>${duration(chosen.max_delay_s)}: ${nodeHours(chosen.lost_work_node_s)}</text>
    <text class="tick" x=${width - EDGE.right} y=${HEIGHT - 4} text-anchor="end">delay of the urgent job</text>
    <text class="tick" x="0" y=${HEIGHT - 4}>work lost, node-hours</text>
  </svg>`;
}
