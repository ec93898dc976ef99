// Search by job, user or node, and what-if: what an urgent job would cost that does not exist.

import { useEffect, useState } from "./vendor/hooks.mjs";
import { question } from "./api.js";
import { duration, nodeHours, plural } from "./format.js";
import { Empty, Failed, Figures, Job, Said, Table, html, useLive } from "./ui.js";
import { Curve } from "./curve.js";
import { JobList } from "./jobs.js";

export function Search({ query }) {
  const [by] = ["job", "user", "node"].filter((each) => query.get(each));
  const [kind, setKind] = useState(by || "job");
  const given = by ? query.get(by) : "";
  const send = (event) => {
    event.preventDefault();
    const text = event.target.elements.text.value.trim();
    if (!text) return;
    location.hash = kind === "job" ? `#/jobs/${encodeURIComponent(text)}` : `#/search?${kind}=${encodeURIComponent(text)}`;
  };
  return html`<h1>Search</h1>
    <section aria-label="Search"><form class="line" onSubmit=${send}>
      <div><label for="kind">By</label><select id="kind" value=${kind} onChange=${(event) => setKind(event.target.value)}>
        <option value="job">job</option><option value="user">user</option><option value="node">node</option></select></div>
      <div class="wide"><label for="text">${{ job: "Number of the job, such as 123 or 123_4", user: "Name of the user", node: "Name of the node" }[kind]}</label>
        <input id="text" name="text" key=${given} defaultValue=${given} value=${given} autocomplete="off" spellcheck="false" maxlength="255" /></div>
      <button type="submit">Search</button>
    </form></section>
    ${by && by !== "job" && html`<section aria-labelledby="h-found"><h2 id="h-found">Jobs ${by === "user" ? "of user" : "on node"} <${Said} text=${given} /></h2>
      <${JobList} key=${`${by}${given}`} filter=${`${by}=${encodeURIComponent(given)}`} caption="Jobs that were found" empty="There is none, or none that is shown to you."
        offset=${Math.max(0, Number(query.get("offset")) || 0)} link=${(n) => `#/search?${by}=${encodeURIComponent(given)}&offset=${n}`} /></section>`}`;
}

const DELAYS_S = [0, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 43_200, 86_400];
const SETTLE_MS = 300; // one plan is made at a time: ask when the slider rests

export function WhatIf() {
  const { data: cluster } = useLive("cluster");
  const most = cluster ? Math.max(1, cluster.nodes.total) : 1;
  const [wish, setWish] = useState({ nodes: 1, delay: 5 });
  const [state, set] = useState({ answer: null, error: null, busy: false });
  useEffect(() => {
    const ended = new AbortController();
    const ask = async () => {
      set((before) => ({ ...before, busy: true }));
      for (;;) {
        try {
          const answer = await question("what-if", { nodes: wish.nodes, max_delay: DELAYS_S[wish.delay] }, ended.signal);
          set({ answer, error: null, busy: false });
          return;
        } catch (error) {
          if (ended.signal.aborted) return;
          if (error.status !== 429) {
            set({ answer: null, error, busy: false });
            return;
          }
          await new Promise((done) => setTimeout(done, 1_000)); // another plan is being made
        }
      }
    };
    const timer = setTimeout(ask, SETTLE_MS);
    return () => {
      clearTimeout(timer);
      ended.abort();
    };
  }, [wish]);
  const { answer, error, busy } = state;
  const slide = (name) => (event) => setWish({ ...wish, [name]: Number(event.target.value) });
  return html`<h1>What if</h1>
    <section aria-label="Question">
      <p>What would it cost if an urgent job were submitted now? Nothing is changed by asking.</p>
      <div class="sliders">
        <div><label for="nodes">Nodes: <output for="nodes">${wish.nodes}</output></label>
          <input id="nodes" type="range" min="1" max=${most} value=${wish.nodes} onInput=${slide("nodes")} /></div>
        <div><label for="delay">It may wait: <output for="delay">${duration(DELAYS_S[wish.delay])}</output></label>
          <input id="delay" type="range" min="0" max=${DELAYS_S.length - 1} value=${wish.delay} aria-valuetext=${duration(DELAYS_S[wish.delay])} onInput=${slide("delay")} /></div>
      </div>
    </section>
    <div aria-live="polite" aria-busy=${busy}>
      <${Failed} error=${error} />
      ${!answer && !error && html`<${Empty}>Planning …<//>`}
      ${answer && html`<${Answer} answer=${answer} />`}
    </div>`;
}

export function Answer({ answer, urgent = true }) {
  const { plan } = answer;
  if (!answer.feasible) return html`<section aria-label="Answer"><p class="banner asks"><strong>Not possible.</strong> <${Said} text=${answer.why} longest=${400} /></p></section>`;
  const rows = plan.chosen.actions;
  return html`<section aria-label="Answer">
      ${answer.budget && html`<p class="banner asks">It would need an operator's approval: <${Said} text=${answer.budget} longest=${300} /></p>`}
      <${Figures} of=${[
        [urgent ? "Starts within" : "All have left within", duration(plan.chosen.max_delay_s)],
        ["Jobs that leave", plural(rows.length, "job"), `${plural(plan.nodes_to_free, "node")} to be freed`],
        ["Work lost", nodeHours(plan.chosen.lost_work_node_s)],
        ["Saving takes", duration(plan.chosen.checkpoint_s)],
        ["Coming back costs", nodeHours(plan.chosen.return_node_s)],
      ]} /></section>
    ${urgent && answer.curve && html`<section aria-labelledby="h-curve"><h2 id="h-curve">Delay against lost work</h2><${Curve} curve=${answer.curve} chosen=${plan.chosen} /></section>`}
    <section aria-labelledby="h-leave"><h2 id="h-leave">Jobs that would leave</h2>
      ${rows.length ? html`<${Leave} rows=${rows} />` : html`<${Empty}>None, or none that is shown to you.<//>`}</section>`;
}

const Leave = ({ rows }) => html`<${Table} caption="Jobs that would leave" rows=${rows} id=${(a) => a.job_id} columns=${[
  ["Job", (a) => html`<${Job} id=${a.job_id} />`],
  ["How", (a) => ({ kill: "requeued without a checkpoint", app_checkpoint: "saves itself", sys_checkpoint: "saved by its checkpointer", suspend: "suspended", end: "ends by itself" })[a.action]],
  ["Work lost", (a) => nodeHours(a.lost_work_node_s), "number"],
  ["Saving takes", (a) => (a.checkpoint_s ? duration(a.checkpoint_s) : "–"), "number"],
]} />`;
