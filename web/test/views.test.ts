/** What views make of addresses, logs, plans and remedies, without a browser. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Graph } from "../src/model/graph.ts";
import type { Bytes } from "../src/rows/port.ts";
import { href, parse } from "../src/route.ts";
import { steps, words } from "../src/views/commands.ts";
import { bare, collapsed, inWindow, LogWindow, pieces, PIECE, search } from "../src/views/logtext.ts";
import { matcher, picked, rest } from "../src/views/picked.ts";
import { addressOf, asCsv, asJson, namesIn } from "../src/views/valued.ts";
import { changed, changeOf, gone, type Plan, type PlannedTask } from "../src/views/planned.ts";

const encoder = new TextEncoder();

/** Reads pieces of a text as a source does. */
function reading(text: () => string): (start: number, length: number) => Promise<Bytes> {
  return async (start, length) => {
    const all = encoder.encode(text());
    const from = start < 0 ? Math.max(0, all.length + start) : Math.min(start, all.length);
    return { bytes: all.slice(from, start < 0 ? undefined : from + length), start: from, total: all.length };
  };
}

test("an address is read as it was made, whatever a label holds", () => {
  for (const label of ["a/b", "100 %", "?x=1&y#z", "é “q” \u202e", "..", " "]) {
    const { path, query } = parse(href(["g", "nightly", "t", label], { q: label, none: "", off: false, on: true }));
    assert.deepEqual(path, ["g", "nightly", "t", label]);
    assert.deepEqual(Object.fromEntries(query), { q: label, on: "1" });
  }
  assert.deepEqual(parse("#/g/%E0%A4%A").path, ["g", "%E0%A4%A"]);
});

test("a window on a log holds whole lines and their numbers, at each end of the file", async () => {
  const line = (number: number): string => `line ${number} ${"é".repeat(number % 50)}`;
  const lines = Array.from({ length: 20_000 }, (_, number) => line(number + 1));
  const text = `${lines.join("\n")}\nno end`;
  const window = new LogWindow(reading(() => text));
  await window.atEnd();
  assert.equal(window.lines.at(-1)?.text, "no end");
  assert.equal(window.first, undefined);
  assert.ok(window.lines.every((each) => each.text === "no end" || lines.includes(each.text)));
  while (window.start > 0) assert.ok((await window.earlier()) > 0);
  assert.equal(window.first, 1);
  assert.deepEqual(window.lines.map((each) => each.text), [...lines, "no end"]);
  const { at } = window.lines[12_345]!;
  await window.around(at);
  assert.equal(window.lines[window.placeOf(at)]?.text, line(12_346));
  while ((await window.later()) > 0);
  assert.equal(window.lines.at(-1)?.text, "no end");
});

test("a window grows with its file, and a line that had no end is one line still", async () => {
  let text = "one\ntw";
  const window = new LogWindow(reading(() => text));
  await window.atEnd();
  assert.deepEqual(window.lines.map((each) => each.text), ["one", "tw"]);
  text += "o\nthree\n";
  assert.ok((await window.later()) > 0);
  assert.deepEqual(window.lines.map((each) => each.text), ["one", "two", "three"]);
  assert.equal(await window.later(), 0);
  assert.deepEqual(window.lines.map((each) => each.at), [0, 4, 8]);
});

test("a line of megabytes is read in pieces, and none of it is lost", async () => {
  const text = `${"x".repeat(3 * PIECE + 17)}\nend\n`;
  const window = new LogWindow(reading(() => text));
  await window.atEnd();
  while (window.start > 0) await window.earlier();
  const whole = window.lines.map((each) => each.text).join("");
  assert.equal(whole.length, text.length - 2);
});

test("a search finds lines of the whole file, also over the ends of pieces, without their colours", async () => {
  const filler = `${"-".repeat(1000)}\n`.repeat(1047); // the next line lies over the end of the first MiB
  const text = `${filler}\u001b[31mne\u001b[0medle here\n${filler}last needle`;
  const found: number[] = [];
  for await (const each of search(reading(() => text), "NEEDLE")) found.push(...each.found);
  assert.deepEqual(found, [filler.length, text.lastIndexOf("last")]);
});

test("what a terminal shows of a line is what stands behind its last carriage return", () => {
  assert.equal(collapsed("10 %\r20 %\r30 %\r"), "30 %");
  assert.equal(collapsed("plain\r"), "plain");
  assert.equal(bare("\u001b[1;32mok\u001b[0m \u001b]8;;https://example.com\u0007link\u001b]8;;\u0007"), "ok link");
});

test("colours become pieces of text, and markup stays text", () => {
  const found = pieces("a \u001b[1;31m<img src=x onerror=alert(1)>\u001b[0m & \u001b[38;2;1;2;3mb\u001b[0m");
  assert.deepEqual(found.map((each) => each.text), ["a ", "<img src=x onerror=alert(1)>", " & ", "b"]);
  assert.equal(found[1]!.classes, "bold ansi-red-fg");
  assert.equal(found[3]!.colour, "rgb(1 2 3)");
});

test("commands of a remedy lead to plans where the page can make these", () => {
  assert.deepEqual(words(`taskgraph rerun one 'a b' "c" d\\ e`), ["taskgraph", "rerun", "one", "a b", "c", "d e"]);
  const said = "mend it: taskgraph rerun nightly 'unit; tests'; or all that failed: taskgraph rerun nightly --failed";
  const [one, other] = steps(said);
  assert.equal(one?.command, "taskgraph rerun nightly 'unit; tests'");
  assert.deepEqual(Object.fromEntries(parse(one!.address).query), { change: "rerun", labels: '["unit; tests"]' });
  assert.deepEqual(Object.fromEntries(parse(other!.address).query), { change: "rerun", failed: "1" });
  const [worker] = steps("start a worker: taskgraph worker --target gpu");
  assert.deepEqual([worker?.command, worker?.address], ["taskgraph worker --target gpu", ""]);
  assert.equal(steps("wait")[0], undefined);
});

test("an address names a change only if that is whole", () => {
  const of = (query: string): unknown => changeOf(new URLSearchParams(query));
  assert.equal(of("change=rerun"), null);
  assert.equal(of("change=set-limit&max=x"), null);
  assert.equal(of("change=explode"), null);
  assert.deepEqual(of("change=rerun&failed=1&downstream=1"), { change: "rerun", failed: true, downstream: true });
  assert.deepEqual(of('change=rerun&failed=1&labels=["a"]'), { change: "rerun", labels: ["a"] });
  assert.deepEqual(of("change=set-limit&max=0&group=g"), { change: "set-limit", max: 0, group: "g" });
  assert.deepEqual(of("change=pause"), { change: "pause" });
});

test("two plans differ by tasks that are new, other, or gone", () => {
  const task = (taskId: string, to: string): PlannedTask => {
    return { label: taskId, taskId, from: "failed", to, run: 0, toRun: 1, columns: {} };
  };
  const plan = (...tasks: PlannedTask[]): Plan => ({ tasks }) as unknown as Plan;
  const old = plan(task("a", "pending"), task("b", "pending"));
  const fresh = plan(task("b", "unscheduled"), task("c", "pending"));
  assert.deepEqual([...changed(old, fresh)], [["b", "changed"], ["c", "new"]]);
  assert.deepEqual(gone(old, fresh).map((each) => each.taskId), ["a"]);
});

test("tasks are picked by state, label and group, and sorted with what has no value last", () => {
  const graph = {
    ids: ["1", "2", "3"],
    labels: ["build/a", "test.b", "test[c]"],
    state: Uint8Array.of(3, 4, 6),
    group: Int32Array.of(0, 1, 1),
    groups: ["build", "test"],
    target: ["x", "y", "y"],
    worker: ["", "", ""],
    run: Uint16Array.of(0, 2, 1),
    started: Float64Array.of(Number.NaN, 5, 4),
    ended: Float64Array.of(Number.NaN, 6, 9),
    pendingSince: Float64Array.of(Number.NaN, 1, 1),
  } as unknown as Graph;
  const all = { text: "", states: [], group: "", target: "", sort: "" };
  const of = (more: object): number[] => picked(graph, { ...all, ...more }, 100);
  assert.deepEqual(of({ states: ["failed"] }), [1, 2]);
  assert.deepEqual(of({ states: ["completed"] }), [0]);
  assert.deepEqual(of({ text: "test*" }), [1, 2]);
  assert.deepEqual(of({ group: "test", target: "x" }), []);
  assert.deepEqual(of({ sort: "-started" }), [1, 2, 0]);
  assert.deepEqual(of({ sort: "ran" }), [1, 2, 0]);
  assert.equal(matcher("[c]")("test[c]"), true);
  assert.equal(matcher("test.?")("testxb"), false);
});

test("at the pace of the last minutes the rest takes as long as is said, and nothing is said of too little", () => {
  const minute = 60_000;
  const now = 100 * minute;
  const graph = (ended: number, left: number): Graph => {
    const resolved = Float64Array.from({ length: ended }, (_, place) => now - 2 * minute + place);
    return {
      state: Uint8Array.from([...Array<number>(ended).fill(3), ...Array<number>(left).fill(0)]),
      resolved: Float64Array.from([...resolved, ...Array<number>(left).fill(Number.NaN)]),
    } as unknown as Graph;
  };
  assert.equal(rest(graph(10, 30), now), 6 * minute);
  assert.ok(Number.isNaN(rest(graph(4, 30), now)));
  assert.ok(Number.isNaN(rest(graph(10, 0), now)));
  assert.ok(Number.isNaN(rest(graph(10, 30), now + 60 * minute)), "what ended long ago is no pace");
});

test("the table of tasks has the columns that an address names, and these are copied", () => {
  assert.deepEqual(namesIn("ran,run,nothing"), ["label", "run", "ran"]);
  const usual = new Set(namesIn(""));
  assert.equal(addressOf(usual), "");
  assert.equal(addressOf(new Set([...usual, "taskId"])).split(",").at(-1), "taskId");
  const graph = {
    ids: ["one", "two"],
    labels: ['a "b", c', "=1+1"],
    state: Uint8Array.of(2, 3),
    run: Uint16Array.of(0, 1),
    started: Float64Array.of(1_000, 2_000),
    ended: Float64Array.of(Number.NaN, 4_500),
    edges: { from: Uint32Array.of(0), to: Uint32Array.of(1) },
  } as unknown as Graph;
  const columns = namesIn("state,label,started,ran,requires");
  assert.deepEqual(asCsv(graph, [0, 1], columns, 3_000).split("\n"), [
    "state,label,started,ran,requires",
    'running,"a ""b"", c",1970-01-01T00:00:01.000Z,2,0',
    "completed,'=1+1,1970-01-01T00:00:02.000Z,2.5,1",
  ]);
  assert.deepEqual(JSON.parse(asJson(graph, [1], columns, 3_000)), [
    { state: "completed", label: "=1+1", started: "1970-01-01T00:00:02.000Z", ran: 2.5, requires: 1 },
  ]);
});

test("of a file that is not searched whole the lines of the window are", async () => {
  const window = new LogWindow(reading(() => "one\n\u001b[31mTw\u001b[0mo\nthree\n"));
  await window.atEnd();
  assert.deepEqual(inWindow(window, "two"), [4]);
});
