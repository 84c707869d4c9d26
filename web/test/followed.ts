/**
 * Follows a graph as the page does, and prints at its end what was seen: for tests/web. Called with a JSON object:
 * `api` or `table` and `sas`, and `graph`. A line is printed once it is loaded; `until`: the state of the graph at
 * which it ends, then it stays for `idle` more seconds and counts the requests of these.
 */

import type { Graph } from "../src/model/graph.ts";
import { text } from "../src/model/columns.ts";
import { follow, load } from "../src/model/load.ts";
import { TASK_STATES } from "../src/model/states.ts";
import { ApiRows } from "../src/rows/api.ts";
import { TableRows } from "../src/rows/tables.ts";
import { pause } from "../src/rows/waiting.ts";

interface Asked {
  readonly api?: string;
  readonly table?: string;
  readonly sas?: string;
  readonly graph: string;
  readonly until: string;
  readonly idle: number;
  /** Other tabs have all the connections that may be held open. */
  readonly crowded?: boolean;
}

const { api, table = "", sas = "", graph: id, until, idle, crowded } = JSON.parse(process.argv[2] as string) as Asked;
if (crowded) {
  const locks = { request: async (_name: string, _how: unknown, work: (lock: null) => unknown) => work(null) };
  Object.defineProperty(globalThis, "navigator", { value: { locks } });
}
let requests = 0;
const real = fetch;
globalThis.fetch = (...given: Parameters<typeof fetch>) => {
  requests++;
  return real(...given);
};

const rows = api ? new ApiRows(api, "") : new TableRows(table, sas);
const seen: Record<string, string[]> = {};
const troubles: string[] = [];
let calls = 0;
let last: Graph;

function note(graph: Graph, tasks: Iterable<number>): void {
  for (const task of tasks) {
    const states = (seen[graph.labels[task] as string] ??= []);
    const state = (TASK_STATES[graph.state[task] as number] as { name: string }).name;
    if (states.at(-1) !== state) states.push(state);
  }
}

const graph = await load(rows, id, () => undefined);
note(graph, graph.ids.keys());
process.stdout.write("loaded\n");
const stop = new AbortController();
const ended = new Promise<void>((resolve) => {
  const changed = (now: Graph, tasks: readonly number[]): void => {
    calls++;
    last = now;
    note(now, tasks);
    if (text(now.header, "state") === until) resolve();
  };
  const troubled = (trouble?: Error): void => void troubles.push(trouble?.message ?? "");
  void follow(rows, graph, changed, stop.signal, troubled).then(resolve);
});
await ended;
const before = requests;
await pause(idle);
stop.abort();
const unknown = last!.started.filter((each) => Number.isNaN(each)).length;
process.stdout.write(JSON.stringify({ seen, calls, troubles, unknown, requests: before, idle: requests - before }));
