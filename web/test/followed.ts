/**
 * Follows a graph as the page does, and prints at its end what was seen: for tests/web. Called with a JSON object:
 * `api` or `table` and `sas`, and `graph`. A line is printed once it is loaded; `until`: the state of the graph at
 * which it ends, then it stays for `idle` more seconds and counts the requests of these. `cut`: for so many seconds
 * after it is loaded nothing answers.
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
  readonly cut?: number;
}

const asked = JSON.parse(process.argv[2] as string) as Asked;
const { api, table = "", sas = "", graph: id, until, idle, crowded, cut = 0 } = asked;
if (crowded) {
  const locks = { request: async (_name: string, _how: unknown, work: (lock: null) => unknown) => work(null) };
  Object.defineProperty(globalThis, "navigator", { value: { locks } });
}
let requests = 0;
let away = 0;
const CLOSED = "http://127.0.0.1:9";
const real = fetch;
globalThis.fetch = (address, how) => {
  requests++;
  return real(Date.now() < away ? CLOSED : address, how);
};

const rows = api ? new ApiRows(api, "") : new TableRows(table, sas);
const seen: Record<string, string[]> = {};
const late: Record<string, number> = {};
const troubles: (string | number)[][] = [];
let calls = 0;
let last: Graph;

function note(graph: Graph, tasks: Iterable<number>): void {
  for (const task of tasks) {
    const states = (seen[graph.labels[task] as string] ??= []);
    const state = (TASK_STATES[graph.state[task] as number] as { name: string }).name;
    if (states.at(-1) !== state) states.push(state);
    if (state === "running") late[graph.labels[task] as string] ??= Date.now() - (graph.started[task] as number);
  }
}

const graph = await load(rows, id, () => undefined);
note(graph, graph.ids.keys());
process.stdout.write("loaded\n");
away = Date.now() + cut * 1000;
const stop = new AbortController();
const ended = new Promise<void>((resolve) => {
  const changed = (now: Graph, tasks: readonly number[]): void => {
    calls++;
    last = now;
    note(now, tasks);
    if (text(now.header, "state") === until) resolve();
  };
  const troubled = (trouble?: Error, seconds?: number): void => {
    troubles.push(trouble ? [trouble.message, seconds ?? 0] : []);
  };
  void follow(rows, graph, changed, stop.signal, troubled).then(resolve);
});
await ended;
const before = requests;
await pause(idle);
stop.abort();
const unknown = last!.started.filter((each) => Number.isNaN(each)).length;
const counted = { requests: before, idle: requests - before };
process.stdout.write(JSON.stringify({ seen, late, calls, troubles, unknown, ...counted }));
