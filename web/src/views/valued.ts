/** What a table of tasks can have in its columns, as values: chosen by the address, and copied. */

import type { Graph } from "../model/graph.ts";
import { TASK_STATES } from "../model/states.ts";
import { dependents, ran, requirements, runs, waited } from "./picked.ts";

/** null for what a task does not have. Times are RFC 3339, lengths of time in seconds. */
export type Value = string | number | null;

const moment = (time: number): Value => (Number.isFinite(time) ? new Date(time).toISOString() : null);
const seconds = (milliseconds: number): Value => (Number.isFinite(milliseconds) ? milliseconds / 1000 : null);

export const VALUES = {
  state: (graph, place) => TASK_STATES[graph.state[place]!]!.name,
  label: (graph, place) => graph.labels[place]!,
  run: (graph, place) => graph.run[place]!,
  group: (graph, place) => graph.groups[graph.group[place]!] ?? null,
  target: (graph, place) => graph.target[place]!,
  worker: (graph, place) => graph.worker[place] || null,
  ready: (graph, place) => moment(graph.pendingSince[place]!),
  started: (graph, place) => moment(graph.started[place]!),
  ended: (graph, place) => moment(graph.ended[place]!),
  waited: (graph, place, now) => seconds(waited(graph, place, now)),
  ran: (graph, place, now) => seconds(ran(graph, place, now)),
  runs,
  requires: requirements,
  dependents,
  held: (graph, place) => (graph.held[place] ? "held" : null),
  taskId: (graph, place) => graph.ids[place]!,
} as const satisfies Record<string, (graph: Graph, place: number, now: number) => Value>;

export type ColumnName = keyof typeof VALUES;

const NAMES = Object.keys(VALUES) as ColumnName[];
const USUAL: ReadonlySet<ColumnName> = new Set(
  ["state", "label", "run", "group", "target", "worker", "started", "waited", "ran"] as const,
);

/** The columns that an address names, in the order of all, with the label; the usual ones where it names none. */
export function namesIn(address: string): readonly ColumnName[] {
  const wanted: ReadonlySet<string> = address ? new Set([...address.split(","), "label"]) : USUAL;
  return NAMES.filter((each) => wanted.has(each));
}

/** The same as an address names them; "" for the usual ones. */
export function addressOf(chosen: ReadonlySet<string>): string {
  const usual = NAMES.every((each) => chosen.has(each) === USUAL.has(each));
  return usual ? "" : NAMES.filter((each) => chosen.has(each)).join(",");
}

/** A text in a cell that a spreadsheet would take for a formula has an apostrophe before it. */
function cellOf(value: Value): string {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

type Names = readonly ColumnName[];

export function asCsv(graph: Graph, places: readonly number[], names: Names, now: number): string {
  const line = (place: number): string => names.map((each) => cellOf(VALUES[each](graph, place, now))).join(",");
  return [names.join(","), ...places.map(line)].join("\n");
}

export function asJson(graph: Graph, places: readonly number[], names: Names, now: number): string {
  const entry = (place: number): object =>
    Object.fromEntries(names.map((each) => [each, VALUES[each](graph, place, now)]));
  return `[\n${places.map((place) => JSON.stringify(entry(place))).join(",\n")}\n]`;
}
