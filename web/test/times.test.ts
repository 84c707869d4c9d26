import assert from "node:assert/strict";
import { test } from "node:test";
import { compare } from "../src/model/compare.ts";
import { moment } from "../src/model/columns.ts";
import type { Graph } from "../src/model/graph.ts";
import { events } from "../src/model/journal.ts";
import { Heap } from "../src/model/heap.ts";
import { load } from "../src/model/load.ts";
import { Past } from "../src/model/past.ts";
import { TASK_STATES } from "../src/model/states.ts";
import { runLines, task } from "../src/model/task.ts";
import { criticalPath, lanes, slack, spans } from "../src/model/times.ts";
import type { Rows } from "../src/rows/port.ts";
import { archive, GRAPH, graphRows, idOf } from "./archive.ts";
import type { Columns } from "./archive.ts";

const START = Date.UTC(2026, 0, 1);

const at = (seconds: number): { time: string } => ({ time: new Date(START + seconds * 1000).toISOString() });

/** A task that was ready, began and ended at these seconds. */
const ran = (ready: number, began: number, ended: number, worker: string, more: Columns = {}): Columns => ({
  state: "completed",
  pendingSince: at(ready),
  started: at(began),
  ended: at(ended),
  resolved: at(ended),
  worker,
  ...more,
});

const earlier = { run: 0, outcome: "lost", worker: "w2", started: at(1).time, ended: at(2).time, reason: "gone" };
const tasks = (rows: readonly Columns[]): Record<string, Columns> =>
  Object.fromEntries(rows.map((columns, number) => [`task:${idOf(number)}`, columns]));
const fact = (event: string, number: number): string => JSON.stringify([{ event, task: idOf(number) }]);

/** 0 and 1 are required by 2, which runs; 3 is ready and held. */
const ROWS = graphRows([[], [], [idOf(0), idOf(1)], []], {
  "task-graph": { started: at(0) },
  ...tasks([
    ran(0, 0, 5, "w1"),
    ran(2, 3, 10, "w1", { run: 1, runs: JSON.stringify([earlier]) }),
    { state: "running", pendingSince: at(10), started: at(11), worker: "w2" },
    { state: "pending", pendingSince: at(0), held: '["paused"]' },
  ]),
  "event:0000000001": { sequence: 1, time: at(2), events: fact("task-retry", 1) },
  "event:0000000002": { sequence: 2, time: at(5), events: fact("task-completed", 0) },
  "event:0000000003": { sequence: 3, time: at(12), events: fact("task-completed", 1) },
});

const opened = async (): Promise<[Rows, Graph]> => {
  const rows = await archive(ROWS);
  return [rows, await load(rows, GRAPH, () => undefined)];
};

test("times have their microseconds, in any zone, and are NaN where there is none", () => {
  assert.equal(moment("2026-01-01T00:00:01.000250Z"), START + 1000.25);
  assert.equal(moment("2026-01-01T00:00:01Z"), START + 1000);
  assert.equal(moment("2026-01-01T02:00:01.5+02:00"), START + 1500);
  assert.ok(Number.isNaN(moment("")) && Number.isNaN(moment("no")) && Number.isNaN(moment(7)));
});

test("runs are listed by when they began, lost and waiting ones among them", async () => {
  const [, graph] = await opened();
  const all = spans(graph);
  const found = Array.from(all.task, (number, span) => [number, all.run[span], all.outcome[span], all.worker[span]]);
  const expected = [[0, 0, "completed", "w1"], [3, 0, "held", ""], [1, 0, "lost", "w2"], [1, 1, "completed", "w1"]];
  assert.deepEqual(found, [...expected, [2, 0, "running", "w2"]]);
  assert.equal(all.ready[0], START);
  assert.ok(Number.isNaN(all.end[4]) && Number.isNaN(all.start[1]));
});

test("no two runs of a lane overlap", async () => {
  const [, graph] = await opened();
  const all = spans(graph);
  const now = START + 20_000;
  const { count, lane, headings } = lanes(graph, all, "worker", now);
  assert.deepEqual(headings.map(({ name, lanes: some }) => [name, some]), [["w1", 2], ["w2", 1], ["", 1]]);
  assert.equal(count, 4);
  assert.deepEqual([...lane], [0, 3, 2, 1, 2]);
  assert.equal(lanes(graph, all, "task", now).headings.length, 4);
  assert.equal(lanes(graph, all, "group", now).headings[0]?.name, "");
});

test("the critical path goes back from what ended last", async () => {
  const [, graph] = await opened();
  assert.deepEqual(criticalPath(graph), [{ task: 1, seconds: 10, ran: 8 }]);
  const late = slack(graph);
  assert.deepEqual([late[0], late[1]], [5, 0]);
  assert.ok(Number.isNaN(late[2]));
});

test("a graph as it was after each event", async () => {
  const [rows, graph] = await opened();
  const past = new Past(graph, await events(rows, GRAPH, 1, Infinity));
  const names = (sequence: number): string[] =>
    Array.from(past.at(sequence).state, (state) => (TASK_STATES[state] as { name: string }).name);
  assert.deepEqual(names(1), ["running", "pending", "unscheduled", "pending"]);
  assert.deepEqual(names(3), ["completed", "completed", "running", "pending"]);
  assert.deepEqual(names(2), ["completed", "running", "unscheduled", "pending"]);
  assert.deepEqual(names(0), ["running", "pending", "unscheduled", "pending"]);
});

test("a task in full", async () => {
  const [rows, graph] = await opened();
  const found = await task(rows, graph, 1);
  assert.deepEqual(found.runs.map(({ run, outcome, reason }) => [run, outcome, reason]), [
    [1, "completed", ""],
    [0, "lost", "gone"],
  ]);
  assert.deepEqual(found.dependents, [{ place: 2, label: "task 2", state: 2 }]);
  assert.equal((await task(rows, graph, 2)).lease?.worker, "w2");
  const row = { key: "task:x", columns: { state: "pending", run: 0, refusal: "no room", runs: "[1" } };
  assert.deepEqual(runLines(row, 1).map(({ cause, reason }) => [cause, reason]), [["ready", "no room"]]);
});

test("two graphs by label", async () => {
  const [rowsA, a] = await opened();
  const slower = ran(0, 0, 9, "w1", { digest: "other" });
  const failed = { state: "exception", resolution: '{"cancelled":true}' };
  const more = graphRows([[], [], [], []], tasks([slower, failed, {}, { label: "new" }]));
  const rowsB = await archive(more);
  const b = await load(rowsB, GRAPH, () => undefined);
  assert.equal(TASK_STATES[b.state[1] as number]?.name, "cancelled");
  const found = await compare(rowsA, a, rowsB, b);
  assert.deepEqual(found.slower.map((each) => [each.label, each.secondsA, each.secondsB]), [["task 0", 5, 9]]);
  assert.deepEqual(found.newlyFailed.map((each) => each.label), ["task 1"]);
  assert.deepEqual(found.changed.map((each) => each.label), ["task 0"]);
  assert.deepEqual([found.onlyA, found.onlyB], [[3], [3]]);
});

test("a heap gives the least first", () => {
  const heap = new Heap();
  const keys = [...Array(200).keys()].map((number) => (number * 71) % 200);
  for (const key of keys) heap.push(key, key + 1_000);
  assert.equal(heap.least, 0);
  assert.deepEqual(keys.map(() => heap.pop()), [...keys.keys()].map((key) => key + 1_000));
  assert.ok(heap.pop() === undefined && Number.isNaN(heap.least));
});
