/** What a forecast makes of runs, lanes, bars and requests. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { chart, eachBar, extent } from "../src/draw/bars.ts";
import { busy } from "../src/model/busy.ts";
import { AS_IT_IS, expectedRuns, type Forecast, isAsItIs, queryOf, seedsFor } from "../src/model/forecast.ts";
import type { Graph } from "../src/model/graph.ts";
import { CODE } from "../src/model/states.ts";
import { lanes, only, spans } from "../src/model/times.ts";

const NOW = Date.UTC(2026, 0, 1);
const at = (seconds: number): string => new Date(NOW + seconds * 1000).toISOString();

interface Task {
  state: string;
  run?: number;
  ready?: number;
  started?: number;
  ended?: number;
}

function graphOf(tasks: readonly Task[]): Graph {
  const time = (of: (task: Task) => number | undefined): Float64Array =>
    Float64Array.from(tasks, (task) => NOW + 1000 * (of(task) ?? NaN));
  const ids = tasks.map((_, place) => `t${place}`);
  const state = Uint8Array.from(tasks, (each) => CODE[each.state] as number);
  const run = Uint16Array.from(tasks, (each) => each.run ?? 0);
  const ended = time((each) => each.ended);
  const text = ids.map(() => "");
  return {
    id: "g", ids, labels: ids, state, run, target: text, worker: text, runs: new Map(), groups: [],
    pendingSince: time((each) => each.ready), started: time((each) => each.started), ended, resolved: ended,
    held: new Uint8Array(tasks.length), group: new Int32Array(tasks.length).fill(-1),
  } as unknown as Graph;
}

type Run = readonly [task: number, run: number, start: number, end: number, outcome?: string];

function forecast(runs: readonly Run[], more: Partial<Forecast> = {}): Forecast {
  const listed = runs.map(([task, run, start, end, outcome = "completed"]) => {
    return { taskId: `t${task}`, run, outcome, started: at(start), ended: at(end) };
  });
  return { now: at(0), corrections: [], runs: listed, ...more } as unknown as Forecast;
}

const GRAPH = graphOf([
  { state: "completed", ready: -9, started: -9, ended: -5 },
  { state: "running", ready: -9, started: -5 },
  { state: "pending", ready: -5 },
  { state: "unscheduled" },
  { state: "running", run: 1, ready: -2, started: -1 },
]);
const RUNS: readonly Run[] = [
  [0, 0, -4, 3], // which has ended since
  [1, 0, -5, 10],
  [2, 0, 10, 20, "failed"],
  [2, 1, 20, 30],
  [3, 0, 30, 45],
  [4, 0, -4, 4], // another run of it is under way by now
  [9, 0, 1, 2], // a task that this page does not know yet
];

test("what is forecast stands with the run that goes on or waits, and by itself where there is none", () => {
  const all = spans(GRAPH, expectedRuns(GRAPH.ids, forecast(RUNS)));
  const found = Array.from(all.task, (task, span) => {
    const times = [all.expectedStart, all.expectedEnd].map((each) => ((each[span] as number) - NOW) / 1000);
    return [task, all.run[span], all.outcome[span], ...times, all.expectedOutcome[span]];
  });
  assert.deepEqual(found, [
    [0, 0, "completed", NaN, NaN, ""],
    [1, 0, "running", -5, 10, "completed"],
    [2, 0, "pending", 10, 20, "failed"],
    [4, 1, "running", NaN, NaN, ""],
    [2, 1, "expected", 20, 30, "completed"],
    [3, 0, "expected", 30, 45, "completed"],
  ]);
  assert.ok(spans(GRAPH).expectedEnd.every(Number.isNaN));
  assert.deepEqual([...only(all, (task) => task === 2).expectedEnd], [NOW + 20_000, NOW + 30_000]);
});

test("a lane holds a run until its forecast is over", () => {
  const all = spans(GRAPH, expectedRuns(GRAPH.ids, forecast(RUNS)));
  const { count, lane } = lanes(GRAPH, all, "target", NOW);
  assert.deepEqual([count, ...lane], [3, 0, 0, 1, 2, 0, 0]);
});

test("bars have what was before now and what is forecast after it", () => {
  const all = spans(GRAPH, expectedRuns(GRAPH.ids, forecast(RUNS)));
  const made = chart(GRAPH, all, lanes(GRAPH, all, "task", NOW), NOW);
  assert.deepEqual([made.zero, made.seconds], [NOW - 9_000, 54]);
  assert.deepEqual(extent(made, 1), { from: 0, at: 4, to: 9, soon: 9, until: 19 });
  assert.deepEqual(extent(made, 2), { from: 4, at: 9, to: 9, soon: 19, until: 29 });
  assert.deepEqual(extent(made, 5), { from: 39, at: 39, to: 39, soon: 39, until: 54 });
  const seen: number[] = [];
  eachBar(made, { x: 40, y: 0, kx: 1, ky: 1, width: 5, height: 9 }, (span) => seen.push(span));
  assert.deepEqual(seen, [5]);
});

test("over time the forecast begins now", () => {
  const { times, running, expected } = busy(spans(GRAPH, expectedRuns(GRAPH.ids, forecast(RUNS))), NOW, 54);
  const piece = (second: number): number => times.indexOf(NOW + second * 1000);
  assert.deepEqual([running[piece(-1)], expected[piece(-1)]], [2, 0]);
  assert.deepEqual([running[piece(0)], expected[piece(0)], expected[piece(15)], expected[piece(44)]], [0, 1, 1, 1]);
});

test("what lies ahead is stretched as past graphs correct the end", () => {
  const runs: readonly Run[] = [[1, 0, -5, 10], [3, 0, 10, 20]];
  const corrected = forecast(runs, { corrections: [1.5], seconds: { p10: 29, p50: 30, p90: 31 } });
  const found = expectedRuns(GRAPH.ids, corrected);
  const seconds = [...found.values()].flat().map(({ start, end }) => [(start - NOW) / 1000, (end - NOW) / 1000]);
  assert.deepEqual(seconds, [[-5, 15], [15, 30]]);
});

test("a large graph is rehearsed less often, and what is supposed goes along", () => {
  assert.deepEqual([1, 1_000, 3_000, 10_000, 60_000].map(seedsFor), [10, 10, 3, 1, 1]);
  assert.equal(queryOf(AS_IT_IS, 10, true), "seeds=10&runs=1");
  const supposed = { slots: "default+gpu=8", limits: ["4", "a=b=2"], drop: ["x&y"], fail: ["z"] };
  assert.equal(
    queryOf(supposed, 5_000, false),
    "seeds=2&slots=default%2Bgpu%3D8&limit=4&limit=a%3Db%3D2&drop=x%26y&fail=z",
  );
  assert.deepEqual([isAsItIs(AS_IT_IS), isAsItIs(supposed)], [true, false]);
});
