/** What ran, was ready and was held over time; when work was held back. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { busy, holdsOf } from "../src/model/busy.ts";
import type { Spans } from "../src/model/times.ts";
import type { Fact } from "../src/rows/port.ts";
import { dice } from "./dice.ts";

type Run = readonly [outcome: string, ready: number, start: number, end: number];

function spans(runs: readonly Run[]): Spans {
  const column = (place: 1 | 2 | 3): Float64Array => Float64Array.from(runs, (each) => each[place]);
  const outcome = runs.map(([each]) => each);
  const none = new Float64Array(runs.length).fill(NaN);
  const times = { ready: column(1), start: column(2), end: column(3), expectedStart: none, expectedEnd: none };
  return { count: runs.length, outcome, ...times } as unknown as Spans;
}

test("each piece of time has the averages of what ran, was ready and was held in it", () => {
  const found = busy(
    spans([
      ["completed", 0, 10, 30],
      ["running", NaN, 20, NaN],
      ["pending", 35, NaN, NaN],
      ["held", 10, NaN, NaN],
    ]),
    40,
    4,
  );
  assert.deepEqual(found.times, [0, 10, 20, 30]);
  assert.deepEqual(found.running, [0, 1, 2, 1]);
  assert.deepEqual(found.ready, [1, 0, 0, 0.5]);
  assert.deepEqual(found.held, [0, 1, 1, 1]);
  assert.deepEqual(busy(spans([]), 40, 4).times, []);
});

test("what is summed by pieces is the whole time of all runs", () => {
  const next = dice(7);
  const runs = Array.from({ length: 500 }, (): Run => {
    const ready = next() * 1000;
    const start = ready + next() * 100;
    return ["completed", ready, start, start + next() ** 3 * 400];
  });
  const found = busy(spans(runs), 0, 97);
  const size = (found.times[1] as number) - (found.times[0] as number);
  const sum = (of: readonly number[]): number => of.reduce((all, each) => all + each, 0) * size;
  const ran = runs.reduce((all, [, , start, end]) => all + end - start, 0);
  const waited = runs.reduce((all, [, ready, start]) => all + start - ready, 0);
  assert.ok(Math.abs(sum(found.running) - ran) < 1e-6 * ran);
  assert.ok(Math.abs(sum(found.ready) - waited) < 1e-6 * waited);
});

test("pauses of the graph and of groups last from their fact until that which ends them", () => {
  const fact = (kind: string, second: number, fields = {}): Fact => {
    return { sequence: second, part: 0, time: `1970-01-01T00:00:0${second}.000Z`, kind, fields };
  };
  const found = holdsOf([
    fact("graph-paused", 1),
    fact("graph-paused", 2, { group: "some" }),
    fact("graph-paused", 3),
    fact("graph-resumed", 4),
    fact("task-completed", 5),
  ]);
  assert.deepEqual(found, [
    { of: "", from: 1000, to: 4000 },
    { of: "some", from: 2000, to: NaN },
  ]);
});
