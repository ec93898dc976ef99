// Calibration (what has been learned of checkpoints) and the audit trail, for admins.

import { useState } from "./vendor/hooks.mjs";
import { read } from "./api.js";
import { count, duration, plural, words } from "./format.js";
import { Empty, Failed, Loaded, Said, Table, When, html, useLive } from "./ui.js";

const share = (x) => (x === null ? "–" : `${Math.round(100 * x)} %`);
const ratio = (x) => (x === null ? "–" : `×${x.toFixed(2)}`);
const told = (counts) => Object.entries(counts).filter(([, n]) => n).map(([what, n]) => `${count(n)} ${words(what)}`).join(", ") || "none";

const COLUMNS = [
  ["Checkpoints", (c) => told(c.checkpoints)],
  ["Restarts", (c) => told(c.restarts)],
  ["Time, real to predicted", (c) => ratio(c.median_ratio), "number"],
  ["No longer than predicted", (c) => share(c.share_within), "number"],
  ["Size, real to predicted", (c) => ratio(c.median_size_ratio), "number"],
];

export function Calibration() {
  const found = useLive("calibration?limit=200");
  return html`<h1>Calibration</h1><p>How well the predictions of checkpoints have held: medians over the newest records. ×1.00 is as predicted, more is longer.</p>
    <${Loaded} of=${found}>${(c) => html`
      <section aria-labelledby="h-by"><h2 id="h-by">By checkpointer</h2>${c.checkpointers.length ? html`<${Table} caption="By checkpointer" rows=${c.checkpointers} id=${(x) => x.checkpointer} columns=${[["Checkpointer", (x) => html`<${Said} text=${x.checkpointer} />`], ...COLUMNS]} />` : html`<${Empty}>No checkpoint has been asked for yet.<//>`}</section>
      <section aria-labelledby="h-apps"><h2 id="h-apps">By application</h2>${c.items.length ? html`<${Table} caption="By application" rows=${c.items} columns=${[
        ["Application", (x) => html`<${Said} text=${x.app} longest=${60} />`],
        ["User", (x) => html`<${Said} text=${x.user} />`],
        ["Asked to save itself", (x) => (x.trusted ? "yes" : html`no: ${plural(x.failures_in_a_row, "failure")} in a row`)],
        ["The next one takes", (x) => duration(x.expected_s), "number"],
        ...COLUMNS,
      ]} />` : html`<${Empty}>Nothing has been learned yet, or nothing that is shown to you.<//>`}</section>`}<//>`;
}

export function Audit({ query }) {
  const before = Number(query.get("before")) || 0;
  const found = useLive(`audit?limit=50${before > 0 ? `&before=${before}` : ""}`);
  const [checked, set] = useState({});
  const check = async () => {
    set({ busy: true });
    try {
      set({ answer: await read("audit/check") });
    } catch (error) {
      set({ error });
    }
  };
  const { answer, error, busy } = checked;
  return html`<h1>Audit trail</h1>
    <section aria-label="Check"><p>Every request, its answer, changes of the configuration, and refused logins. Each entry has the hash of the one before.</p>
      <div class="buttons"><button type="button" class="plain" disabled=${busy} onClick=${check}>Check that no entry was changed</button></div>
      <div role="status">${answer && html`<p class=${`banner ${answer.intact ? "good" : "bad"}`}>${answer.intact ? `All ${count(answer.entries)} entries are intact. Hash of the last one: ` : html`<${Said} text=${answer.fault} longest=${300} /> `}<code class="hash">${answer.head}</code></p>`}<${Failed} error=${error} /></div>
    </section>
    <section aria-label="Entries"><${Loaded} of=${found}>${(list) => html`<${Table} caption="Audit trail" rows=${list.items} id=${(a) => a.sequence} columns=${[
      ["Number", (a) => count(a.sequence), "number"],
      ["When", (a) => html`<${When} at=${a.at} />`],
      ["Who", (a) => html`<${Said} text=${a.actor || "not known"} />`],
      ["What", (a) => words(a.kind)],
      ["About", (a) => html`<${Said} text=${Object.entries(a.about).filter(([, v]) => v !== "" && v !== null).map(([k, v]) => `${words(k)}: ${typeof v === "object" ? JSON.stringify(v) : v}`).join("; ")} longest=${400} />`],
    ]} />${list.next_before !== null && html`<p class="buttons"><a href=${`#/audit?before=${list.next_before}`}>older</a></p>`}`}<//></section>`;
}
