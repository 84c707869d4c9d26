import assert from "node:assert/strict";
import { test } from "node:test";
import { EDGES_MAX } from "../src/model/edges.ts";
import type { Graph } from "../src/model/graph.ts";
import { cuts, load } from "../src/model/load.ts";
import { archive, GRAPH, graphRows, idOf } from "./archive.ts";

const pairs = ({ edges }: Graph): number[][] =>
  Array.from(edges.from, (from, edge) => [from, edges.to[edge] as number]);

const joins = (rows: Record<string, readonly string[]>): Record<string, { requires: string }> =>
  Object.fromEntries(Object.entries(rows).map(([key, requires]) => [key, { requires: JSON.stringify(requires) }]));

test("edges lead through joins, and each stands once", async () => {
  const [a, b, c] = [idOf(0), idOf(1), idOf(2)];
  const requires = [[], [a], ["join:x:0", a], ["join:group-g:done", c]];
  const relays = { "join:x:0": ["join:x:1", b], "join:x:1": [a], "join:group-g:done": [a, c] };
  const rows = graphRows(requires, joins(relays));
  const graph = await load(await archive(rows), GRAPH, () => undefined);
  assert.deepEqual(pairs(graph).sort(), [[0, 1], [0, 2], [0, 3], [1, 2], [2, 3]]);
  assert.equal(graph.edgesLeftOut, 0);
});

test("a ring of joins, and references without a row, end a walk", async () => {
  const requires = [[], ["join:x:0", "join:gone:0", "gone"]];
  const rows = graphRows(requires, joins({ "join:x:0": ["join:x:1"], "join:x:1": ["join:x:0", idOf(0)] }));
  assert.deepEqual(pairs(await load(await archive(rows), GRAPH, () => undefined)), [[0, 1]]);
});

test("damaged lists count as none", async () => {
  const rows = graphRows([[], []], { [`task:${idOf(1)}`]: { requires: "[\"", runs: "{", groups: "x", held: "" } });
  assert.deepEqual(pairs(await load(await archive(rows), GRAPH, () => undefined)), []);
});

test("joins of groups are thinned where they stand for millions of edges", async () => {
  const side = Math.ceil(Math.sqrt(EDGES_MAX)) + 1;
  const requires = [...Array(2 * side).keys()].map((number) => (number < side ? [] : ["join:group-g:done"]));
  const members = [...Array(side).keys()].map(idOf);
  const graph = await load(await archive(graphRows(requires, joins({ "join:group-g:done": members }))), GRAPH, () => 0);
  assert.equal(graph.edges.from.length, side + (side - 1));
  assert.equal(graph.edgesLeftOut, side * side - graph.edges.from.length);
  assert.equal(new Set(graph.edges.to).size, side);
});

test("ranges of keys touch each other, from the first task to the last", () => {
  for (const tasks of [0, 1, 999, 2_500, 100_000]) {
    const ranges = cuts(tasks);
    assert.equal(ranges.length, Math.max(1, Math.min(8, Math.floor(tasks / 1_000))));
    assert.deepEqual([ranges[0]?.[0], ranges.at(-1)?.[1]], ["task:", "task;"]);
    ranges.slice(1).forEach(([start], place) => assert.equal(start, ranges[place]?.[1]));
    assert.ok(ranges.every(([start, end]) => start < end));
  }
});
