// Numbers, times and host lists as people read them. Pure.

let offset_ms = 0; // the daemon's time less the browser's

/** Go by the daemon's clock: `at` is when its last cycle began, `age_s` how long ago that was there. */
export function setClock(at, age_s) {
  offset_ms = Date.parse(at) + 1_000 * age_s - Date.now();
}

export const now = () => Date.now() + offset_ms;

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.abs(seconds);
  const sign = seconds < 0 ? "−" : "";
  if (s < 1) return `${sign}${s === 0 ? 0 : s.toFixed(1)} s`;
  if (s < 60) return `${sign}${Math.round(s)} s`;
  const whole = Math.round(s);
  const [d, h, m, r] = [Math.floor(whole / 86_400), Math.floor(whole / 3_600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  if (d) return `${sign}${d} d ${h} h`;
  if (h) return `${sign}${h} h ${m} min`;
  return r ? `${sign}${m} min ${r} s` : `${sign}${m} min`;
}

/** A number of node-seconds as node-hours. */
export function nodeHours(node_s) {
  if (node_s === null || node_s === undefined) return "–";
  const hours = node_s / 3_600;
  if (hours === 0) return "0 node-hours";
  return `${hours < 10 ? Number(hours.toPrecision(2)) : count(Math.round(hours))} node-hours`;
}

export const count = (n) => (n === null || n === undefined ? "–" : n.toLocaleString("en-US"));

// Of an array of which several tasks start by one decision.
export const ofTasks = (e) => (e.tasks > 1 ? ` (${e.tasks} tasks)` : "");

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Time of the day, with the day where it is another one. */
export function time(at) {
  if (!at) return "–";
  const given = new Date(at);
  const same = given.toDateString() === new Date(now()).toDateString();
  return same ? TIME.format(given) : `${DAY.format(given)}, ${TIME.format(given)}`;
}

export const words = (code) => String(code).replaceAll("_", " ");

/** The names of a folded host list such as n[1-3,07],login. Numbers keep their leading zeros. */
export function hosts(folded) {
  const names = [];
  for (const piece of folded.match(/(?:[^,[]|\[[^\]]*\])+/g) || []) {
    let made = [""];
    for (const [, ranges, plain] of piece.matchAll(/\[([^\]]*)\]|([^[]+)/g)) {
      const ends = ranges === undefined ? [plain] : numbers(ranges);
      made = made.length === 1 ? ends.map((end) => made[0] + end) : made.flatMap((begin) => ends.map((end) => begin + end));
    }
    for (const each of made) names.push(each);
  }
  return names;
}

function numbers(ranges) {
  const found = [];
  for (const range of ranges.split(",")) {
    const [first, last = first] = range.split("-");
    for (let n = Number(first); n <= Number(last); n += 1) found.push(String(n).padStart(first.length, "0"));
  }
  return found;
}

/** A few names folded for people: n[1-3]; one bracket a prefix. */
export function fold(names) {
  const plain = [];
  const groups = new Map();
  for (const name of names) {
    const found = /^(.*?)(\d+)$/.exec(name);
    if (!found) plain.push(name);
    else groups.set(found[1], [...(groups.get(found[1]) || []), found[2]]);
  }
  for (const [prefix, own] of groups) {
    own.sort((a, b) => Number(a) - Number(b));
    const ranges = [];
    for (const n of own) {
      const range = ranges.at(-1);
      if (range && Number(n) === Number(range[1]) + 1) range[1] = n;
      else ranges.push([n, n]);
    }
    const told = ranges.map(([a, b]) => (a === b ? a : `${a}-${b}`)).join(",");
    plain.push(own.length === 1 ? prefix + own[0] : `${prefix}[${told}]`);
  }
  return plain.join(", ");
}
