/**
 * Prints what the page makes of graphs, as JSON by their ids: tests/web holds it against `taskgraph.queries`.
 *
 * Called with a JSON object: `api` and `token`, or `table`, `sas` and `blobs`, or `archive`; and `graphs`, their ids.
 * Of a graph with a task “says”, pieces of the log of its first run are printed too.
 */

import { readFileSync } from "node:fs";
import { basename } from "node:path";
import type { Graph } from "../src/model/graph.ts";
import { events } from "../src/model/journal.ts";
import { asListed } from "../src/model/list.ts";
import { load } from "../src/model/load.ts";
import { Past } from "../src/model/past.ts";
import { standings } from "../src/model/standings.ts";
import { TASK_STATES } from "../src/model/states.ts";
import { task } from "../src/model/task.ts";
import { criticalPath, spans } from "../src/model/times.ts";
import { ApiRows } from "../src/rows/api.ts";
import { ArchiveRows } from "../src/rows/archive.ts";
import { type Rows, Trouble } from "../src/rows/port.ts";
import { TableRows } from "../src/rows/tables.ts";

interface Asked {
  readonly api?: string;
  readonly token?: string;
  readonly table?: string;
  readonly sas?: string;
  readonly blobs?: string;
  readonly archive?: string;
  readonly graphs: readonly string[];
}

async function opened({ api, token = "", table, sas = "", blobs = "", archive }: Asked): Promise<Rows> {
  if (api) return new ApiRows(api, token);
  if (table) return new TableRows(table, sas, blobs);
  return ArchiveRows.open(new File([readFileSync(archive as string)], basename(archive as string)));
}

const named = (state: number): string => (TASK_STATES[state] as { name: string }).name;

function tasksOf(graph: Graph): Record<string, unknown> {
  const requires = new Map<number, string[]>();
  graph.edges.to.forEach((to, edge) => {
    requires.set(to, [...(requires.get(to) ?? []), graph.labels[graph.edges.from[edge] as number] as string]);
  });
  const found: Record<string, unknown> = {};
  graph.labels.forEach((label, place) => {
    found[label] = {
      id: graph.ids[place],
      state: named(graph.state[place] as number),
      run: graph.run[place],
      target: graph.target[place],
      worker: graph.worker[place],
      held: graph.held[place] === 1,
      group: graph.groups[graph.group[place] as number] ?? "",
      resolved: graph.resolved[place],
      requires: (requires.get(place) ?? []).sort(),
    };
  });
  return found;
}

async function logOf(rows: Rows, graph: Graph): Promise<unknown> {
  const says = graph.ids[graph.labels.indexOf("says")];
  if (!says) return undefined;
  const read = async (start: number, length: number): Promise<unknown> => {
    const found = await rows.file(graph.id, says, 0, "run.log", start, length);
    return [new TextDecoder().decode(found.bytes), found.start, found.total];
  };
  const none = await rows.file(graph.id, says, 7, "run.log", 0, 1).catch((error: unknown) => error);
  const pieces = [await read(0, 5), await read(-4, 100), await read(3, 100), await read(99, 5)];
  return { pieces, none: none instanceof Trouble ? none.reason : String(none) };
}

async function print(rows: Rows, id: string): Promise<unknown> {
  const read: number[] = [];
  const graph = await load(rows, id, (count) => read.push(count));
  const all = spans(graph);
  const journal = await events(rows, id, 1, Infinity);
  const some = await Promise.all([...graph.ids.keys()].slice(0, 12).map((place) => task(rows, graph, place)));
  const past = new Past(graph, journal).at(Infinity);
  return {
    state: asListed(id, graph.header).state,
    tasks: tasksOf(graph),
    read: read.at(-1) ?? 0,
    log: await logOf(rows, graph),
    standings: await standings(rows, id),
    event: graph.event,
    events: journal.map(({ sequence, part, kind, fields }) => {
      return { cursor: `${sequence}.${part}`, event: kind, ...fields };
    }),
    past: Object.fromEntries(graph.labels.map((label, place) => [label, named(past.state[place] as number)])),
    spans: Array.from({ length: all.count }, (_, span) => ({
      label: graph.labels[all.task[span] as number],
      run: all.run[span],
      outcome: all.outcome[span],
      worker: all.worker[span],
      start: all.start[span],
      end: all.end[span],
    })),
    path: criticalPath(graph).map((step) => ({ ...step, label: graph.labels[step.task] })),
    details: some.map((each) => ({
      label: each.label,
      state: named(each.state),
      requires: each.requires.map(({ label }) => label),
      dependents: each.dependents.map(({ label }) => label),
      definition: each.definition,
      runs: each.runs.map(({ run, outcome, reason }) => ({ run, outcome, reason })),
    })),
  };
}

const asked = JSON.parse(process.argv[2] as string) as Asked;
const rows = await opened(asked);
const shown: Record<string, unknown> = {};
for (const id of asked.graphs) shown[id] = await print(rows, id);
process.stdout.write(JSON.stringify(shown));
