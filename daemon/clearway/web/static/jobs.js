// My jobs, and one job: whether it can be saved, what it would lose now, and everything Clearway had to do with it.

import { count, duration, nodeHours, ofTasks, plural, words } from "./format.js";
import { Countdown, Empty, Failed, Figures, Job, Loaded, Said, State, Table, When, html, operationName, useLive, useWho } from "./ui.js";

const SAYS = {
  signal: "saves itself when asked",
  interval: "saves itself at its own pace",
  none: "says that it cannot be saved",
  nothing: "says nothing about saving",
};
const PAGE = 100;

const saved = (j) => html`<span class=${`badge ${j.can_be_saved ? "good" : j.state === "running" ? "asks" : ""}`}>${j.can_be_saved ? "can be saved" : "cannot be saved"}</span> <small>${SAYS[j.way] || words(j.way)}</small>`;

export const JobTable = ({ rows, caption, owner = true }) => html`<${Table} caption=${caption} rows=${rows} id=${(j) => j.job_id} columns=${[
  ["Job", (j) => html`<${Job} id=${j.job_id} shown=${j.display_id} /> <${Said} text=${j.name} longest=${40} />`],
  ...(owner ? [["User", (j) => html`<${Said} text=${j.user} />`]] : []),
  ["State", (j) => words(j.state || "gone")],
  ["Nodes", (j) => count(j.nodes), "number"],
  ["Saving", saved],
  ["Would lose now", (j) => (j.would_lose_node_s === null ? "–" : nodeHours(j.would_lose_node_s)), "number"],
  ["What Clearway does", (j) => html`${j.eviction_id !== null && html`<a href=${`#/evictions/${Number(j.eviction_id)}`}>Eviction ${j.eviction_id}</a> `}<${Said} text=${j.doing || (j.eviction_id === null ? "nothing" : "")} longest=${200} />`],
]} />`;

/** A page of jobs that fit `filter`, such as user=ann. */
export function JobList({ filter, caption, owner, empty, offset = 0, link }) {
  const found = useLive(`jobs?limit=${PAGE}&offset=${offset}${filter ? `&${filter}` : ""}`);
  return html`<${Loaded} of=${found}>${(list) => html`
    ${list.items.length ? html`<${JobTable} rows=${list.items} caption=${caption} owner=${owner} />` : html`<${Empty}>${empty}<//>`}
    ${link && html`<p class="buttons">${offset > 0 && html`<a href=${link(Math.max(0, offset - PAGE))}>previous</a>`}${list.next_offset !== null && html`<a href=${link(list.next_offset)}>next</a>`}</p>`}`}<//>`;
}

function Happened({ user }) {
  const found = useLive(`evictions?limit=20&user=${encodeURIComponent(user)}`);
  return html`<${Loaded} of=${found}>${(list) => (list.items.length ? html`<${Table} caption="What happened" rows=${list.items} id=${(e) => e.eviction_id} columns=${[
    ["When", (e) => html`<${When} at=${e.created_at} />`],
    ["What", (e) => html`<a href=${`#/evictions/${Number(e.eviction_id)}`}>${operationName(e)}</a>`],
    ["State", (e) => html`<${State} of=${e.state} />`],
    ["For", (e) => (e.drain ? html`a drain or move of <${Said} text=${e.user} />` : html`urgent job <${Job} id=${e.job_id} shown=${e.display_id} />${ofTasks(e)} of <${Said} text=${e.user} />`)],
    ["Outcome", (e) => html`<${Said} text=${e.outcome} longest=${200} />`],
  ]} />` : html`<${Empty}>Clearway has had nothing to do with your jobs so far.<//>`)}<//>`;
}

export function MyJobs({ query }) {
  const who = useWho();
  const offset = Math.max(0, Number(query.get("offset")) || 0);
  if (!who.name) return html`<h1>My jobs</h1><p class="empty">Sign in to see your jobs.</p>`;
  return html`<h1>My jobs</h1>
    <section aria-labelledby="h-mine"><h2 id="h-mine">In the queue and running</h2>
      <p class="quiet">"Would lose now" is the work that is lost if the job has to leave at once without a checkpoint. A job's number leads to what its owner can do to lose less.</p>
      <${JobList} filter=${`user=${encodeURIComponent(who.name)}`} caption="My jobs" owner=${false} offset=${offset} link=${(n) => `#/mine?offset=${n}`} empty=${html`The queue has no job of user <${Said} text=${who.name} />.`} /></section>
    <section aria-labelledby="h-happened"><h2 id="h-happened">What happened to them</h2><${Happened} user=${who.name} /></section>`;
}

const ROLES = { preemptor: "It was the urgent job.", preemptee: "It leaves, or has left.", candidate: "It was looked at, and stays.", resident: "It runs on a node that is being emptied." };

function Part({ o }) {
  const p = o.preemption;
  return html`<section aria-label=${operationName({ ...o, drain: null })}>
    <h3><a href=${`#/evictions/${Number(o.eviction_id)}`}>${words(o.kind)} ${o.eviction_id}</a> <${State} of=${o.state} /></h3>
    <p>${ROLES[o.role]} ${o.for_job_id && o.role !== "preemptor" && html`Room was made for job <${Job} id=${o.for_job_id} shown=${o.for_display_id} />${o.for_user && html` of <${Said} text=${o.for_user} />`}. `}
      <${Said} text=${o.outcome} longest=${300} /></p>
    ${p && html`<${Figures} of=${[
      ["State", words(p.state), p.note && html`<${Said} text=${p.note} longest=${160} />`],
      ["Asked", html`<${When} at=${p.asked_at} />`],
      ["Saved", html`<${When} at=${p.checkpointed_at} />`],
      ["Left", html`<${When} at=${p.vacated_at} />`],
      ["Started again", html`<${When} at=${p.returned_at} />`, o.runs_again_at && html`expected at <${When} at=${o.runs_again_at} />`],
      ["Work lost", p.loss && !p.loss_measured ? "not known yet" : nodeHours(p.actual_lost_work_node_s ?? p.predicted_lost_work_node_s), p.loss || (p.actual_lost_work_node_s === null ? "as planned" : "")],
    ]} />`}
    ${o.verdict && html`<p><strong>Why:</strong> <${Said} text=${o.verdict.reason} longest=${400} /></p>`}
    ${o.sparing?.sentence && html`<p><strong>Otherwise:</strong> <${Said} text=${o.sparing.sentence} longest=${400} /></p>`}
    ${o.runs_again_why && html`<p class="quiet"><${Said} text=${o.runs_again_why} longest=${300} /></p>`}
  </section>`;
}

export function OneJob({ of }) {
  const found = useLive(`jobs/${encodeURIComponent(of)}`);
  if (found.error && !found.data) return html`<h1>Job <${Said} text=${of} /></h1><${Failed} error=${found.error} />`;
  return html`<${Loaded} of=${found}>${(j) => html`
    <section aria-label="Summary"><h1>Job ${j.display_id} <${Said} text=${j.name} /></h1>
      <${Figures} of=${[
        ["State", words(j.state || "no longer in the queue"), j.started_at && html`since <${When} at=${j.started_at} />`],
        ["User", html`<${Said} text=${j.user} />`, html`<${Said} text=${[j.account, j.qos].filter(Boolean).join(", ")} />`],
        ["Nodes", count(j.nodes), html`<${Said} text=${j.node_names} longest=${60} />`],
        ["Partition", html`<${Said} text=${j.partitions.join(", ")} />`],
        ["Time limit", j.time_limit_s === null ? "none" : duration(j.time_limit_s)],
        ["Started again", plural(j.restarts, "time")],
      ]} />
    </section>
    ${j.waiting && html`<section aria-labelledby="h-urgent"><h2 id="h-urgent">It is urgent and waits</h2><p><${Countdown} at=${j.waiting.deadline} left="until its deadline" />. <${Said} text=${j.waiting.why} longest=${300} /></p></section>`}
    ${j.if_urgent && html`<section aria-labelledby="h-if"><h2 id="h-if">If an urgent job came now</h2>
      <p><${Said} text=${j.if_urgent.sentence} longest=${400} /></p>
      ${j.if_urgent.ways.length > 0 && html`<${Table} caption="Ways in which it can leave" rows=${j.if_urgent.ways} columns=${[
        ["Way", (w) => words(w.action === "kill" ? "requeue without a checkpoint" : w.action)],
        ["Work lost", (w) => nodeHours(w.lost_work_node_s), "number"],
        ["Saved within", (w) => (w.checkpoint_s ? duration(w.checkpoint_s) : "–"), "number"],
        ["Coming back costs", (w) => nodeHours(w.return_node_s), "number"],
      ]} />`}
      ${j.saving && html`<p>${j.saving.possible ? `It can be saved${j.saving.expected_s === null ? "" : ` within ${duration(j.saving.expected_s)}`}.` : html`It cannot be saved: <${Said} text=${j.saving.why_not} longest=${200} />.`}
        ${j.saving.last_at && html` Its newest checkpoint is of <${When} at=${j.saving.last_at} />.`}</p>
      ${j.saving.began && html`<p><${Said} text=${j.saving.began} longest=${200} /></p>`}
      ${j.saving.advice && html`<p class="banner"><strong>To lose less next time:</strong> <${Said} text=${j.saving.advice} longest=${400} /></p>`}`}
    </section>`}
    <h2>What Clearway had to do with it</h2>
    ${j.operations.length ? j.operations.map((o) => html`<${Part} key=${o.eviction_id} o=${o} />`) : html`<${Empty}>Nothing so far.<//>`}`}<//>`;
}
