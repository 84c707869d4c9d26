/** Tasks of a graph that a filter lets through, in an order; both as the address says. */

import { adjacent, besides } from "../model/adjacent.ts";
import type { Graph } from "../model/graph.ts";
import { CODE, FAILED_CODES } from "../model/states.ts";

export interface Wanted {
  /** Part of a label, in any case; `*` and `?` make it a pattern. */
  readonly text: string;
  /** Names of states; `failed` has exceptions and cancelled tasks too where it stands alone. */
  readonly states: readonly string[];
  readonly group: string;
  readonly target: string;
  /** Name of a column, `-` before it for the other direction. */
  readonly sort: string;
}

export function matcher(text: string): (label: string) => boolean {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return () => true;
  if (!/[*?]/.test(wanted)) return (label) => label.toLowerCase().includes(wanted);
  const escaped = wanted
    .replace(/[\\^$.|+()[\]{}]/g, "\\$&")
    .replaceAll("*", ".*")
    .replaceAll("?", ".");
  const pattern = new RegExp(`^${escaped}$`, "i");
  return (label) => pattern.test(label);
}

function codesOf(states: readonly string[]): ReadonlySet<number> {
  if (states.length === 1 && states[0] === "failed") return FAILED_CODES;
  return new Set(states.map((each) => CODE[each] ?? -1));
}

/** Milliseconds that a task has run, or runs; NaN if it never began. */
export function ran(graph: Graph, place: number, now: number): number {
  const [started, ended] = [graph.started[place]!, graph.ended[place]!];
  if (graph.state[place] === CODE.running) return now - started;
  return ended >= started ? ended - started : Number.NaN;
}

/** Milliseconds between being ready and beginning; NaN if it never was ready. */
export function waited(graph: Graph, place: number, now: number): number {
  const since = graph.pendingSince[place]!;
  if (graph.state[place] === CODE.pending) return now - since;
  const started = graph.started[place]!;
  return started >= since ? started - since : Number.NaN;
}

/** How many tasks it requires, how many require it, and how many of its runs are over and were followed by others. */
export const requirements = (graph: Graph, place: number): number =>
  besides(adjacent(graph.edges, graph.ids.length).before, place).length;
export const dependents = (graph: Graph, place: number): number =>
  besides(adjacent(graph.edges, graph.ids.length).after, place).length;
export const runs = (graph: Graph, place: number): number => graph.runs.get(place)?.length ?? 0;

const PACE_MS = 300_000;
const PACE_LEAST = 5;

/** Milliseconds until all is done at the pace of the last minutes; NaN where that is not known. */
export function rest(graph: Graph, now: number): number {
  const left = graph.state.reduce((sum, code) => sum + Number(code <= CODE.running!), 0);
  let [done, first] = [0, now];
  for (const at of graph.resolved) {
    if (!(at > now - PACE_MS)) continue;
    done++;
    if (at < first) first = at;
  }
  return left > 0 && done >= PACE_LEAST ? (left * (now - first)) / done : Number.NaN;
}

/** What failed first, then what runs, is ready, waits, is done: by code. */
const ORDER: readonly number[] = [4, 3, 2, 7, 0, 0, 1, 5];

const ranks = new WeakMap<readonly string[], Float64Array>();

/** The place of each text among all of them in their order, NaN for "": numbers are compared much faster. */
function ranked(texts: readonly string[]): Float64Array {
  const known = ranks.get(texts);
  if (known) return known;
  const order = new Map([...new Set(texts)].sort().map((text, rank) => [text, rank]));
  const made = Float64Array.from(texts, (text) => (text ? order.get(text)! : Number.NaN));
  ranks.set(texts, made);
  return made;
}

function valueOf(graph: Graph, column: string, now: number): (place: number) => number {
  const by = (texts: readonly string[]) => {
    const rank = ranked(texts);
    return (place: number) => rank[place]!;
  };
  switch (column) {
    case "label":
      return by(graph.labels);
    case "run":
      return (place) => graph.run[place]!;
    case "target":
      return by(graph.target);
    case "worker":
      return by([...graph.worker]); // its texts change in place
    case "ready":
      return (place) => graph.pendingSince[place]!;
    case "started":
      return (place) => graph.started[place]!;
    case "ended":
      return (place) => graph.ended[place]!;
    case "runs":
      return (place) => runs(graph, place);
    case "requires":
      return (place) => requirements(graph, place);
    case "dependents":
      return (place) => dependents(graph, place);
    case "held":
      return (place) => graph.held[place] || Number.NaN;
    case "taskId":
      return (place) => place; // in the order of their ids
    case "waited":
      return (place) => waited(graph, place, now);
    case "ran":
      return (place) => ran(graph, place, now);
    case "group":
      return (place) => (graph.group[place]! < 0 ? Number.NaN : ranked(graph.groups)[graph.group[place]!]!);
    default:
      return (place) => ORDER[graph.state[place]!]!;
  }
}

/** By a column, then by label; what has no value comes last in either direction. */
function sorted(graph: Graph, places: number[], sort: string, now: number): number[] {
  const back = sort.startsWith("-") ? -1 : 1;
  const value = valueOf(graph, sort.replace(/^-/, ""), now);
  const keys = new Float64Array(graph.ids.length);
  for (const place of places) {
    const key = value(place);
    keys[place] = Number.isNaN(key) ? Number.POSITIVE_INFINITY : key * back;
  }
  const labels = ranked(graph.labels);
  return places.sort((one, other) => {
    const [a, b] = [keys[one]!, keys[other]!];
    return a === b ? labels[one]! - labels[other]! : a - b;
  });
}

export function picked(graph: Graph, wanted: Wanted, now: number): number[] {
  const fits = matcher(wanted.text);
  const codes = wanted.states.length > 0 ? codesOf(wanted.states) : undefined;
  const group = wanted.group ? graph.groups.indexOf(wanted.group) : undefined;
  const places: number[] = [];
  for (let place = 0; place < graph.ids.length; place++) {
    if (codes && !codes.has(graph.state[place]!)) continue;
    if (group !== undefined && graph.group[place] !== group) continue;
    if (wanted.target && graph.target[place] !== wanted.target) continue;
    if (fits(graph.labels[place]!)) places.push(place);
  }
  return sorted(graph, places, wanted.sort || "state", now);
}
