/** When the rest of a graph ends, as a server has rehearsed it: `rehearsal` of schemas/answers.json. */

import { moment } from "./columns.ts";
import type { Expected } from "./times.ts";

/** Values below which one, five and nine of ten rehearsals lie. */
export interface Spread<T> {
  readonly p10: T;
  readonly p50: T;
  readonly p90: T;
}

export interface Waited {
  readonly kind: "slots" | "limit";
  /** Targets with commas between; or a group, "" for the graph. */
  readonly name: string;
  readonly max: number;
  readonly taskSeconds: number;
  readonly tasks: number;
  /** How much sooner the graph ends with one more of it; null where that was not tried. */
  readonly oneMoreSeconds: number | null;
}

export interface Forecast {
  readonly now: string;
  readonly slots: readonly { readonly targets: readonly string[]; readonly slots: number }[];
  readonly seeds: number;
  readonly seconds: Spread<number>;
  readonly finish: Spread<string>;
  /** How many rehearsals ended in which state. */
  readonly ends: Readonly<Record<string, number>>;
  /** The share that finished. */
  readonly finishing: number;
  readonly sources: Readonly<Record<"history" | "document" | "assumed", number>>;
  readonly history: readonly string[];
  readonly corrections: readonly number[];
  readonly criticalPath: readonly {
    readonly label: string;
    readonly taskId: string;
    readonly seconds: number;
    readonly ranSeconds: number;
    readonly slackSeconds: number;
  }[];
  readonly waits: readonly Waited[];
  /** Tasks that are not resolved at its end, by state. */
  readonly stays: Readonly<Record<string, number>>;
  /** Groups whose tasks come of results, of which nothing is known. */
  readonly leftOut: readonly string[];
  readonly pausedTargets: readonly string[];
  readonly cost: { readonly amount: Spread<number>; readonly currency: string; readonly overBudget: number };
  readonly deadlines: readonly { readonly label: string | null; readonly deadline: string; readonly share: number }[];
  readonly runs: readonly {
    readonly taskId: string;
    readonly run: number;
    readonly outcome: string;
    readonly started: string;
    readonly ended: string | null;
  }[];
  /** Runs that were too many for the answer. */
  readonly runsLeftOut: number;
}

/**
 * The runs of a forecast by the place of their task. Past graphs correct when it ends, and not its runs: what lies
 * ahead is stretched, so that both say the same.
 */
export function expectedRuns(ids: readonly string[], forecast: Forecast): ReadonlyMap<number, readonly Expected[]> {
  const places = new Map(ids.map((id, place) => [id, place]));
  const now = moment(forecast.now);
  const last = forecast.runs.reduce((most, { ended }) => Math.max(most, ended ? moment(ended) : now), now);
  const stretch = forecast.corrections.length > 0 && last > now ? (forecast.seconds.p50 * 1000) / (last - now) : 1;
  const stretched = (time: number): number => (time > now ? now + (time - now) * stretch : time);
  const found = new Map<number, Expected[]>();
  for (const { taskId, run, outcome, started, ended } of forecast.runs) {
    const place = places.get(taskId);
    if (place === undefined || ended === null) continue;
    const each = { run, outcome, start: stretched(moment(started)), end: stretched(moment(ended)) };
    const known = found.get(place);
    if (known) known.push(each);
    else found.set(place, [each]);
  }
  return found;
}

/** So many runs, of all tasks and rehearsals, are asked for at a time: a server takes half a millisecond for each. */
const RUNS = 10_000;
const SEEDS_MAX = 10;

/** How often a graph of so many tasks is rehearsed. */
export function seedsFor(tasks: number): number {
  return Math.max(1, Math.min(SEEDS_MAX, Math.floor(RUNS / Math.max(1, tasks))));
}

/** What is supposed, as the API takes it. slots: "" for those that there are. limits: `4`, or `GROUP=4`. */
export interface Supposed {
  readonly slots: string;
  readonly limits: readonly string[];
  readonly drop: readonly string[];
  readonly fail: readonly string[];
}

export const AS_IT_IS: Supposed = { slots: "", limits: [], drop: [], fail: [] };

export function isAsItIs({ slots, limits, drop, fail }: Supposed): boolean {
  return !slots && limits.length + drop.length + fail.length === 0;
}

/** The query by which a server rehearses that. */
export function queryOf({ slots, limits, drop, fail }: Supposed, tasks: number, runs: boolean): string {
  const query = new URLSearchParams({ seeds: String(seedsFor(tasks)) });
  if (runs) query.append("runs", "1");
  if (slots) query.append("slots", slots);
  for (const each of limits) query.append("limit", each);
  for (const each of drop) query.append("drop", each);
  for (const each of fail) query.append("fail", each);
  return query.toString();
}
