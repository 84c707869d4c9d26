/** Tasks of a graph that a filter lets through, in an order; both as the address says. */

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

type Value = (place: number) => number | string;

/** What failed first, then what runs, is ready, waits, is done. */
const ORDER: readonly number[] = [4, 3, 2, 7, 0, 0, 1, 5];

function valueOf(graph: Graph, column: string, now: number): Value {
  switch (column) {
    case "label":
      return (place) => graph.labels[place]!;
    case "run":
      return (place) => graph.run[place]!;
    case "target":
      return (place) => graph.target[place]!;
    case "worker":
      return (place) => graph.worker[place]!;
    case "started":
      return (place) => graph.started[place]!;
    case "waited":
      return (place) => waited(graph, place, now);
    case "ran":
      return (place) => ran(graph, place, now);
    case "group":
      return (place) => graph.groups[graph.group[place]!] ?? "";
    default:
      return (place) => ORDER[graph.state[place]!]!;
  }
}

function sorted(graph: Graph, places: number[], sort: string, now: number): number[] {
  const back = sort.startsWith("-") ? -1 : 1;
  const value = valueOf(graph, sort.replace(/^-/, ""), now);
  const keys = new Map(places.map((place) => [place, value(place)]));
  const empty = (key: number | string): boolean => key === "" || key !== key;
  return places.sort((one, other) => {
    const [a, b] = [keys.get(one)!, keys.get(other)!];
    if (empty(a) || empty(b)) return empty(a) && empty(b) ? one - other : empty(a) ? 1 : -1;
    const order = typeof a === "string" ? (a < b ? -1 : a > b ? 1 : 0) : a - (b as number);
    return order * back || (graph.labels[one]! < graph.labels[other]! ? -1 : 1);
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
