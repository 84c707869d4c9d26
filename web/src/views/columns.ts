/** How the columns of a table of tasks are shown. */

import type { VNode } from "preact";

import type { Graph } from "../model/graph.ts";
import { TASK_STATES } from "../model/states.ts";
import { duration, now } from "./format.ts";
import { taskHref } from "./graph.ts";
import { html } from "./html.ts";
import type { Column } from "./list.ts";
import { State, Time } from "./parts.ts";
import { ran, waited } from "./picked.ts";
import { type ColumnName, namesIn, VALUES } from "./valued.ts";

type Cell = (graph: Graph, place: number) => VNode;

const moment =
  (name: "pendingSince" | "started" | "ended"): Cell =>
  (graph, place) => html`<${Time} at=${graph[name][place]!} />`;
const lasting =
  (of: typeof ran): Cell =>
  (graph, place) => html`<span>${duration(of(graph, place, now.value))}</span>`;

const CELLS: Partial<Record<ColumnName, Cell>> = {
  state: (graph, place) => html`<${State} state=${TASK_STATES[graph.state[place]!]!.name} />`,
  label: (graph, place) => {
    const label = graph.labels[place]!;
    return html`<a class="label" title=${label} href=${taskHref(graph.id, label)}>${label}</a>`;
  },
  ready: moment("pendingSince"),
  started: moment("started"),
  ended: moment("ended"),
  waited: lasting(waited),
  ran: lasting(ran),
};

/** Title and width. */
export const COLUMNS: Readonly<Record<ColumnName, readonly [string, string]>> = {
  state: ["State", "9rem"],
  label: ["Label", "minmax(9rem, 3fr)"],
  run: ["Run", "3.5rem"],
  group: ["Group", "minmax(6rem, 1fr)"],
  target: ["Target", "minmax(5rem, 1fr)"],
  worker: ["Worker", "minmax(6rem, 1fr)"],
  ready: ["Ready", "12.5rem"],
  started: ["Started", "12.5rem"],
  ended: ["Ended", "12.5rem"],
  waited: ["Waited", "6rem"],
  ran: ["Ran", "6rem"],
  runs: ["Earlier runs", "8rem"],
  requires: ["Requires", "7rem"],
  dependents: ["Required by", "8.5rem"],
  held: ["Held", "4rem"],
  taskId: ["TaskId", "15rem"],
};
/** On narrow screens, where the address names none. */
const NARROW: ReadonlySet<ColumnName> = new Set(["state", "label", "ran"]);

export function columnsIn(address: string): readonly Column[] {
  return namesIn(address).map((name) => {
    const [title, width] = COLUMNS[name];
    return { name, title, width, sort: true, minor: !address && !NARROW.has(name) };
  });
}

export function cell(name: ColumnName, graph: Graph, place: number): VNode {
  const own = CELLS[name];
  if (own) return own(graph, place);
  const value = String(VALUES[name](graph, place, now.peek()) ?? "");
  return html`<span title=${value}>${value}</span>`;
}
