// One eviction, drain or move: why, what it costs and what else would have cost, how it goes, and what can be done.

import { useEffect, useState } from "./vendor/hooks.mjs";
import { read } from "./api.js";
import { count, duration, nodeHours, ofTasks, plural, words } from "./format.js";
import { Act, Countdown, Empty, Figures, Job, Loaded, Said, State, Table, When, html, includes, operationName, useLive, useWho } from "./ui.js";
import { Curve } from "./curve.js";
import { Timeline } from "./timeline.js";

const OVER = ["completed", "cancelled", "failed", "superseded"];
const STAYS = ["planned", "checkpointing"];
const GONE = ["vacating", "suspended", "vacated", "queued"];
const WAYS = {
  kill: "is requeued without a checkpoint",
  app_checkpoint: "saves itself",
  sys_checkpoint: "is saved by its checkpointer",
  suspend: "is suspended, and stays in memory",
  end: "ends by itself in time",
};

const forJob = (e) => html`<${Job} id=${e.job_id} shown=${e.display_id} />${ofTasks(e)} of <${Said} text=${e.user} />`;

function approveDoes(e, together) {
  const by = (...ways) => e.preemptions.filter((p) => ways.includes(p.action));
  const [killed, saved, ended, suspended] = [by("kill"), by("app_checkpoint", "sys_checkpoint"), by("end"), by("suspend")];
  const lost = killed.reduce((sum, p) => sum + p.predicted_lost_work_node_s, 0);
  return html`<p>At once, and without asking again, Clearway will:</p><ul>
    ${!e.drain && html`<li>reserve ${plural(e.nodes_needed, "node")} for job ${e.display_id}${ofTasks(e)} of <${Said} text=${e.user} /> (<code>${e.plan.placement_nodes}</code>)</li>`}
    ${saved.length > 0 && html`<li>ask ${plural(saved.length, "job")} to save themselves, and then requeue them</li>`}
    ${killed.length > 0 && html`<li><strong>requeue ${plural(killed.length, "job")} without a checkpoint: ${nodeHours(lost)} of work are lost, ${count(e.unsaved_nodes)} node-hours more with each hour that passes before</strong></li>`}
    ${suspended.length > 0 && html`<li>suspend ${plural(suspended.length, "job")}</li>`}
    ${ended.length > 0 && html`<li>wait for ${plural(ended.length, "job")} that end by themselves</li>`}
    ${!e.drain && html`<li>let job ${e.display_id} start, <${Countdown} at=${e.deadline} left="from now at the latest" /></li>`}
    ${together.length > 0 && html`<li>do the same for ${plural(together.length, "plan")} made together with this one: ${together.map((o) => operationName(o)).join(", ")}</li>`}
  </ul>`;
}

function cancelDoes(e) {
  const stays = e.preemptions.filter((p) => STAYS.includes(p.state)).length;
  const gone = e.preemptions.filter((p) => GONE.includes(p.state)).length;
  return html`<ul>
    ${stays > 0 && html`<li>${plural(stays, "job")} that ${stays === 1 ? "has" : "have"} not left yet will stay</li>`}
    ${gone > 0 && html`<li>${plural(gone, "job")} that ${gone === 1 ? "has" : "have"} left already will run again when Slurm gives nodes</li>`}
    ${e.drain ? html`<li>its nodes take jobs again</li>` : html`<li>job ${e.display_id} is left to Slurm: Clearway makes no other plan for this run of it</li>`}
  </ul>`;
}

/** The others that were planned together with this one and wait as well. */
function useTogether(e) {
  const waits = e.state === "awaiting_approval" && e.plan.together.length > 0;
  const { data } = useLive(waits ? "now" : null);
  if (!waits || !data) return [];
  return data.operations.filter((o) => o.state === "awaiting_approval" && e.plan.together.includes(o.job_id));
}

function useSuccessor(e) {
  const [found, set] = useState(null);
  useEffect(() => {
    if (e.state !== "superseded") return;
    const newer = (list) => list.items.filter((o) => o.job_id === e.job_id && o.eviction_id > e.eviction_id).at(-1);
    read(`evictions?limit=20&job_id=${encodeURIComponent(e.job_id)}`).then((list) => set(newer(list) || {}), () => set(null));
  }, [e.state, e.eviction_id]);
  return found;
}

function Head({ e }) {
  const who = useWho();
  const together = useTogether(e);
  const successor = useSuccessor(e);
  const open = !OVER.includes(e.state) && e.state !== "cancelling";
  const waits = e.state === "awaiting_approval";
  const latest = new Date(Date.parse(e.deadline) - 1_000 * e.plan.chosen.max_delay_s).toISOString();
  return html`
    <h1>${operationName(e)} <${State} of=${e.state} /></h1>
    <p>${e.drain
      ? html`Empties <code>${e.drain.nodes}</code>, asked by <${Said} text=${e.user} />${e.drain.reason && html`: <${Said} text=${e.drain.reason} longest=${200} />`}`
      : html`Makes room for urgent job ${forJob(e)}, which needs ${plural(e.nodes_needed, "node")}.`}
      ${e.outcome && html` <${Said} text=${e.outcome} longest=${400} />`}</p>
    ${e.state === "superseded" && html`<p class="banner asks" role="status">This plan does not fit the cluster any more.
      ${successor?.eviction_id ? html` <a href=${`#/evictions/${Number(successor.eviction_id)}`}>${operationName(successor)}</a> (${words(successor.state)}) has taken its place.`
        : successor ? " No other plan has taken its place so far." : ""}</p>`}
    ${waits && html`<p class="banner asks" role="status">It waits for an operator. <${Countdown} at=${latest} late="Too late by" /> ${""}to approve it with its promise kept; after that it is planned anew, or put aside.</p>`}
    ${open && includes(who, "operator") && html`<div class="buttons">
      ${waits && html`<${Act} label=${together.length ? `Approve all ${together.length + 1}` : "Approve"} kind="main" title=${`Approve ${operationName(e)}`}
        path=${[e, ...together].map((o) => ({ path: `evictions/${Number(o.eviction_id)}/approve`, body: { revision: o.revision } }))} does=${approveDoes(e, together)} />`}
      <${Act} label="Cancel" kind="danger" title=${`Cancel ${operationName(e)}`} confirm="Cancel it" path=${`evictions/${Number(e.eviction_id)}/cancel`} does=${cancelDoes(e)} />
    </div>`}`;
}

function Summary({ e }) {
  const { chosen } = e.plan;
  const predicted = e.plan.predicted_nodes_free_at;
  return html`<${Figures} of=${[
    ["Jobs that leave", count(e.preemptees), `${plural(e.plan.nodes_to_free, "node")} to be freed`],
    ["Work lost", nodeHours(e.predicted_lost_work_node_s), e.actual_lost_work_node_s > 0 || e.finished_at ? `so far ${nodeHours(e.actual_lost_work_node_s)}${e.preemptions.some((p) => p.loss && !p.loss_measured) ? ", if jobs go on from their checkpoints" : ", as measured"}` : "as planned"],
    ["Saving takes", duration(chosen.checkpoint_s), "of the shared file system"],
    ["Coming back costs", nodeHours(chosen.return_node_s), "queueing and restart, on top of the work lost"],
    ["Nodes free", html`<${When} at=${predicted} />`, "as planned, at the latest"],
    e.drain
      ? ["Nodes empty", html`<${When} at=${e.started_at} />`, "really"]
      : ["Urgent job started", html`<${When} at=${e.started_at} />`, e.start_margin_s === null ? html`deadline <${When} at=${e.deadline} />` : e.start_margin_s < 0 ? `${duration(-e.start_margin_s)} too late` : `${duration(e.start_margin_s)} before the deadline`],
  ]} />`;
}

function Leaving({ e, explained }) {
  const sparing = new Map((explained?.alternatives || []).map((a) => [a.job_id, a]));
  const spared = (p) => {
    const a = sparing.get(p.job_id);
    if (!a || !a.known) return "not known";
    if (!a.cost) return "not possible in time";
    return a.more_lost_work_node_s > 0 ? `${nodeHours(a.more_lost_work_node_s)} more` : "no more work, but a later or longer return";
  };
  if (!e.preemptions.length) return html`<${Empty}>No job has to leave.<//>`;
  return html`<${Table} caption="Jobs that leave" rows=${e.preemptions} id=${(p) => p.job_id} columns=${[
    ["Job", (p) => html`<${Job} id=${p.job_id} shown=${p.display_id} /> <${Said} text=${p.name} longest=${40} />`],
    ["User", (p) => html`<${Said} text=${p.user} />`],
    ["How it leaves", (p) => WAYS[p.action] || words(p.action)],
    ["State", (p) => html`<${State} of=${p.state} />${p.note && html` <small><${Said} text=${p.note} longest=${200} /></small>`}`],
    ["Work lost", (p) => html`${nodeHours(p.predicted_lost_work_node_s)}${p.loss && html` <small>${p.loss}</small>`}`, "number"],
    ["Saving takes", (p) => (p.predicted_checkpoint_s ? html`${duration(p.predicted_checkpoint_s)}${p.actual_checkpoint_s !== null && html` <small>really ${duration(p.actual_checkpoint_s)}</small>`}` : "–"), "number"],
    ["Why this job", (p) => html`<${Said} text=${p.reason} longest=${300} />`],
    ...(e.drain ? [] : [["Sparing it would cost", spared]]),
  ]} />`;
}

const RULES = { "slurm-default": "Slurm's own rule" };

function Rules({ e, explained }) {
  const rows = [
    { rule: "This plan", cost: explained.cost, more_lost_work_node_s: 0, own: true },
    ...explained.rules.map((each) => ({ ...each, shown: RULES[each.rule] || each.rule })).sort((a, b) => (b.rule === "slurm-default") - (a.rule === "slurm-default")),
    ...explained.later.map((each) => ({ shown: `Waiting ${duration(each.max_delay_s)} in place of ${duration(e.plan.chosen.max_delay_s)}`, cost: each.cost, more_lost_work_node_s: each.cost.lost_work_node_s - explained.cost.lost_work_node_s })),
  ];
  const more = (r) => {
    if (r.own) return "–";
    if (!r.cost) return "–";
    const d = r.more_lost_work_node_s;
    return d === 0 ? "as much" : d > 0 ? `${nodeHours(d)} more` : `${nodeHours(-d)} less`;
  };
  return html`<${Table} caption="What other ways would have cost" rows=${rows} id=${(r) => r.shown || r.rule} columns=${[
    ["Way", (r) => (r.own ? html`<strong>${r.rule}</strong>` : r.shown)],
    ["Work lost", (r) => (r.cost ? nodeHours(r.cost.lost_work_node_s) : "frees the nodes in no way in time"), "number"],
    ["Compared", more, "number"],
    ["Jobs", (r) => (r.cost ? count(r.cost.preemptees) : "–"), "number"],
    ["Saving takes", (r) => (r.cost ? duration(r.cost.checkpoint_s) : "–"), "number"],
    ["Coming back costs", (r) => (r.cost ? nodeHours(r.cost.return_node_s) : "–"), "number"],
  ]} />`;
}

/** Read once it is opened. */
function Later({ title, path, children }) {
  const [open, setOpen] = useState(false);
  const found = useLive(open ? path : null);
  return html`<details onToggle=${(event) => setOpen(event.target.open)}><summary>${title}</summary>
    ${open && html`<${Loaded} of=${found}>${children}<//>`}</details>`;
}

function Steps({ items }) {
  return html`<${Table} caption="Steps" rows=${items} id=${(s) => s.step_id} columns=${[
    ["When", (s) => html`<${When} at=${s.intended_at} />`],
    ["Step", (s) => words(s.kind)],
    ["Job", (s) => (s.job_id ? html`<${Job} id=${s.job_id} />` : "–")],
    ["Result", (s) => s.result || "not known yet"],
    ["More", (s) => html`<${Said} text=${s.detail} longest=${300} />`],
  ]} />`;
}

const Verdicts = ({ items, next }) => html`<${Table} caption="Every running job" rows=${items.filter((v) => v.choice !== "chosen")} id=${(v) => v.job_id} columns=${[
  ["Job", (v) => html`<${Job} id=${v.job_id} />`],
  ["Choice", (v) => words(v.choice)],
  ["Reason", (v) => html`<${Said} text=${v.reason} longest=${300} />`],
]} />${next && html`<p class="quiet">These are the first ${count(items.length)}.</p>`}`;

export function Eviction({ of }) {
  const number = Number(of);
  const known = Number.isInteger(number) && number > 0;
  const found = useLive(known ? `evictions/${number}` : null);
  const explained = useLive(found.data && !found.data.drain ? `evictions/${number}/explanation` : null).data;
  if (!known) return html`<h1>Not found</h1><p>An eviction has a number.</p>`;
  return html`<${Loaded} of=${found}>${(e) => {
    const line = { ...e, jobs: e.preemptions.map((p) => ({ ...p, predicted_lost_work_node_s: p.predicted_lost_work_node_s })), predicted_nodes_free_at: e.plan.predicted_nodes_free_at };
    return html`
      <section aria-label="Summary"><${Head} e=${e} /><div class="after"><${Summary} e=${e} /></div></section>
      <section aria-labelledby="h-jobs"><h2 id="h-jobs">Jobs that leave</h2><${Leaving} e=${e} explained=${explained} />
        <${Later} title=${`Why every other running job stays (${count((e.plan.jobs_by_choice.spared || 0) + (e.plan.jobs_by_choice.exempt || 0))})`} path=${`evictions/${number}/verdicts?limit=300`}>${(list) => html`<${Verdicts} items=${list.items} next=${list.next_offset} />`}<//>
      </section>
      <section aria-labelledby="h-time"><h2 id="h-time">Time line, planned beside real</h2><${Timeline} operations=${[line]} alone=${true} />
        <${Later} title="Every step" path=${`evictions/${number}/steps`}>${(list) => html`<${Steps} items=${list.items} />`}<//>
      </section>
      ${!e.drain && html`<section aria-labelledby="h-curve"><h2 id="h-curve">Delay against lost work</h2><${Curve} curve=${e.plan.curve} chosen=${e.plan.chosen} /></section>
      <section aria-labelledby="h-rules"><h2 id="h-rules">What other ways would have cost</h2>
        ${explained ? html`<${Rules} e=${e} explained=${explained} />` : html`<${Empty}>Not worked out yet; that takes some seconds after a plan.<//>`}
      </section>`}`;
  }}<//>`;
}

const STATES = ["", "planned", "active", "past"];

export function Evictions({ query }) {
  const state = STATES.includes(query.get("state")) ? query.get("state") : "";
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  const found = useLive(`evictions?limit=25&offset=${offset}${state ? `&state=${state}` : ""}`);
  const link = (s, o = 0) => `#/evictions?state=${s}&offset=${o}`;
  return html`<h1>Evictions, drains and moves</h1>
    <p class="tabs">${STATES.map((s) => html`<a key=${s} href=${link(s)} aria-current=${s === state ? "true" : undefined}>${s || "all"}</a>`)}</p>
    <section aria-label="List"><${Loaded} of=${found}>${(list) => (list.items.length ? html`<${Table} caption="Evictions" rows=${list.items} id=${(e) => e.eviction_id} columns=${[
      ["Number", (e) => html`<a href=${`#/evictions/${Number(e.eviction_id)}`}>${operationName(e)}</a>`],
      ["State", (e) => html`<${State} of=${e.state} />`],
      ["For", (e) => (e.drain ? html`asked by <${Said} text=${e.user} />` : forJob(e))],
      ["Planned", (e) => html`<${When} at=${e.created_at} />`],
      ["Jobs", (e) => count(e.preemptees), "number"],
      ["Work lost", (e) => nodeHours(OVER.includes(e.state) ? e.actual_lost_work_node_s : e.predicted_lost_work_node_s), "number"],
      ["Outcome", (e) => html`<${Said} text=${e.outcome} longest=${160} />`],
    ]} /><p class="buttons">${offset > 0 && html`<a href=${link(state, Math.max(0, offset - 25))}>newer</a>`}${list.next_offset !== null && html`<a href=${link(state, list.next_offset)}>older</a>`}</p>`
    : html`<${Empty}>There is none.<//>`)}<//></section>`;
}
