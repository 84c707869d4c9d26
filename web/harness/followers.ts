/**
 * Tabs without a screen, for tests/bench/page: each loads a graph and follows it as the page does, with the code of the
 * page. Called with `{api, graph, count, together}`; together: of one browser. Prints a line when all have loaded it,
 * and at its end the requests since then.
 */

import type { Graph } from "../src/model/graph.ts";
import { text } from "../src/model/columns.ts";
import { follow, load } from "../src/model/load.ts";
import { ApiRows } from "../src/rows/api.ts";

interface Asked {
  readonly api: string;
  readonly graph: string;
  readonly count: number;
  readonly together: boolean;
}

const asked = JSON.parse(process.argv[2] as string) as Asked;
let requests = 0;
const real = fetch;
/** As a browser does, it tries again where a connection that had rested was closed just then. */
globalThis.fetch = (address, how) => {
  requests++;
  return real(address, how).catch((error: unknown) => {
    how?.signal?.throwIfAborted();
    if (how?.method !== "GET") throw error;
    return real(address, how);
  });
};

/** Of all tabs of a browser, as `navigator.locks` keeps them. */
const held = new Set<string>();
const locks = {
  request: async (name: string, _how: unknown, work: (lock: unknown) => Promise<unknown>): Promise<unknown> => {
    if (held.has(name)) return work(null);
    held.add(name);
    return work({}).finally(() => held.delete(name));
  },
};
Object.defineProperty(globalThis, "navigator", { value: asked.together ? { locks } : {} });

const rows = Array.from({ length: asked.count }, () => new ApiRows(asked.api, ""));
const graphs: Graph[] = [];
for (const each of rows) graphs.push(await load(each, asked.graph, () => undefined));
process.stdout.write("loaded\n");
requests = 0;
const ends = rows.map((each, place) => {
  const stop = new AbortController();
  return new Promise<void>((resolve) => {
    void follow(each, graphs[place]!, (now) => text(now.header, "state") === "finished" && resolve(), stop.signal);
  }).finally(() => stop.abort());
});
await Promise.all(ends);
process.stdout.write(`${requests}\n`);
process.exit();
