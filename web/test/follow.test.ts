/** Following a graph, with rows and a clock of this test. */

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { text } from "../src/model/columns.ts";
import { follow, load } from "../src/model/load.ts";
import type { Fact, Row, Rows } from "../src/rows/port.ts";
import { pause } from "../src/rows/waiting.ts";
import { archive, GRAPH, graphRows, idOf } from "./archive.ts";

const READ_SECONDS = 0.2;
const TICK_SECONDS = 0.05;
const FINISHED: Fact = { sequence: 1, part: 0, time: "2026-01-01T00:00:09Z", kind: "graph-finished", fields: {} };

/** A graph with a task whose row says something new each time; the journal answers while rows are read. */
async function changing(): Promise<Rows> {
  const task = `task:${idOf(0)}`;
  const stored = await archive(graphRows([[]], { [task]: { state: "pending" } }));
  let looked = 0;
  return {
    name: "test",
    page: (partition, range) => stored.page(partition, range),
    file: () => assert.fail("no file is asked for"),
    async get(partition, keys) {
      const rows = await stored.get(partition, keys);
      await pause(READ_SECONDS);
      return rows.map((row): Row | null => {
        if (row?.key === task) return { ...row, columns: { ...row.columns, worker: `w${++looked}` } };
        return row && { ...row, columns: { ...row.columns, state: looked ? "finished" : "running" } };
      });
    },
    async news(_graph, after, signal) {
      await pause(1, signal);
      await pause(READ_SECONDS / 2, signal);
      return after < FINISHED.sequence ? [FINISHED] : [];
    },
  };
}

test("facts that come while rows are read are not lost", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const stop = new AbortController();
  try {
    const rows = await changing();
    const loading = load(rows, GRAPH, () => undefined);
    let loaded = false;
    void loading.then(() => (loaded = true));
    while (!loaded) await later();
    let state = "";
    const following = follow(rows, await loading, (graph) => (state = text(graph.header, "state")), stop.signal);
    for (let seconds = 0; state !== "finished" && seconds < 20; seconds += TICK_SECONDS) await later();
    assert.equal(state, "finished");
    stop.abort();
    await following;
  } finally {
    mock.timers.reset();
  }
});

/** Lets time go on, and what waits for it. */
async function later(): Promise<void> {
  mock.timers.tick(TICK_SECONDS * 1000);
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
}
