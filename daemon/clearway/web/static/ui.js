// What all pages are made of. Text that users wrote goes into text nodes alone.

import { h, createContext } from "./vendor/preact.mjs";
import { useContext, useEffect, useRef, useState } from "./vendor/hooks.mjs";
import htm from "./vendor/htm.mjs";
import { ask, read } from "./api.js";
import { duration, now, time, words } from "./format.js";

export const html = htm.bind(h);
export const Who = createContext(null); // the identity, as /identity tells it
export const live = new EventTarget(); // "changed": read again

const LONGEST = 80;
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** Text that a user wrote: without control characters and changes of direction. */
export const clean = (text) => String(text ?? "").replace(UNSEEN, "�");

/** The same, set apart, and not too long. */
export function Said({ text, longest = LONGEST }) {
  const said = clean(text);
  const cut = said.length > longest;
  return html`<bdi class="said" title=${cut ? said.slice(0, 1_000) : undefined}>${cut ? `${said.slice(0, longest)}…` : said}</bdi>`;
}

export const Job = ({ id, shown }) => html`<a class="job" href=${`#/jobs/${encodeURIComponent(id)}`}>${shown || id}</a>`;

/** What is at `path`, read again whenever something changes. Null: nothing is asked for. */
export function useLive(path) {
  const [found, set] = useState({ path: null, data: null, error: null });
  const [again, setAgain] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const ended = new AbortController();
    let busy = false;
    let due = false;
    const load = async () => {
      if (busy) {
        due = true;
        return;
      }
      busy = true;
      do {
        due = false;
        try {
          const data = await read(path, ended.signal);
          if (!ended.signal.aborted) set({ path, data, error: null });
        } catch (error) {
          if (!ended.signal.aborted) set((before) => ({ path, data: before.path === path ? before.data : null, error }));
        }
      } while (due && !ended.signal.aborted);
      busy = false;
    };
    load();
    live.addEventListener("changed", load);
    return () => {
      ended.abort();
      live.removeEventListener("changed", load);
    };
  }, [path, again]);
  const own = found.path === path ? found : { data: null, error: null };
  return { data: own.data, error: own.error, reload: () => setAgain((n) => n + 1) };
}

/** The daemon's time, again every second. */
function useClock() {
  const [at, set] = useState(now());
  useEffect(() => {
    const timer = setInterval(() => set(now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return Math.max(at, 0);
}

/** Time left until `at`; late once it has passed. */
export function Countdown({ at, late = "late by", left = "left" }) {
  useClock();
  const s = (Date.parse(at) - now()) / 1_000;
  const kind = s < 0 ? "late" : s < 120 ? "soon" : "";
  return html`<time class=${`countdown ${kind}`} datetime=${at} title=${time(at)}>
    ${s < 0 ? `${late} ${duration(-s)}` : `${duration(s)} ${left}`.trim()}
  </time>`;
}

/** How long ago that is which was `ago_s` old when this was made. */
export function Since({ ago_s }) {
  const at = useClock();
  const made = useRef(at);
  return html`<span>${duration(Math.floor(Math.max(0, ago_s + (at - made.current) / 1_000)))} ago</span>`;
}

export const When = ({ at }) => (at ? html`<time datetime=${at}>${time(at)}</time>` : html`<span>–</span>`);

const GOOD = ["completed", "returned", "started", "returning"];
const BAD = ["failed", "cancelling"];
const ASKS = ["awaiting_approval", "proposed", "scheduled"];

export function State({ of }) {
  const kind = GOOD.includes(of) ? "good" : BAD.includes(of) ? "bad" : ASKS.includes(of) ? "asks" : "";
  return html`<span class=${`badge ${kind}`}>${words(of)}</span>`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export const Failed = ({ error }) =>
  error && html`<p class="banner bad" role="alert">${error.message || "That did not work."}</p>`;

/** A page's data, or why it is not there. */
export function Loaded({ of, children }) {
  if (!of.data) return of.error ? html`<${Failed} error=${of.error} />` : html`<p class="empty" role="status">Loading …</p>`;
  return html`${of.error && html`<p class="banner asks" role="status">Not up to date: ${of.error.message}</p>`}${children(of.data)}`;
}

/** Rows as cards on a narrow screen. `columns`: [heading, cell of a row, class]. */
export function Table({ caption, columns, rows, id }) {
  return html`<table role="table" class="cards">
    <caption class="unseen">${caption}</caption>
    <thead role="rowgroup"><tr role="row">
      ${columns.map(([head, , kind]) => html`<th role="columnheader" scope="col" class=${kind}>${head}</th>`)}
    </tr></thead>
    <tbody role="rowgroup">
      ${rows.map((row, n) => html`<tr role="row" key=${id ? id(row) : n}>
        ${columns.map(([head, cell, kind]) => html`<td role="cell" data-label=${head} class=${kind}><span>${cell(row)}</span></td>`)}
      </tr>`)}
    </tbody>
  </table>`;
}

/** Figures with their names. */
export const Figures = ({ of }) =>
  html`<dl class="figures">${of.filter(Boolean).map(([name, value, more]) => html`<div>
    <dt>${name}</dt><dd>${value}${more && html`<small>${more}</small>`}</dd></div>`)}</dl>`;

/**
 * A change in two clicks: the first says what it will do, the second asks for it; then its result is shown.
 * `body` may be a function that is called at the second click; several paths are asked one after another.
 */
export function Act({ kind = "", disabled, reason, ...about }) {
  const begin = () => live.dispatchEvent(new CustomEvent("act", { detail: { kind, ...about } }));
  return html`<button type="button" class=${kind} disabled=${disabled} title=${disabled ? reason : undefined} onClick=${begin}>${about.label}…</button>`;
}

/** The dialog of all of them. It outlives the button, which may be gone once the change is made. */
export function Acting() {
  const dialog = useRef(null);
  const [about, setAbout] = useState({});
  const [state, set] = useState({});
  useEffect(() => {
    const begin = (event) => {
      setAbout(event.detail);
      set({});
      dialog.current.showModal();
    };
    live.addEventListener("act", begin);
    return () => live.removeEventListener("act", begin);
  }, []);
  const { title, kind, label, confirm = label, does, path, body, done } = about;
  const go = async () => {
    set({ busy: true });
    try {
      const requests = [];
      for (const each of [path].flat()) requests.push(await ask(each.path || each, each.body || (typeof body === "function" ? body() : body)));
      const results = [...new Set(requests.map((each) => each.result))].filter(Boolean).join("; ");
      set({ request: { ...requests[0], results } });
      live.dispatchEvent(new Event("changed"));
      if (done) done(requests[0]);
    } catch (error) {
      set({ error });
    }
  };
  const { busy, request, error } = state;
  return html`
    <dialog ref=${dialog} aria-labelledby="act-title">
      <h2 id="act-title">${title}</h2>
      ${!request && html`<div class="does">${does}</div>`}
      <div role="status">
        ${busy && html`<p class="banner">Asked; the daemon's next cycle answers.</p>`}
        ${request && html`<p class="banner result">${request.results ? html`<${Said} text=${request.results} longest=${400} />` : "Stored, but not answered yet: is the daemon at work?"}</p>`}
        <${Failed} error=${error} />
      </div>
      <div class="buttons">
        ${!request && html`<button type="button" class=${kind} disabled=${busy} onClick=${go}>${confirm}</button>`}
        <button type="button" class="plain" onClick=${() => dialog.current.close()}>${request ? "Close" : "Do nothing"}</button>
      </div>
    </dialog>`;
}

export const useWho = () => useContext(Who);
const RANKS = ["user", "viewer", "operator", "admin"];
export const includes = (who, role) => Boolean(who?.name) && RANKS.indexOf(who.role) >= RANKS.indexOf(role);

export function operationName(e) {
  if (e.kind === "drain" || (e.drain && !e.drain.move)) return `Drain ${e.eviction_id}`;
  if (e.drain?.move) return `${e.drain.move.kind === "promotion" ? "Promotion" : "Compaction"} ${e.eviction_id}`;
  return `Eviction ${e.eviction_id}`;
}

export const Operation = ({ e }) => html`<a href=${`#/evictions/${Number(e.eviction_id)}`}>${operationName(e)}</a>`;
