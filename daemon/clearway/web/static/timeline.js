// Operations and their jobs on one time axis: when each job was asked, saved, off its nodes, and back.

import { useEffect, useRef, useState } from "./vendor/hooks.mjs";
import { duration, now, time, words } from "./format.js";
import { Job, Operation, Said, clean, State, Table, When, html, operationName } from "./ui.js";

const ROW = 22;
const HEAD = 26;
const MOST_ROWS = 60; // of jobs; the table has all of them
const STEPS_S = [5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800];

const ms = (at) => (at ? Date.parse(at) : null);

/** What of the job's way lies between which times; `open` is still going on. */
function stretches(job, end) {
  const over = ["returned", "ended", "spared", "failed"].includes(job.state);
  const marks = [
    ["saving", ms(job.asked_at)],
    ["leaving", ms(job.requeued_at)],
    ["away", ms(job.vacated_at)],
    ["back", ms(job.returned_at)],
  ].filter(([, at]) => at !== null);
  return marks.map(([kind, at], n) => {
    const next = marks[n + 1]?.[1];
    if (kind === "back") return { kind, from: at, to: at };
    return { kind, from: at, to: next ?? (over ? at : Math.max(end, at)) };
  });
}

export function Timeline({ operations, alone = false }) {
  const box = useRef(null);
  const [width, setWidth] = useState(0);
  const [, tick] = useState(0);
  const [open, setOpen] = useState(null); // null: not chosen yet. A closed one has no rows: thousands would cost each change
  useEffect(() => {
    const seen = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    seen.observe(box.current);
    const timer = setInterval(() => tick((n) => n + 1), 1_000);
    return () => {
      seen.disconnect();
      clearInterval(timer);
    };
  }, []);
  const wanted = open ?? (alone && width > 640 && operations[0].jobs.length <= 12);
  const over = operations.every((e) => e.finished_at);
  const at = over ? Math.max(...operations.map((e) => ms(e.finished_at))) : now();
  return html`<div class="timeline" ref=${box}>
    ${width > 0 && html`<${Drawn} operations=${operations} width=${width} at=${at} over=${over} />`}
    <p class="quiet keys">${[["saving", "saves itself"], ["leaving", "leaves its nodes"], ["away", "waits to run again"], ["back", "runs again"]].map(([kind, text]) => html`<span key=${kind}><i class=${`bar ${kind}`} aria-hidden="true"></i>${text}</span>`)}
      <span><i class="line expected" aria-hidden="true"></i>nodes free, as planned</span><span><i class="line deadline" aria-hidden="true"></i>deadline</span></p>
    <details open=${wanted} onToggle=${(event) => setOpen(event.target.open)}><summary>The same as a table</summary>${wanted && operations.map((e) => html`<${Progress} key=${e.eviction_id} e=${e} alone=${alone} />`)}</details>
  </div>`;
}

function Progress({ e, alone }) {
  return html`${!alone && html`<h3><${Operation} e=${e} /> <${State} of=${e.state} /></h3>`}
    <${Table} caption=${`Jobs of ${operationName(e)}`} id=${(j) => j.job_id} rows=${e.jobs} columns=${[
      ["Job", (j) => html`<${Job} id=${j.job_id} shown=${j.display_id} /> <${Said} text=${j.name} longest=${30} />`],
      ["State", (j) => html`<${State} of=${j.state} />`],
      ["Asked", (j) => html`<${When} at=${j.asked_at} />`],
      ["Saved", (j) => html`<${When} at=${j.checkpointed_at} />${j.predicted_checkpoint_s > 0 && html` <small>expected to take ${duration(j.predicted_checkpoint_s)}</small>`}`],
      ["Left", (j) => html`<${When} at=${j.vacated_at} />`],
      ["Back", (j) => html`<${When} at=${j.returned_at} />`],
    ]} />`;
}

function Drawn({ operations, width, at, over }) {
  const label = Math.min(210, Math.max(96, Math.floor(width * 0.26)));
  const [rows, left] = lines(operations);
  const deadlines = operations.filter((e) => !e.drain || e.drain.deadline).map((e) => ms(e.deadline));
  const begin = Math.min(...operations.map((e) => ms(e.created_at)));
  const last = Math.max(at, ...operations.map((e) => ms(e.predicted_nodes_free_at)));
  // A deadline that is days away would leave nothing of what happens now.
  const near = deadlines.filter((each) => each < begin + 4 * (last - begin) + 60_000);
  const end = Math.max(last, ...near) + 1_000;
  const x = (t) => label + ((t - begin) / Math.max(1, end - begin)) * (width - label - 12);
  const height = HEAD + rows.length * ROW + 4;
  const step = 1_000 * (STEPS_S.find((s) => ((end - begin) / 1_000 / s) * 64 < width - label) || 604_800);
  const ticks = [];
  for (let t = Math.ceil(begin / step) * step; t < end; t += step) ticks.push(t);
  return html`<svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img"
      aria-label="Time axis of what is under way; the table below says the same">
    ${ticks.map((t) => html`<g key=${t}><line class="grid" x1=${x(t)} x2=${x(t)} y1=${HEAD - 6} y2=${height} /><text class="tick" x=${x(t)} y=${HEAD - 12} text-anchor="middle">${time(t).slice(step < 60_000 ? -8 : 0, step < 60_000 ? undefined : -3)}</text></g>`)}
    ${rows.map((row, n) => html`<${Row} key=${n} row=${row} y=${HEAD + n * ROW} x=${x} at=${at} end=${end} label=${label} />`)}
    ${!over && html`<line class="present" x1=${x(at)} x2=${x(at)} y1=${HEAD - 6} y2=${height} />`}
    ${left > 0 && html`<text class="tick" x="0" y=${height - 8}>… and ${left} more jobs</text>`}
  </svg>`;
}

function lines(operations) {
  const rows = [];
  let left = 0;
  for (const e of operations) {
    rows.push({ e });
    const shown = e.jobs.slice(0, Math.max(3, Math.floor(MOST_ROWS / operations.length)));
    for (const job of shown) rows.push({ e, job });
    left += e.jobs.length - shown.length;
  }
  if (left) rows.push({});
  return [rows, left];
}

const cut = (text, longest) => (text.length > longest ? `${text.slice(0, longest - 1)}…` : text);

function Row({ row, y, x, at, end, label }) {
  const { e, job } = row;
  if (!e) return null;
  const middle = y + ROW / 2;
  const letters = Math.floor(label / 7.2);
  const deadline = ms(e.deadline);
  const mark = (t, kind) => t <= end && html`<line class=${kind} x1=${x(t)} x2=${x(t)} y1=${y + 2} y2=${y + ROW - 2} />`;
  const marks = html`${mark(ms(e.predicted_nodes_free_at), "expected")}${(!e.drain || e.drain.deadline) && mark(deadline, "deadline")}`;
  if (!job) {
    const to = ms(e.started_at) || ms(e.finished_at) || at;
    const planned = [x(ms(e.created_at)), x(Math.min(end, ms(e.predicted_nodes_free_at)))];
    return html`<g><rect class="planned" x=${planned[0]} y=${middle - 6} width=${Math.max(2, planned[1] - planned[0])} height="12" rx="3"><title>as planned</title></rect><text class="head" x="0" y=${middle + 4}>${cut(operationName(e), letters)}</text>
      <rect class="bar whole" x=${x(ms(e.created_at))} y=${middle - 3} width=${Math.max(2, x(to) - x(ms(e.created_at)))} height="6" rx="3"><title>${operationName(e)}: ${words(e.state)}</title></rect>${marks}</g>`;
  }
  return html`<g><text class="label" x="10" y=${middle + 4}>${cut(`${job.display_id} ${clean(job.name)}`, letters - 2)}</text>
    ${stretches(job, at).map((s) => html`<rect key=${s.kind} class=${`bar ${s.kind}`} x=${x(s.from) - (s.kind === "back" ? 4 : 0)} y=${middle - 6} width=${s.kind === "back" ? 8 : Math.max(2, x(s.to) - x(s.from))} height="12" rx="2"><title>${words(s.kind)} from ${time(s.from)}${s.to > s.from ? ` to ${time(s.to)}` : ""}</title></rect>`)}
    ${marks}</g>`;
}
