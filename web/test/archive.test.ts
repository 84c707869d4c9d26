import assert from "node:assert/strict";
import { test } from "node:test";
import { graphs } from "../src/model/list.ts";
import { load } from "../src/model/load.ts";
import { ArchiveRows } from "../src/rows/archive.ts";
import { pages, Trouble } from "../src/rows/port.ts";
import { archive, file, GRAPH, graphRows } from "./archive.ts";

const wrong = (error: unknown): boolean => error instanceof Trouble && error.reason === "wrong" && !!error.message;

test("rows are found by their keys, and by ranges, pages and columns", async () => {
  const rows = await archive({
    a: { state: "x", at: { time: "2026-01-01T00:00:00Z" } },
    b: { state: "y", task: "1", task2: "2", task3: "3" },
    c: { state: "x" },
  });
  const [c, none, b] = await rows.get(GRAPH, ["c", "ca", "b"]);
  assert.deepEqual([c?.key, none, b?.columns], ["c", null, { state: "y", task: "123" }]);
  const keys: string[][] = [];
  for await (const page of pages(rows, GRAPH, { start: "a", limit: 1, where: { state: ["x"] } })) {
    keys.push(page.map((row) => row.key));
  }
  assert.deepEqual(keys, [["a"], ["c"]]);
  assert.deepEqual((await rows.page(GRAPH, { start: "a!", end: "c" })).rows.map((row) => row.key), ["b"]);
  assert.equal((await rows.get(GRAPH, ["a"]))[0]?.columns.at, "2026-01-01T00:00:00Z");
  assert.deepEqual(await rows.page("index:live", {}), { rows: [], next: "" });
});

test("its graph is listed, and loaded", async () => {
  const created = { time: "2026-01-01T00:00:00.000001Z" };
  const rows = await archive(graphRows([[]], { "task-graph": { metadata: '{"name":"night\\"ly"}', created } }));
  const listed = [];
  for await (const page of graphs(rows)) listed.push(...page);
  const found = listed.map(({ id, name, tasks, created: at }) => ({ id, name, tasks, at }));
  assert.deepEqual(found, [{ id: GRAPH, name: 'night"ly', tasks: 1, at: Date.UTC(2026, 0, 1) + 0.001 }]);
  assert.equal((await load(rows, GRAPH, () => undefined)).labels[0], "task 0");
  await assert.rejects(load(rows, "other", () => undefined), { reason: "missing" });
});

test("a file of a run is read in pieces, over the pieces of the archive", async () => {
  const piece = (offset: number, text: string): unknown => ({
    log: { task: "t", run: 0, name: "run.log", offset },
    data: Buffer.from(text).toString("base64"),
  });
  const rows = await archive({}, [piece(0, "hello "), piece(6, "world"), piece(11, "!")]);
  const read = async (start: number, length: number): Promise<unknown> => {
    const found = await rows.file(GRAPH, "t", 0, "run.log", start, length);
    return [new TextDecoder().decode(found.bytes), found.start, found.total];
  };
  assert.deepEqual(await read(0, 100), ["hello world!", 0, 12]);
  assert.deepEqual(await read(4, 4), ["o wo", 4, 12]);
  assert.deepEqual(await read(-6, 100), ["world!", 6, 12]);
  assert.deepEqual(await read(-99, 100), ["hello world!", 0, 12]);
  assert.deepEqual(await read(50, 4), ["", 12, 12]);
  await assert.rejects(rows.file(GRAPH, "t", 1, "run.log", 0, 1), { reason: "missing" });
});

test("what is no whole archive is refused", async () => {
  await assert.rejects(ArchiveRows.open(new Blob(["{}"])), wrong);
  await assert.rejects(ArchiveRows.open(file({}, [], false)), wrong);
  const whole = await file({ a: { state: "x".repeat(1000) }, b: {} }).arrayBuffer();
  await assert.rejects(ArchiveRows.open(new Blob([whole.slice(0, whole.byteLength - 20)])), wrong);
  await assert.rejects(ArchiveRows.open(new Blob([])), wrong);
});

test("an archive has no news", async () => {
  const rows = await archive({});
  const stop = new AbortController();
  const waiting = rows.news(GRAPH, 0, stop.signal);
  stop.abort();
  await assert.rejects(waiting, { name: "AbortError" });
});
