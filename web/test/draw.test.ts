import assert from "node:assert/strict";
import { test } from "node:test";
import { ticks } from "../src/draw/axis.ts";
import { chart, eachBar, extent } from "../src/draw/bars.ts";
import { Camera, type View } from "../src/draw/camera.ts";
import { clusters } from "../src/draw/clusters.ts";
import { byPrefix } from "../src/draw/groups.ts";
import { around, covers } from "../src/draw/layer.ts";
import { layout } from "../src/draw/layout.ts";
import { duration } from "../src/draw/looks.ts";
import { eachInView, shownOf } from "../src/draw/marks.ts";
import { gist, plain } from "../src/draw/nodes.ts";
import { nodeAt, scene, sketch, visible, type Scene } from "../src/draw/scene.ts";
import type { Graph } from "../src/model/graph.ts";
import { CODE } from "../src/model/states.ts";
import type { Lanes, Spans } from "../src/model/times.ts";
import { dice } from "./dice.ts";
import { shapeOf } from "./layout-graphs.ts";

function graphOf(labels: readonly string[], pairs: readonly (readonly [number, number])[]): Graph {
  const count = labels.length;
  const times = (): Float64Array => new Float64Array(count).fill(NaN);
  return {
    id: "g", header: { key: "task-graph", columns: {} }, ids: labels.map((_, i) => `t${i}`), labels,
    state: new Uint8Array(count), run: new Uint16Array(count), target: labels.map(() => ""),
    worker: labels.map(() => ""),
    pendingSince: times(), started: times(), ended: times(), resolved: times(), held: new Uint8Array(count),
    runs: new Map(), groups: [], group: new Int32Array(count).fill(-1), edges: shapeOf(count, pairs).edges,
    edgesLeftOut: 0, event: 0,
  };
}

const LABELS = ["fetch-a", "fetch-b", "build-a", "build-b", "test-a", "test-b", "report"];
const PAIRS = [[0, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5, 6]] as const;
const NONE: ReadonlySet<string> = new Set();

function drawn(graph: Graph, fold: ReadonlySet<string> = NONE): Scene {
  const rough = sketch(graph, byPrefix(graph.labels), visible(graph, { fold, hideCompleted: false }), fold);
  return scene(rough, layout(rough.shape));
}

test("groups by what labels begin with", () => {
  const { names, of } = byPrefix(LABELS);
  assert.deepEqual([...of].map((each) => names[each]), ["fetch", "fetch", "build", "build", "test", "test", undefined]);
});

test("a focus shows what is so many edges away, each way", () => {
  const graph = graphOf(LABELS, PAIRS);
  const shown = (depth: number): number[] =>
    [...visible(graph, { focus: 2, depth, fold: NONE, hideCompleted: false })].flatMap((each, i) => (each ? [i] : []));
  assert.deepEqual(shown(1), [0, 2, 4]);
  assert.deepEqual(shown(2), [0, 2, 4, 6]);
});

test("completed tasks are hidden, but not the one in focus", () => {
  const graph = graphOf(LABELS, PAIRS);
  graph.state.fill(CODE["completed"]!, 0, 3);
  assert.deepEqual([...visible(graph, { fold: NONE, hideCompleted: true })], [0, 0, 0, 1, 1, 1, 1]);
  assert.equal(visible(graph, { focus: 2, fold: NONE, hideCompleted: true })[2], 1);
});

test("a folded group is one node, with one edge for all that it stands for, and its worst state", () => {
  const graph = graphOf(LABELS, PAIRS);
  graph.state[3] = CODE["failed"]!;
  const all = drawn(graph, new Set(["build", "test"]));
  assert.equal(all.count, 5);
  assert.equal(all.edges.from.length, 4);
  const node = all.node[2]!;
  assert.equal(all.node[3], node);
  assert.deepEqual([...all.members.subarray(all.start[node], all.start[node + 1])], [2, 3]);
  const looks = { states: [], line: "" } as unknown as Parameters<typeof shownOf>[3];
  assert.equal(shownOf(all, graph, "state", looks, 0).state[node], CODE["failed"]);
});

test("a node is found where it is drawn, and nothing beside it", () => {
  const all = drawn(graphOf(LABELS, PAIRS));
  for (let i = 0; i < all.count; i++) {
    assert.equal(nodeAt(all, all.x[i]! + 0.2, all.y[i]! - 0.2, { x: 0.3, y: 0.3 }), i);
    assert.notEqual(nodeAt(all, all.x[i]! + 0.4, all.y[i]!, { x: 0.3, y: 0.3 }), i);
  }
  const seen: number[] = [];
  eachInView(all, { x: 0, y: 0, kx: 10, ky: 10, width: 1000, height: 1000 }, (node) => seen.push(node));
  assert.equal(seen.length, all.count);
});

test("a deep graph is broken into rows, and its chains are single nodes", () => {
  const pairs = Array.from({ length: 1200 }, (_, i) => [[2 * i, 2 * i + 2], [2 * i, 2 * i + 3]] as const).flat();
  const graph = graphOf(Array.from({ length: 2404 }, (_, i) => `t${i}`), pairs.filter(([, to]) => to < 2404));
  const all = drawn(graph);
  assert.ok(all.row < Infinity);
  assert.ok(all.columns < 200 && all.height > 20, `${all.columns} × ${all.height}`);
});

test("groups are boxes: of two that require each other one goes first", () => {
  const graph = graphOf(["a-1", "a-2", "b-1", "b-2", "b-3"], [[0, 2], [0, 3], [0, 4], [2, 1]]);
  const all = clusters(graph, byPrefix(graph.labels), Int32Array.from([0, 1, 2, 3, 4]));
  const place = (name: string): number => all.column[all.names.indexOf(name)]!;
  assert.ok(place("a") < place("b"));
  assert.deepEqual(all.ribbons.map((each) => each.edges).sort(), [1, 3]);
});

class Pane extends EventTarget {
  style = {};
  setPointerCapture(): void {}
}

function camera(scrolls = false): { camera: Camera; pane: Pane; moves: () => number } {
  const pane = new Pane();
  let moves = 0;
  const made = new Camera(pane as unknown as HTMLElement, { moved: () => moves++, scrolls });
  made.resize(1000, 500);
  made.show({ width: 100, height: 50, mostX: 200, mostY: 40 });
  made.fit();
  return { camera: made, pane, moves: () => moves };
}

test("the camera shows all, zooms about a point, and does not lose the drawing", () => {
  const { camera: eye } = camera();
  assert.ok(Math.abs((100 - 0) * eye.kx - 952) < 1e-6);
  eye.zoom(4, 250, 100);
  const [x, y] = [eye.x + 250 / eye.kx, eye.y + 100 / eye.ky];
  eye.zoom(2, 250, 100);
  assert.ok(Math.abs(eye.x + 250 / eye.kx - x) < 1e-9 && Math.abs(eye.y + 100 / eye.ky - y) < 1e-9);
  eye.pan(1e9, 1e9);
  assert.ok(eye.x < 0 && eye.x + eye.width / eye.kx > 0);
  eye.zoom(1e9);
  assert.deepEqual([eye.kx, eye.ky], [200, 40]);
  eye.zoom(1e-9);
  assert.ok(eye.kx < eye.whole.kx && eye.kx > eye.whole.kx * 0.3);
});

test("the camera reveals a point by as little as it takes", () => {
  const { camera: eye, moves } = camera();
  eye.zoom(10, 0, 0);
  const before = moves();
  eye.reveal(eye.x + 500 / eye.kx, eye.y + 250 / eye.ky);
  assert.equal(moves(), before);
  eye.reveal(80, 40, 0);
  assert.ok(eye.x + eye.width / eye.kx >= 80 - 1e-9 && eye.y + eye.height / eye.ky >= 40 - 1e-9);
});

test("a press that stays is a click, one that moves pans", () => {
  const pane = new Pane();
  const clicks: number[][] = [];
  const eye = new Camera(pane as unknown as HTMLElement, { moved: () => 0, clicked: (x, y) => clicks.push([x, y]) });
  eye.resize(100, 100);
  eye.show({ width: 10, height: 10, mostX: 100, mostY: 100 });
  eye.zoom(100);
  const mouse = { pointerId: 1, button: 0, pointerType: "mouse" };
  const send = (name: string, offsetX: number, offsetY: number): boolean =>
    pane.dispatchEvent(Object.assign(new Event(name), { offsetX, offsetY, ...mouse }));
  send("pointerdown", 50, 50);
  send("pointermove", 51, 51);
  send("pointerup", 51, 51);
  assert.deepEqual(clicks, [[51, 51]]);
  const { x } = eye;
  send("pointerdown", 50, 50);
  send("pointermove", 30, 50);
  send("pointerup", 30, 50);
  assert.equal(clicks.length, 1);
  assert.ok(Math.abs(eye.x - x - 20 / eye.kx) < 1e-9);
});

test("a picture around a view covers it until the view leaves it or zooms", () => {
  const world = { width: 100, height: 100 };
  const view: View = { x: 40, y: 40, kx: 10, ky: 10, width: 200, height: 200 };
  const picture = around(view, world);
  assert.ok(covers(picture, view, world));
  assert.ok(covers(picture, { ...view, x: 44 }, world));
  assert.ok(!covers(picture, { ...view, x: 60 }, world));
  assert.ok(!covers(picture, { ...view, kx: 11 }, world));
  const far: View = { ...view, x: -50, y: -50, width: 5000, height: 5000 };
  assert.ok(covers(around(far, world), far, world));
});

test("whatever the view, one picture is enough", () => {
  const roll = dice(4);
  for (let i = 0; i < 2000; i++) {
    const world = { width: 1 + roll() * 500, height: 1 + roll() * 500 };
    const [kx, ky] = [0.3 + roll() * 40, 0.3 + roll() * 40];
    const [width, height] = [50 + roll() * 1500, 50 + roll() * 900];
    const from = (long: number, size: number): number => -size * 0.5 + roll() * long;
    const view: View = { x: from(world.width, width / kx), y: from(world.height, height / ky), kx, ky, width, height };
    const picture = around(view, world);
    assert.ok(covers(picture, view, world), JSON.stringify([view, world, picture]));
    assert.ok(picture.width <= Math.max(width * 1.7, (world.width + 2) * kx + 1));
  }
});

test("ticks stand on whole hours and say the day once", () => {
  const from = Date.UTC(2026, 0, 1, 22, 10);
  const found = ticks(from, from + 6 * 3_600_000, 1_800_001, true);
  const hours = found.map(({ time }) => new Date(time).getUTCHours() + new Date(time).getUTCMinutes() / 60);
  assert.deepEqual(hours, [23, 0, 1, 2, 3, 4]);
  assert.deepEqual(found.map(({ day }) => day), [false, true, false, false, false, false]);
  assert.equal(ticks(0, 1000, 100, true).length, 11);
});

test("only the bars of a part of the time and the lanes are looked at", () => {
  const graph = graphOf(LABELS, PAIRS);
  const count = 1000;
  const each = (value: (i: number) => number): Float64Array => Float64Array.from({ length: count }, (_, i) => value(i));
  const all: Spans = {
    count, task: new Uint32Array(count), run: new Uint16Array(count).fill(1), outcome: Array(count).fill("completed"),
    worker: Array(count).fill(""),
    ready: each((i) => i * 1000), start: each((i) => i * 1000 + 100), end: each((i) => i * 1000 + 900),
    expectedStart: each(() => NaN), expectedEnd: each(() => NaN), expectedOutcome: Array(count).fill(""),
  };
  const lanes: Lanes = { count: 10, lane: Uint32Array.from({ length: count }, (_, i) => i % 10), headings: [] };
  const made = chart(graph, all, lanes, 2e6);
  assert.deepEqual([made.zero, made.seconds], [0, 999.9]);
  assert.deepEqual(extent(made, 7), { from: 7, at: 7.1, to: 7.9, soon: 7.9, until: 7.9 });
  const seen: number[] = [];
  eachBar(made, { x: 99.95, y: 2, kx: 1, ky: 10, width: 20, height: 9 }, (span) => seen.push(span));
  assert.deepEqual(seen, [102, 112, 103, 113]);
});

test("a label that is cut keeps what differs from its neighbours", () => {
  const label = "bicleaner-ai-opus-Books_v1-en-fi";
  assert.equal(gist(label, ["bicleaner-ai-opus-CCAligned_v1-en-fi", "bicleaner-ai-opus-Bibles_v1-en-fi"]), "Books");
  assert.equal(gist("test", []), "test");
  assert.equal(gist("level-1/task-12", ["level-1/task-13"]), "12");
});

test("durations are short, and labels cannot turn what stands beside them", () => {
  const said = [840, 12_000, 200_000, 7_500_000, 200_000_000, NaN].map(duration);
  assert.deepEqual(said, ["840 ms", "12 s", "3 min 20 s", "2 h 5 min", "2 d 7 h", ""]);
  assert.equal(plain("a\u202eb\nc\u200b"), "a·b·c·");
});
