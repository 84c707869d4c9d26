/** When each run of a graph was ready, began and ended; and the chain of tasks that decided when the graph ended. */

import { adjacent, besides } from "./adjacent.ts";
import { moment, time } from "./columns.ts";
import type { Graph } from "./graph.ts";
import { Heap } from "./heap.ts";
import { CODE, TASK_STATES } from "./states.ts";

/** One place in each array is one run, in the order of `start` (of those that only wait, of `ready`). */
export interface Spans {
  readonly count: number;
  readonly task: Uint32Array;
  readonly run: Uint16Array;
  /**
   * `running`; `pending` and `held` of what waits; a state of a task for a run that ended it; `failed`, `lost`,
   * `handed-back`, `stopped`, … for one that another followed; `expected` of one that is only forecast.
   */
  readonly outcome: readonly string[];
  readonly worker: readonly string[];
  /** Since when it could have begun, NaN where that is not known. */
  readonly ready: Float64Array;
  /** NaN while it waits. */
  readonly start: Float64Array;
  /** NaN while it waits or runs. */
  readonly end: Float64Array;
  /** When a forecast has it start and end, NaN where it says nothing; and how it ends by that, "" there. */
  readonly expectedStart: Float64Array;
  readonly expectedEnd: Float64Array;
  readonly expectedOutcome: readonly string[];
}

interface Span {
  readonly task: number;
  readonly run: number;
  readonly outcome: string;
  readonly worker: string;
  readonly ready: number;
  readonly start: number;
  readonly end: number;
  expected?: Expected;
}

/** A run as it is forecast: what runs already has its own start. */
export interface Expected {
  readonly run: number;
  readonly outcome: string;
  readonly start: number;
  readonly end: number;
}

const begins = ({ start, ready, expected }: Span): number => start || ready || expected?.start || Infinity;

function columnsOf(found: readonly Span[]): Spans {
  const floats = (of: (span: Span) => number): Float64Array => Float64Array.from(found, of);
  return {
    count: found.length,
    task: Uint32Array.from(found, (each) => each.task),
    run: Uint16Array.from(found, (each) => each.run),
    outcome: found.map((each) => each.outcome),
    worker: found.map((each) => each.worker),
    ready: floats((each) => each.ready),
    start: floats((each) => each.start),
    end: floats((each) => each.end),
    expectedStart: floats((each) => each.expected?.start ?? NaN),
    expectedEnd: floats((each) => each.expected?.end ?? NaN),
    expectedOutcome: found.map((each) => each.expected?.outcome ?? ""),
  };
}

/**
 * All runs, as rows know them: of a task that ran very often the latest. expected: by task, runs that a forecast has;
 * those of tasks that have ended since are left out.
 */
export function spans(graph: Graph, expected: ReadonlyMap<number, readonly Expected[]> = new Map()): Spans {
  const found: Span[] = [];
  for (let task = 0; task < graph.ids.length; task++) {
    found.push(...ran(graph, task));
    const run = graph.run[task] as number;
    if (graph.state[task] === CODE.pending) {
      const outcome = graph.held[task] ? "held" : "pending";
      const ready = graph.pendingSince[task] as number;
      found.push({ task, run, outcome, worker: "", ready, start: NaN, end: NaN });
    }
    if ((graph.state[task] as number) > (CODE.running as number)) continue;
    for (const each of expected.get(task) ?? []) {
      const last = found.at(-1);
      if (last?.task === task && last.run === each.run && Number.isNaN(last.end)) last.expected = each;
      else if (each.run >= run) found.push(onlyExpected(task, each));
    }
  }
  return columnsOf(found.sort((a, b) => begins(a) - begins(b)));
}

function onlyExpected(task: number, expected: Expected): Span {
  const { run } = expected;
  return { task, run, outcome: "expected", worker: "", ready: NaN, start: NaN, end: NaN, expected };
}

/** Those of some tasks. */
export function only(all: Spans, wanted: (task: number) => boolean): Spans {
  const kept = [...all.task.keys()].filter((place) => wanted(all.task[place] as number));
  const floats = (of: Float64Array): Float64Array => Float64Array.from(kept, (each) => of[each] as number);
  const texts = (of: readonly string[]): string[] => kept.map((each) => of[each] as string);
  return {
    count: kept.length,
    task: Uint32Array.from(kept, (each) => all.task[each] as number),
    run: Uint16Array.from(kept, (each) => all.run[each] as number),
    outcome: texts(all.outcome),
    worker: texts(all.worker),
    ready: floats(all.ready),
    start: floats(all.start),
    end: floats(all.end),
    expectedStart: floats(all.expectedStart),
    expectedEnd: floats(all.expectedEnd),
    expectedOutcome: texts(all.expectedOutcome),
  };
}

/** Until when a run takes its lane. now: until when what has no end goes on. */
export function lasts(all: Spans, span: number, now: number): number {
  const expected = all.expectedEnd[span] as number;
  if (all.outcome[span] === "expected") return expected;
  return all.end[span] || (expected > now ? expected : now);
}

function ran(graph: Graph, task: number): Span[] {
  const found: Span[] = [];
  for (const each of graph.runs.get(task) ?? []) {
    const start = moment(each.started);
    const end = moment(each.ended);
    if (Number.isNaN(start) || Number.isNaN(end)) continue;
    const run = typeof each.run === "number" ? each.run : 0;
    found.push({ task, run, outcome: String(each.outcome ?? ""), worker: each.worker ?? "", ready: NaN, start, end });
  }
  const start = graph.started[task] as number;
  const ready = graph.pendingSince[task] as number;
  const state = graph.state[task] as number;
  const waits = state === CODE.pending || state === CODE.unscheduled;
  if (Number.isNaN(start) || start < ready || waits) return found;
  const over = Number.isNaN(graph.ended[task] as number) ? graph.resolved[task] : graph.ended[task];
  const end = state === CODE.running ? NaN : (over as number);
  const outcome = TASK_STATES[state]?.name ?? "";
  const run = graph.run[task] as number;
  found.push({ task, run, outcome, worker: graph.worker[task] as string, ready, start, end });
  return found;
}

export type By = "task" | "worker" | "target" | "group";

/** Where runs are drawn: each in a lane, which holds no two runs at a time. Those of one heading lie side by side. */
export interface Lanes {
  readonly count: number;
  /** By the places of `Spans`. */
  readonly lane: Uint32Array;
  /** Headings, in the order of their lanes; `first` lane of each, and how many it has. */
  readonly headings: readonly { readonly name: string; readonly first: number; readonly lanes: number }[];
}

/** now: until when what has no end goes on. */
export function lanes(graph: Graph, all: Spans, by: By, now: number): Lanes {
  const members = new Map<string | number, number[]>();
  for (let span = 0; span < all.count; span++) {
    const heading = headingOf(graph, all, span, by);
    const listed = members.get(heading);
    if (listed) listed.push(span);
    else members.set(heading, [span]);
  }
  const named = [...members].map(([heading, listed]) => ({
    name: by === "task" ? (graph.labels[heading as number] as string) : (heading as string),
    listed,
  }));
  if (by !== "task") named.sort((a, b) => Number(!a.name) - Number(!b.name) || (a.name < b.name ? -1 : 1));
  const lane = new Uint32Array(all.count);
  let count = 0;
  const headings = named.map(({ name, listed }) => {
    const first = count;
    const [ends, free] = [new Heap(), new Heap()];
    for (const span of listed) {
      const begin = all.start[span] || all.ready[span] || all.expectedStart[span] || 0;
      while (ends.least <= begin) {
        const over = ends.pop() as number;
        free.push(over, over);
      }
      const own = free.pop() ?? count++; // the first that is free: so they lie close together
      ends.push(lasts(all, span, now), own);
      lane[span] = own;
    }
    return { name, first, lanes: count - first };
  });
  return { count, lane, headings };
}

function headingOf(graph: Graph, all: Spans, span: number, by: By): string | number {
  const task = all.task[span] as number;
  if (by === "worker") return all.worker[span] as string;
  if (by === "target") return graph.target[task] as string;
  return by === "group" ? (graph.groups[graph.group[task] as number] ?? "") : task;
}

/** A task of the critical path: how long after the one before it was resolved, and how much of that it ran. */
export interface Step {
  readonly task: number;
  readonly seconds: number;
  readonly ran: number;
}

/** From the task that was resolved last back, by the requirement of each that was resolved last; in order of time. */
export function criticalPath(graph: Graph): readonly Step[] {
  const { before } = adjacent(graph.edges, graph.ids.length);
  const started = time(graph.header, "started");
  const since = Number.isNaN(started) ? time(graph.header, "created") : started;
  const steps: Step[] = [];
  let last = latest(graph, graph.ids.keys());
  while (last >= 0) {
    const previous = latest(graph, besides(before, last));
    const begin = previous < 0 ? since : (graph.resolved[previous] as number);
    const whole = Math.max(0, ((graph.resolved[last] as number) - begin) / 1000);
    steps.push({ task: last, seconds: whole, ran: Math.min(whole, secondsRan(graph, last)) });
    if (steps.length > graph.ids.length) break; // a ring, which only damage can make
    last = previous;
  }
  return steps.reverse();
}

function latest(graph: Graph, tasks: Iterable<number>): number {
  let found = -1;
  for (const task of tasks) {
    const resolved = graph.resolved[task] as number;
    if (resolved > (found < 0 ? -Infinity : (graph.resolved[found] as number))) found = task;
  }
  return found;
}

/** How long all runs of a task took; one that has not ended counts nothing. */
export function secondsRan(graph: Graph, task: number): number {
  return ran(graph, task).reduce((sum, { start, end }) => sum + (Number.isNaN(end) ? 0 : end - start), 0) / 1000;
}

/**
 * By task, how many seconds later it could have ended without moving the end of the graph, had all behind it begun at
 * once and run as long as it did. NaN for what has not ended.
 */
export function slack(graph: Graph): Float64Array {
  const count = graph.ids.length;
  const { before, after } = adjacent(graph.edges, count);
  const left = new Uint32Array(count);
  for (let task = 0; task < count; task++) left[task] = besides(after, task).length;
  const end = latest(graph, graph.ids.keys());
  const late = new Float64Array(count).fill(end < 0 ? NaN : (graph.resolved[end] as number));
  const ready = [...left.keys()].filter((task) => !left[task]);
  for (let task = ready.pop(); task !== undefined; task = ready.pop()) {
    const over = !Number.isNaN(graph.resolved[task] as number);
    const begins = (late[task] as number) - (over ? 1000 * secondsRan(graph, task) : 0);
    for (const each of besides(before, task)) {
      late[each] = Math.min(late[each] as number, begins);
      if (!--(left[each] as number)) ready.push(each);
    }
  }
  return late.map((latest, task) => Math.max(0, (latest - (graph.resolved[task] as number)) / 1000));
}
