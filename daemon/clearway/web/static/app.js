// The shell: who looks, which page, and whether what is shown is up to date.

import { render } from "./vendor/preact.mjs";
import { useEffect, useState } from "./vendor/hooks.mjs";
import { listen, read, token } from "./api.js";
import { Acting, Failed, Who, html, includes, live } from "./ui.js";
import { Eviction, Evictions } from "./eviction.js";
import { Drains } from "./drains.js";
import { MyJobs, OneJob } from "./jobs.js";
import { Now } from "./now.js";
import { Audit, Calibration } from "./records.js";
import { Search, WhatIf } from "./search.js";

const PAGES = [
  { path: "now", name: "Now", page: Now },
  { path: "evictions", name: "Evictions", page: Evictions, one: Eviction },
  { path: "mine", name: "My jobs", page: MyJobs, named: true },
  { path: "jobs", name: "Search", page: Search, one: OneJob, at: "search" },
  { path: "what-if", name: "What if", page: WhatIf },
  { path: "drains", name: "Drains", page: Drains },
  { path: "calibration", name: "Calibration", page: Calibration },
  { path: "audit", name: "Audit", page: Audit, role: "admin" },
];

/** The page and its argument of the address: #/evictions/12?x=y. */
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/").map(decodeURIComponent);
  return { name: name || "now", of: rest.join("/"), query: new URLSearchParams(query) };
}

function SignIn({ error, done }) {
  const [busy, setBusy] = useState(false);
  const [wrong, setWrong] = useState("");
  const send = async (event) => {
    event.preventDefault();
    const given = event.target.elements.token.value.trim();
    if (!given) return;
    setBusy(true);
    token.set(given);
    try {
      done(await read("identity"));
    } catch (refused) {
      token.set("");
      setWrong(refused.message);
      setBusy(false);
    }
  };
  return html`<main id="main" class="signin">
    <h1>Clearway</h1>
    <p>This page shows what Clearway does on the cluster. It needs a token.</p>
    <form onSubmit=${send}>
      <label for="token">Token</label>
      <input id="token" name="token" type="password" autocomplete="off" spellcheck="false" aria-describedby="token-help" />
      <button type="submit" class="main" disabled=${busy}>Sign in</button>
    </form>
    <${Failed} error=${wrong ? { message: wrong } : error} />
    <div id="token-help" class="quiet">
      <p>Users of the cluster get one with <code>scontrol token lifespan=3600</code> (what stands after <code>=</code>).
      Others ask the administrators, who make one with <code>clearway token</code>.</p>
      <p>The token stays in this tab and is forgotten when the tab is closed.</p>
    </div>
  </main>`;
}

const SIGNS = { live: "live", polling: "every 10 s", lost: "no answer" };

function Shell({ who, signOut }) {
  const [at, setAt] = useState(place());
  const [sign, setSign] = useState("live");
  useEffect(() => {
    const moved = () => {
      setAt(place());
      document.querySelector("#main")?.focus();
      scrollTo(0, 0);
    };
    addEventListener("hashchange", moved);
    const end = listen({
      changed: () => live.dispatchEvent(new Event("changed")),
      told: (data) => live.dispatchEvent(new CustomEvent("told", { detail: data })),
      state: setSign,
    });
    return () => {
      removeEventListener("hashchange", moved);
      end();
    };
  }, []);
  const shown = PAGES.filter((each) => (!each.role || includes(who, each.role)) && (!each.named || who.name));
  const current = shown.find((each) => [each.path, each.at].includes(at.name));
  useEffect(() => {
    document.title = `${current ? current.name : "Not found"} · Clearway`;
  }, [current]);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("#main").focus(); }}>Skip to the content</a>
    <header>
      <a class="brand" href="#/now"><img src="static/icon.svg" alt="" width="24" height="24" />Clearway</a>
      <nav aria-label="Pages">${shown.map((each) => html`
        <a key=${each.path} href=${`#/${each.at || each.path}`} aria-current=${each === current ? "page" : undefined}>${each.name}</a>`)}
      </nav>
      <div class="who">
        <span class=${`sign ${sign}`} role="status">${SIGNS[sign]}</span>
        <span class="name">${who.name ? html`${who.name} <small>(${who.role})</small>` : "not signed in"}</span>
        ${(token.get() || !who.name) && html`<button type="button" class="plain" onClick=${signOut}>${who.name ? "Sign out" : "Sign in"}</button>`}
      </div>
    </header>
    <main id="main" tabindex="-1">
      ${current ? html`<${at.of && current.one ? current.one : current.page} key=${`${at.name}/${at.of}`} of=${at.of} query=${at.query} />` : html`<h1>Not found</h1><p>There is no such page.</p>`}
    </main>
    <${Acting} />`;
}

function App() {
  const [who, setWho] = useState(null);
  const [asks, setAsks] = useState(null); // sign in: the error that led there, or {}
  useEffect(() => {
    read("identity").then(setWho, (error) => {
      if (error.status === 401) token.set("");
      setAsks(token.get() || ![401, 403].includes(error.status) ? error : {});
    });
  }, []);
  const signOut = () => {
    token.set("");
    setWho(null);
    setAsks({});
  };
  if (who) return html`<${Who.Provider} value=${who}><${Shell} who=${who} signOut=${signOut} /><//>`;
  if (asks) return html`<${SignIn} error=${asks.message ? asks : null} done=${setWho} />`;
  return html`<p class="empty" role="status">Loading …</p>`;
}

render(html`<${App} />`, document.querySelector("#page"));
