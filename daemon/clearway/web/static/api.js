// REST: reading, asking, and hearing of changes. The token stays in this tab (sessionStorage) and goes nowhere else.

const KEY = "clearway-token";
const ROOT = "api/v1/";
const POLL_MS = 10_000; // where no stream is to be had
const RECONNECT_MS = 1_000;

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

/** An answer other than the wished one; `message` is a line for people. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(more = {}) {
  // Of an own kind, so that no other site's page can send it: a proxy may log users in by a cookie.
  const own = { "X-Clearway-Page": "1", ...more };
  return token.get() ? { ...own, Authorization: `Bearer ${token.get()}` } : own;
}

async function answer(path, options) {
  let found;
  try {
    found = await fetch(ROOT + path, { ...options, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The daemon does not answer.");
  }
  if (found.ok) return found;
  let detail = found.statusText || `status ${found.status}`;
  try {
    const told = await found.json();
    detail = String(told.detail || told.title || detail);
  } catch { /* no JSON: a proxy's own page */ }
  throw new Refused(found.status, detail);
}

export async function read(path, signal) {
  return (await answer(path, { headers: headers(), signal })).json();
}

/** Question that changes nothing (what-if). */
export async function question(path, body, signal) {
  const sent = { method: "POST", headers: headers({ "Content-Type": "application/json" }), signal };
  return (await answer(path, { ...sent, body: JSON.stringify(body) })).json();
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Ask for a change, and wait for what the loop makes of it: its answer in one line. */
export async function ask(path, body) {
  const sent = { method: "POST", headers: headers(body ? { "Content-Type": "application/json" } : {}) };
  const stored = await (await answer(path, { ...sent, body: body && JSON.stringify(body) })).json();
  let request = stored;
  for (let n = 0; !request.handled_at && n < 60; n += 1) {
    await pause(Math.min(200 + 100 * n, 1_000));
    request = await read(`requests/${Number(stored.request_id)}`);
  }
  return request;
}

/**
 * Call `changed` now and whenever something has changed, and `told` with what every event says of the daemon.
 * `state` hears live, polling or lost. Returns what ends it.
 */
export function listen({ changed, told, state }) {
  const ended = new AbortController();
  (async () => {
    while (!ended.signal.aborted) {
      let wait = RECONNECT_MS;
      try {
        const stream = await answer("stream", { headers: headers(), signal: ended.signal });
        state("live");
        for await (const event of events(stream.body)) {
          told(event.data);
          if (event.kind === "changed") changed();
        }
      } catch (error) {
        if (ended.signal.aborted) return;
        const lost = error instanceof Refused && (error.status === 0 || error.status >= 500);
        state(lost ? "lost" : "polling");
        changed();
        wait = lost ? 3_000 : POLL_MS;
      }
      await pause(wait);
    }
  })();
  return () => ended.abort();
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const whole = text.split("\n\n");
    text = whole.pop();
    for (const each of whole) {
      const kind = /^event: (.*)$/m.exec(each)?.[1];
      const data = /^data: (.*)$/m.exec(each)?.[1];
      if (kind && data) yield { kind, data: JSON.parse(data) };
    }
  }
}
