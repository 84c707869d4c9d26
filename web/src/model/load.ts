/** A graph from its rows: several ranges of keys at a time, only the columns that are shown, edges through joins. */

import type { Row, Rows } from "../rows/port.ts";
import { pages, Trouble } from "../rows/port.ts";
import { text, whole } from "./columns.ts";
import { logical } from "./edges.ts";
import type { Graph } from "./graph.ts";
import { GRAPH, isGraphId } from "./ids.ts";
import { lastEvent } from "./journal.ts";
import { CODE } from "./states.ts";
import { stateOf, Table, TASK_COLUMNS } from "./table.ts";
import type { Paused } from "./table.ts";

export { follow } from "./follow.ts";

/** First characters of taskIds are spread evenly over these. */
const FIRSTS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef";
const RANGES_MAX = 8;
const RANGE_TASKS = 1_000;

/** progress: is called with the number of tasks that are read. Throws `Trouble`. */
export async function load(rows: Rows, id: string, progress: (read: number) => void): Promise<Graph> {
  if (!isGraphId(id)) throw new Trouble("missing", `“${id}” is no id of a graph: letters, digits, “-” and “_”`);
  const event = await lastEvent(rows, id); // first: what changes from now on is read again
  const header = await headerOf(rows, id);
  const paused = await pausedTargets(rows);
  const table = new Table(whole(header, "tasks"), paused);
  const relays = all(rows, id, { start: "join:", end: "join;", select: ["requires"] });
  const reading = cuts(whole(header, "tasks")).map(async ([start, end], place) => {
    for await (const page of pages(rows, id, { start, end, select: TASK_COLUMNS })) {
      table.add(place, page);
      progress(table.length);
    }
  });
  const [joins] = await Promise.all([relays, ...reading]);
  const { tasks, requires } = table.graph();
  const { edges, leftOut } = logical(tasks.ids, requires, joins);
  const graph: Graph = { id, header, ...tasks, edges, edgesLeftOut: leftOut, event };
  await markCancelled(rows, graph);
  return graph;
}

/** The row of a graph. Throws `Trouble` where there is none, or a tombstone alone. */
export async function headerOf(rows: Rows, id: string): Promise<Row> {
  const [header] = await rows.get(id, [GRAPH]);
  if (!header) throw new Trouble("missing", `there is no graph ${id} in ${rows.name}`);
  if (text(header, "state") === "deleted") throw new Trouble("missing", `graph ${id} was deleted`);
  return header;
}

/** Targets that are paused; none where that may not be read, as by a link to one graph. */
export async function pausedTargets(rows: Rows): Promise<Paused> {
  try {
    const gates = await all(rows, "index:gates", { start: "target:", end: "target;", select: ["since"] });
    return new Set(gates.map((row) => row.key.slice("target:".length)));
  } catch (error) {
    if (error instanceof Trouble && error.reason === "denied") return new Set();
    throw error;
  }
}

export async function all(rows: Rows, partition: string, range: Parameters<Rows["page"]>[1]): Promise<Row[]> {
  const found: Row[] = [];
  for await (const page of pages(rows, partition, range)) found.push(...page);
  return found;
}

/** Ranges of keys that hold about as many tasks each. */
export function cuts(tasks: number): readonly (readonly [string, string])[] {
  const count = Math.max(1, Math.min(RANGES_MAX, Math.floor(tasks / RANGE_TASKS)));
  const between = Array.from({ length: count - 1 }, (_, place) => {
    return `task:${FIRSTS[Math.round(((place + 1) * FIRSTS.length) / count)] as string}`;
  });
  const ends = ["task:", ...between, "task;"];
  return ends.slice(1).map((end, place) => [ends[place] as string, end] as const);
}

/** Resolutions may be long, so they are read of those tasks alone that may have been cancelled. */
async function markCancelled(rows: Rows, graph: Graph): Promise<void> {
  if (!graph.state.includes(CODE.exception as number)) return;
  const range = { start: "task:", end: "task;", where: { state: ["exception"] }, select: ["state", "resolution"] };
  const places = new Map(graph.ids.map((each, place) => [each, place]));
  for (const row of await all(rows, graph.id, range)) {
    const place = places.get(row.key.slice(5));
    if (place !== undefined && graph.state[place] === CODE.exception) graph.state[place] = stateOf(row);
  }
}
