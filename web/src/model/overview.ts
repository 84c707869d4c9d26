/** A store at a glance: live graphs, who works, targets, schedules, and what needs attention. */

import type { Row, Rows } from "../rows/port.ts";
import { Trouble } from "../rows/port.ts";
import { list, text, texts, time, whole } from "./columns.ts";
import { eventKey } from "./ids.ts";
import { lastEvent } from "./journal.ts";
import { listed } from "./list.ts";
import type { Listed } from "./list.ts";
import { all } from "./load.ts";

const SHOWN_MAX = 20;
const PAGE_ROWS = 100;
const SEEN_SECONDS = 30;
const GONE_WORDS = 3;
const GONE_SLACK_SECONDS = 10;
const FORGOTTEN_SECONDS = 3_600;

export interface Live extends Listed {
  /** Tasks that have completed by the end of its journal, -1 where that is not known. */
  readonly completed: number;
}

export interface Worker {
  readonly name: string;
  /** `active`, `draining`, `drained`, `gone`. */
  readonly state: string;
  /** "" for a worker; `handler`, `function-app`. */
  readonly kind: string;
  readonly host: string;
  readonly targets: readonly string[];
  readonly labels: readonly string[];
  readonly executors: readonly string[];
  readonly slots: number;
  readonly busy: number;
  /** Graph and label of some of its runs. */
  readonly running: readonly { readonly graph: string; readonly label: string }[];
  readonly version: string;
  readonly since: number;
  readonly seen: number;
}

export interface Target {
  readonly name: string;
  readonly paused: boolean;
  /** 0 for none. */
  readonly limit: number;
  readonly permits: number;
  readonly reason: string;
  readonly by: string;
  readonly since: number;
  /** Of live workers. */
  readonly workers: number;
  readonly slots: number;
  readonly busy: number;
}

export interface Schedule {
  readonly name: string;
  readonly active: boolean;
  /** Such as `0 3 * * *`, `every 300 s`, or a time. */
  readonly when: string;
  readonly timezone: string;
  /** NaN for none. */
  readonly next: number;
  readonly lastFired: number;
  readonly error: string;
  readonly row: Row;
}

/** kind: `blocked`, `stalled`, `poison`, `target-paused`, `worker-gone`, `schedule-error`, `notices-given-up`. */
export interface Attention {
  readonly kind: string;
  readonly words: string;
  /** What it is about: a graph, a target, a worker or a schedule, "" for the store. */
  readonly about: string;
}

export interface Overview {
  /** The newest first, at most 20. */
  readonly live: readonly Live[];
  readonly liveCount: number;
  readonly workers: readonly Worker[];
  readonly handlers: readonly Worker[];
  readonly targets: readonly Target[];
  readonly schedules: readonly Schedule[];
  /** Messages that were set aside. */
  readonly poison: number;
  readonly attention: readonly Attention[];
  /** Parts of the store that may not be read by this link or token: names of indexes. */
  readonly unknown: readonly string[];
}

/** Rows of an index; none, and its name in `unknown`, where it may not be read. */
type Index = (partition: string, start?: string, end?: string) => Promise<readonly Row[]>;

/** now: milliseconds since 1970. Throws `Trouble`. */
export async function overview(rows: Rows, now: number): Promise<Overview> {
  const unknown: string[] = [];
  const index: Index = async (partition, start = "", end = "") => {
    try {
      return await all(rows, partition, { start, end, limit: PAGE_ROWS });
    } catch (error) {
      if (!(error instanceof Trouble) || error.reason !== "denied") throw error;
      unknown.push(partition);
      return [];
    }
  };
  const [alive, registered, gates, scheduled, set, noticed] = await Promise.all([
    index("index:live"),
    index("index:workers"),
    index("index:gates"),
    index("index:schedules", "schedule:", "schedule;"),
    index("index:poison"),
    index("index:notices"),
  ]);
  const newest = [...alive].sort((a, b) => time(b, "since") - time(a, "since")).slice(0, SHOWN_MAX);
  const live = (await Promise.all(newest.map((row) => withProgress(rows, row.key)))).filter((each) => each.header);
  const crew = registered.map((row) => workerOf(row, now)).sort((a, b) => (a.name < b.name ? -1 : 1));
  const workers = crew.filter((each) => !each.kind);
  const targets = targetsOf(gates, workers, now);
  const schedules = scheduled.map(scheduleOf);
  const poison = set.filter((row) => text(row, "state") === "poison").length;
  const givenUp = await channelsGivenUp(rows, noticed.slice(0, SHOWN_MAX));
  const attention = [...attentionOf(live, crew, targets, schedules, poison), ...givenUp];
  const handlers = crew.filter((each) => each.kind);
  return { live, liveCount: alive.length, workers, handlers, targets, schedules, poison, attention, unknown };
}

const ends = new WeakMap<Rows, Map<string, number>>();

async function withProgress(rows: Rows, id: string): Promise<Live> {
  const known = ends.get(rows) ?? new Map<string, number>();
  ends.set(rows, known);
  const [graph, last] = await Promise.all([listed(rows, id), lastEvent(rows, id, known.get(id))]);
  known.set(id, last);
  const [row] = last ? await rows.get(id, [eventKey(last)]) : [null];
  const completed = row?.columns.completed;
  return { ...graph, completed: typeof completed === "number" ? completed : last ? -1 : 0 };
}

export function workerOf(row: Row, now: number): Worker {
  const seen = time(row, "seen");
  const age = Number.isNaN(seen) ? FORGOTTEN_SECONDS : (now - seen) / 1000;
  const silent = age > GONE_WORDS * (whole(row, "every") || SEEN_SECONDS) + GONE_SLACK_SECONDS;
  const busy = whole(row, "busy");
  const draining = text(row, "draining") ? (busy ? "draining" : "drained") : "active";
  return {
    name: text(row, "name") || row.key,
    state: silent || row.columns.gone === true ? "gone" : draining,
    kind: text(row, "kind"),
    host: text(row, "host"),
    targets: texts(row, "targets"),
    labels: texts(row, "labels"),
    executors: texts(row, "executors"),
    slots: whole(row, "slots"),
    busy,
    running: list(row, "running").flatMap((each) =>
      Array.isArray(each) && each.length === 2 ? [{ graph: String(each[0]), label: String(each[1]) }] : [],
    ),
    version: text(row, "version"),
    since: time(row, "since"),
    seen,
  };
}

function targetsOf(gates: readonly Row[], workers: readonly Worker[], now: number): readonly Target[] {
  const named = (prefix: string): Map<string, Row> =>
    new Map(gates.filter((row) => row.key.startsWith(prefix)).map((row) => [row.key.slice(prefix.length), row]));
  const paused = named("target:");
  const limited = named("limit:");
  const permits = [...named("permit:")].filter(([, row]) => time(row, "until") > now).map(([key]) => key);
  const live = workers.filter((each) => each.state !== "gone");
  const names = new Set([...paused.keys(), ...limited.keys(), ...live.flatMap((each) => each.targets)]);
  return [...names].sort().map((name) => {
    const serving = live.filter((each) => each.targets.includes(name));
    const row = paused.get(name) ?? limited.get(name);
    const limit = limited.get(name);
    return {
      name,
      paused: paused.has(name),
      limit: limit ? whole(limit, "max") : 0,
      permits: permits.filter((key) => key.slice(0, key.lastIndexOf(":")) === name).length,
      reason: row ? text(row, "reason") : "",
      by: row ? text(row, "by") : "",
      since: row ? time(row, "since") : NaN,
      workers: serving.length,
      slots: serving.reduce((sum, each) => sum + each.slots, 0),
      busy: serving.reduce((sum, each) => sum + each.busy, 0),
    };
  });
}

function scheduleOf(row: Row): Schedule {
  const every = whole(row, "every");
  return {
    name: text(row, "name") || row.key.slice("schedule:".length),
    active: row.columns.active === true,
    when: text(row, "cron") || (every ? `every ${every} s` : text(row, "at")),
    timezone: text(row, "timezone"),
    next: time(row, "next"),
    lastFired: time(row, "lastFired"),
    error: text(row, "error"),
    row,
  };
}

function attentionOf(
  live: readonly Live[],
  crew: readonly Worker[],
  targets: readonly Target[],
  schedules: readonly Schedule[],
  poison: number,
): Attention[] {
  const found: Attention[] = [];
  const add = (kind: string, about: string, words: string): void => void found.push({ kind, about, words });
  for (const { id, state, failed, blockedBy, stalled } of live) {
    const by = blockedBy ? ` (“${blockedBy}”)` : "";
    if (state === "blocked") add("blocked", id, `${id} is blocked: ${failed} failed for good${by}`);
    if (stalled) add("stalled", id, `${id} stands still: ${stalled}`);
  }
  if (poison) add("poison", "", `${poison} ${poison === 1 ? "message was" : "messages were"} set aside`);
  for (const { name, paused, reason } of targets) {
    if (paused) add("target-paused", name, `the target ${name} is paused${reason ? `: ${reason}` : ""}`);
  }
  for (const { name, state, kind } of crew) {
    if (state === "gone") add("worker-gone", name, `${kind ? "the handler" : "the worker"} ${name} is gone`);
  }
  for (const { name, error } of schedules) {
    if (error) add("schedule-error", name, `the schedule ${name} cannot submit its graph: ${error}`);
  }
  return found;
}

async function channelsGivenUp(rows: Rows, noticed: readonly Row[]): Promise<Attention[]> {
  const where = { state: ["given-up"] };
  const range = { start: "notice:", end: "notice;", where, select: ["state", "lastError"], limit: PAGE_ROWS };
  const found = await Promise.all(
    noticed.map(async ({ key }) => {
      return (await all(rows, key, range)).map((row) => ({
        kind: "notices-given-up",
        words: `notices of ${key} were given up: ${text(row, "lastError")}`,
        about: key,
      }));
    }),
  );
  return found.flat();
}
