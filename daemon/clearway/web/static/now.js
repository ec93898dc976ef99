// Now: how the daemon is, which urgent jobs wait, what is under way, and the nodes.

import { useEffect, useState } from "./vendor/hooks.mjs";
import { count, duration, nodeHours, ofTasks, plural, setClock, words } from "./format.js";
import { Act, Countdown, Empty, Figures, Job, Loaded, Operation, Said, Since, State, Table, html, includes, live, useLive, useWho } from "./ui.js";
import { NodeMap } from "./nodemap.js";
import { Timeline } from "./timeline.js";

const MODES = {
  observe: "Plans are made and shown; nothing is done.",
  approve: "Plans are carried out once an operator approves them.",
  automatic: "Plans are carried out by themselves.",
};
const WAITS = ["awaiting_approval", "proposed", "scheduled"];

function Alarms({ now, stale }) {
  const { health } = now;
  const found = [
    health.halted && ["bad", "Halted.", `No command is given to Slurm: ${health.halted}`],
    health.stopped && ["bad", "Stopped.", `No job is made to leave any more: ${health.stopped}. Look at these nodes, then resume.`],
    (stale || health.status === "stale") && ["bad", "Stale.", "No cycle has succeeded for a while. What is shown is old. The daemon's log says why."],
    now.clock_doubt && ["bad", "The clock is in doubt.", now.clock_doubt],
    health.only_observes && ["asks", "Only observing.", `Nothing is begun with this release of Slurm: ${health.only_observes}`],
    health.standby && ["asks", "Standing by.", "Another daemon acts on this database. What is shown here is true; requests reach that daemon."],
    health.paused && ["asks", "Paused.", "Nothing new is begun. What is under way is followed to its end."],
  ].filter(Boolean);
  return found.map(([kind, head, text]) => html`<p key=${head} class=${`banner ${kind}`} role="alert"><strong>${head}</strong> <${Said} text=${text} longest=${300} /></p>`);
}

function Switches({ health }) {
  const pause = health.paused || health.stopped
    ? html`<${Act} label="Resume" path="resume" title="Resume" does=${html`<p>Clearway plans and acts again, in mode ${health.mode}.</p>`} />`
    : html`<${Act} label="Pause" path="pause" title="Pause" does=${html`<p>Clearway begins nothing new. What is under way is followed to its end. Urgent jobs that wait then get no room.</p>`} />`;
  const halt = health.halted
    ? html`<${Act} label="End the halt" path="unhalt" title="End the halt" does=${html`<p>Clearway gives Slurm commands again, and goes on with what is under way. A halt by a file lasts until the file is removed.</p>`} />`
    : html`<${Act} label="Halt" path="halt" kind="danger" title="Halt at once" does=${html`<p>From this moment on Clearway gives Slurm no command any more, also not in the middle of a cycle.</p>
        <p>Jobs that were asked to save themselves do so and are then left alone. Jobs that have left are not brought back until the halt ends. Drained nodes stay drained; reservations end by themselves.</p>`} />`;
  return html`<div class="buttons">${pause}${halt}</div>`;
}

function Waiting({ items }) {
  if (!items.length) return html`<${Empty}>No urgent job waits.<//>`;
  return html`<${Table} caption="Urgent jobs that wait" id=${(each) => each.job_id} rows=${items} columns=${[
    ["Job", (j) => html`<${Job} id=${j.job_id} shown=${j.display_id} />${ofTasks(j)} <${Said} text=${j.name} longest=${40} />`],
    ["User", (j) => html`<${Said} text=${j.user} />`],
    ["Nodes", (j) => count(j.nodes), "number"],
    ["Deadline", (j) => html`<${Countdown} at=${j.deadline} />`],
    ["What is done", (j) => html`${j.eviction_id !== null && html`<a href=${`#/evictions/${Number(j.eviction_id)}`}>Eviction ${j.eviction_id}</a>: `}<${Said} text=${j.eviction_id === null ? j.why || "not planned yet" : words(j.why)} longest=${300} />`],
  ]} />`;
}

function Planned({ items }) {
  return html`<${Table} caption="Plans that wait" id=${(each) => each.eviction_id} rows=${items} columns=${[
    ["Plan", (e) => html`<${Operation} e=${e} />`],
    ["State", (e) => html`<${State} of=${e.state} />`],
    ["For", (e) => (e.drain ? html`asked by <${Said} text=${e.user} />` : html`<${Job} id=${e.job_id} shown=${e.display_id} />${ofTasks(e)} of <${Said} text=${e.user} />`)],
    ["Jobs that leave", (e) => count(e.preemptees), "number"],
    ["Work lost", (e) => nodeHours(e.predicted_lost_work_node_s), "number"],
    ["Deadline", (e) => (e.drain && !e.drain.deadline ? "–" : html`<${Countdown} at=${e.deadline} />`)],
  ]} />`;
}

export function Now() {
  const who = useWho();
  const { data, error } = useLive("now");
  const [stale, setStale] = useState(false);
  useEffect(() => {
    const told = (event) => setStale(event.detail.status === "stale");
    live.addEventListener("told", told);
    return () => live.removeEventListener("told", told);
  }, []);
  useEffect(() => {
    if (data) setClock(data.at, data.health.last_cycle_age_s);
  }, [data]);
  return html`<h1 class="unseen">Now</h1><${Loaded} of=${{ data, error }}>${(now) => {
    const { cluster, health } = now;
    const planned = now.operations.filter((e) => WAITS.includes(e.state));
    const acting = now.operations.filter((e) => !WAITS.includes(e.state));
    const { budget, nodes } = cluster;
    return html`
      <${Alarms} now=${now} stale=${stale} />
      <section aria-label="The daemon" class="top">
        <${Figures} of=${[
          ["Mode", words(health.mode), MODES[health.mode]],
          ["Leader", now.leads ? "this daemon" : "another daemon", now.leads ? "It acts on the cluster." : "This one stands by."],
          ["Last cycle", html`<${LastCycle} at=${now.at} age_s=${health.last_cycle_age_s} />`, `took ${duration(cluster.cycle_s)}`],
          ["Urgent jobs waiting", count(now.waiting.length), planned.length ? `${plural(planned.length, "plan")} waiting` : "no plan waits"],
          ["Under way", count(acting.length), acting.length ? plural(acting.reduce((sum, e) => sum + e.jobs.length, 0), "job") : "nothing"],
          ["Preempted in the last hour", plural(budget.jobs, "job"), `${nodeHours(budget.lost_node_s)} lost; ${budget.jobs_limit === null ? "no limit" : `at most ${plural(budget.jobs_limit, "job")}`}`],
        ]} />
        ${includes(who, "operator") && html`<${Switches} health=${health} />`}
      </section>
      <section aria-labelledby="h-waiting"><h2 id="h-waiting">Urgent jobs that wait</h2><${Waiting} items=${now.waiting} /></section>
      ${planned.length > 0 && html`<section aria-labelledby="h-planned"><h2 id="h-planned">Plans that wait</h2><${Planned} items=${planned} /></section>`}
      <section aria-labelledby="h-acting"><h2 id="h-acting">Under way</h2>
        ${acting.length ? html`<${Timeline} operations=${acting} />` : html`<${Empty}>Nothing is under way.<//>`}
      </section>
      <section aria-labelledby="h-nodes"><h2 id="h-nodes">Nodes</h2>
        ${now.nodes ? html`<${NodeMap} map=${now.nodes} counts=${nodes} />` : html`<${Empty}>${plural(nodes.total, "node")}, ${count(nodes.free)} of them free. Slurm shows nodes to operators alone (PrivateData).<//>`}
      </section>`;
  }}<//>`;
}

function LastCycle({ at, age_s }) {
  const [told, set] = useState({ at, age_s });
  useEffect(() => set({ at, age_s }), [at, age_s]);
  useEffect(() => {
    const hear = (event) => set({ at: null, age_s: event.detail.last_cycle_age_s });
    live.addEventListener("told", hear);
    return () => live.removeEventListener("told", hear);
  }, []);
  return html`<${Since} ago_s=${told.age_s} key=${`${told.at}${told.age_s}`} />`;
}
