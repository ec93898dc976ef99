// Drains and compaction: plan them, begin them, follow them, and give nodes back.

import { useState } from "./vendor/hooks.mjs";
import { question } from "./api.js";
import { count, duration, plural } from "./format.js";
import { Act, Empty, Failed, Figures, Job, Loaded, Said, State, Table, When, html, includes, operationName, useLive, useWho } from "./ui.js";
import { Answer } from "./search.js";

function usePreview() {
  const [state, set] = useState({});
  const ask = async (path, body) => {
    set({ busy: true });
    try {
      set({ path, answer: await question(path, body) });
    } catch (error) {
      set({ error });
    }
  };
  return [state, ask, () => set({})];
}

function Wish() {
  const who = useWho();
  const [wish, setWish] = useState({ nodes: "", reason: "", minutes: "", rolling: "", force: false });
  const [preview, ask, forget] = usePreview();
  const change = (name) => (event) => {
    setWish({ ...wish, [name]: event.target.type === "checkbox" ? event.target.checked : event.target.value });
    forget();
  };
  const body = () => ({
    nodes: wish.nodes.trim(),
    reason: wish.reason.trim(),
    force: wish.force,
    ...(wish.minutes ? { deadline: new Date(Date.now() + 60_000 * Number(wish.minutes)).toISOString() } : {}),
    ...(wish.rolling ? { rolling: Number(wish.rolling) } : {}),
  });
  const plan = (event) => {
    event.preventDefault();
    ask(wish.rolling ? "rolling-drains/what-if" : "drains/what-if", body());
  };
  const { answer, error, busy } = preview;
  return html`<section aria-labelledby="h-drain"><h2 id="h-drain">Empty nodes</h2>
    <form onSubmit=${plan} class="grid">
      <div><label for="d-nodes">Nodes</label><input id="d-nodes" required maxlength="4096" spellcheck="false" autocomplete="off" value=${wish.nodes} onInput=${change("nodes")} aria-describedby="d-help" /></div>
      <div><label for="d-reason">Reason</label><input id="d-reason" maxlength="120" autocomplete="off" value=${wish.reason} onInput=${change("reason")} /></div>
      <div><label for="d-minutes">Empty within, minutes</label><input id="d-minutes" type="number" min="1" max="100000" value=${wish.minutes} onInput=${change("minutes")} placeholder="as soon as all is saved" /></div>
      <div><label for="d-rolling">So many at a time</label><input id="d-rolling" type="number" min="1" max="100000" value=${wish.rolling} onInput=${change("rolling")} placeholder="all at once" /></div>
      <div class="check"><input id="d-force" type="checkbox" checked=${wish.force} onChange=${change("force")} /><label for="d-force">Also requeue jobs that cannot be saved (their work is lost)</label></div>
      <p class="quiet" id="d-help">A host list such as n[1-3,7]; partition=NAME and feature=NAME stand for their nodes.</p>
      <div class="buttons"><button type="submit" class="plain" disabled=${busy}>Show what would happen</button>
        ${who.may_request_drains && html`<${Act} label="Drain" kind="main" title="Drain nodes" path="drains" body=${body} disabled=${!wish.nodes.trim()} reason="Name the nodes first."
          does=${html`<p>Nothing new starts on <code>${wish.nodes}</code>. Jobs there are asked to save themselves and go on elsewhere${wish.force ? html`; <strong>jobs that cannot be saved are requeued, and their work is lost</strong>` : "; where one cannot be saved, the drain is refused before any job is asked"}.</p>
            <p>The nodes stay drained until they are given back.</p>`} />`}
      </div>
    </form>
    <div aria-live="polite"><${Failed} error=${error} />${answer && (answer.batches ? html`<${Batches} answer=${answer} />` : html`<${Answer} answer=${answer} urgent=${false} />`)}</div>
  </section>`;
}

const Batches = ({ answer }) => html`<${Table} caption="Nodes in turn" rows=${answer.batches} columns=${[
  ["Nodes", (b) => html`<${Said} text=${[b.nodes].flat().join(", ")} longest=${200} />`],
  ["Jobs", (b) => count(b.jobs), "number"],
  ["Saving takes", (b) => duration(b.checkpoint_s), "number"],
]} />${Object.entries(answer.skipped).map(([node, why]) => html`<p key=${node} class="quiet">${node} is left out: <${Said} text=${why} longest=${200} /></p>`)}`;

function Moves() {
  const who = useWho();
  const [preview, ask] = usePreview();
  const { answer, error, busy } = preview;
  const kinds = [["compactions", "Compaction", "Jobs move off the emptiest nodes onto others that are partly used, one after another, so that whole nodes become empty."],
    ["promotions", "Promotion", "Jobs move from lower-ranked nodes to free higher-ranked ones, and off scarce nodes that they do not need, one after another."]];
  if (!includes(who, "viewer") && who.name) return null;
  return html`<section aria-labelledby="h-moves"><h2 id="h-moves">Move jobs</h2>
    ${kinds.map(([path, name, text]) => html`<h3 key=${path}>${name}</h3><p>${text}</p><div class="buttons">
      <button type="button" class="plain" disabled=${busy} onClick=${() => ask(`${path}/what-if`, undefined)}>Show what would move (${name.toLowerCase()})</button>
      ${includes(who, "operator") && html`<${Act} label=${name} title=${`Begin a ${name.toLowerCase()}`} path=${path} confirm="Begin" does=${html`<p>${text} Each job saves itself first. What would gain too little stays.</p>`} />`}</div>`)}
    <div aria-live="polite"><${Failed} error=${error} />${answer && html`<${Answer} answer=${answer} urgent=${false} />`}</div>
  </section>`;
}

function Given({ e }) {
  const nodes = e.drain.nodes;
  return html`<${Act} label="Give back" title=${`Give back ${nodes}`} path="undrains" body=${() => ({ nodes })} confirm="Give them back"
    does=${html`<p><code>${nodes}</code> take jobs again.</p>`} />`;
}

function Drained() {
  const who = useWho();
  const found = useLive("evictions?limit=50");
  return html`<section aria-labelledby="h-drains"><h2 id="h-drains">Drains and moves</h2><${Loaded} of=${found}>${(list) => {
    const rows = list.items.filter((e) => e.drain);
    if (!rows.length) return html`<${Empty}>There is none among the newest 50 operations.<//>`;
    return html`<${Table} caption="Drains and moves" rows=${rows} id=${(e) => e.eviction_id} columns=${[
      ["Number", (e) => html`<a href=${`#/evictions/${Number(e.eviction_id)}`}>${operationName(e)}</a>`],
      ["State", (e) => html`<${State} of=${e.state} />`],
      ["Nodes", (e) => html`<${Said} text=${e.drain.nodes} longest=${80} />`],
      ["Asked by", (e) => html`<${Said} text=${e.user} />`],
      ["Reason", (e) => html`<${Said} text=${e.drain.reason || "–"} longest=${120} />`],
      ["Empty since", (e) => html`<${When} at=${e.started_at} />`],
      ["Nodes back", (e) => (!e.drain.move && e.started_at && who.may_request_drains ? html`<${Given} e=${e} />` : "–")],
    ]} />`;
  }}<//></section>`;
}

function Rolling() {
  const who = useWho();
  const found = useLive("rolling-drains?limit=20");
  if (!found.data?.items.length) return null;
  return html`<section aria-labelledby="h-rolling"><h2 id="h-rolling">Rolling drains</h2>
    <${Table} caption="Rolling drains" rows=${found.data.items} id=${(r) => r.rolling_id} columns=${[
      ["Number", (r) => `Rolling drain ${r.rolling_id}`],
      ["State", (r) => html`<${State} of=${r.state} />`],
      ["At a time", (r) => count(r.at_once), "number"],
      ["Nodes", (r) => ["waiting", "emptying", "away", "over", "skipped"].map((s) => [s, r.turns.filter((t) => t.state === s).length]).filter(([, n]) => n).map(([s, n]) => `${count(n)} ${s}`).join(", ")],
      ["Outcome", (r) => html`<${Said} text=${r.outcome} longest=${200} />`],
      ["", (r) => (!r.finished_at && includes(who, "operator") ? html`<${Act} label="Cancel" kind="danger" title=${`Cancel rolling drain ${r.rolling_id}`} confirm="Cancel it" path=${`rolling-drains/${Number(r.rolling_id)}/cancel`} does=${html`<p>No more nodes are drained, and what is not empty yet is given back. Empty nodes stay drained.</p>`} />` : "")],
    ]} /></section>`;
}

export const Drains = () => html`<h1>Drains and moves</h1><${Wish} /><${Drained} /><${Rolling} /><${Moves} />`;
