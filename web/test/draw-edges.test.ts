import assert from "node:assert/strict";
import { test } from "node:test";
import { Edges, type Lines, type Pen } from "../src/draw/edges.ts";

/** A canvas that counts what is drawn on it. */
function counting(): { context: OffscreenCanvasRenderingContext2D; calls: Record<string, number> } {
  const calls: Record<string, number> = {};
  const context = new Proxy({} as Record<string, unknown>, {
    get: (kept, name: string) => kept[name] ?? (() => (calls[name] = (calls[name] ?? 0) + 1)),
    set: (kept, name: string, value) => {
      kept[name] = value;
      return true;
    },
  });
  return { context: context as unknown as OffscreenCanvasRenderingContext2D, calls };
}

function drawn(lines: Partial<Lines> & Pick<Lines, "x" | "y" | "from" | "to">, view = {}): Record<string, number> {
  const column = Uint32Array.from(lines.x);
  const { context, calls } = counting();
  const pen: Pen = {
    view: { x: 0, y: 0, kx: 40, ky: 20, width: 1000, height: 1000, ...view },
    mark: { width: 10, height: 5 }, colour: "black", ratio: 1,
  };
  new Edges({ left: column, right: column, row: Infinity, ...lines }).paint(context, pen);
  return calls;
}

type Value = (i: number) => number;

const numbers = (length: number, value: Value): Uint32Array => Uint32Array.from({ length }, (_, i) => value(i));
const floats = (length: number, value: Value): Float32Array => Float32Array.from({ length }, (_, i) => value(i));

test("few edges are curves, one each", () => {
  const x = floats(8, (i) => (i ? 1 : 0));
  const calls = drawn({ x, y: floats(8, (i) => i), from: numbers(7, () => 0), to: numbers(7, (i) => i + 1) });
  assert.equal(calls["bezierCurveTo"], 7);
});

test("many edges of a task to one level share one curve, out of it and into it", () => {
  const [x, y] = [floats(31, (i) => (i ? 1 : 0)), floats(31, (i) => i)];
  const [hub, others] = [numbers(30, () => 0), numbers(30, (i) => i + 1)];
  assert.equal(drawn({ x, y, from: hub, to: others })["bezierCurveTo"], 1);
  const back = x.map((each) => 1 - each);
  assert.equal(drawn({ x: back, y, from: others, to: hub })["bezierCurveTo"], 1);
});

test("what is not in view is not drawn", () => {
  const [x, y] = [floats(2, (i) => i), floats(2, (i) => i)];
  const calls = drawn({ x, y, from: numbers(1, () => 0), to: numbers(1, () => 1) }, { x: 100 });
  assert.equal(calls["bezierCurveTo"], undefined);
});

test("of very many edges in view some are drawn", () => {
  const wide = 100_000;
  const x = floats(2 * wide, (i) => (i < wide ? 0 : 1));
  const y = floats(2 * wide, (i) => (i % wide) / 1000);
  const calls = drawn({ x, y, from: numbers(wide, (i) => i), to: numbers(wide, (i) => wide + ((i * 7) % wide)) });
  const curves = (calls["bezierCurveTo"] ?? 0) + (calls["lineTo"] ?? 0);
  assert.ok(curves > 10_000 && curves <= 24_000, `${curves}`);
});

test("an edge from one row of a deep drawing to the next is two ends", () => {
  const [x, y] = [floats(2, (i) => 9 - 9 * i), floats(2, (i) => 12 * i)];
  const calls = drawn({ x, y, from: numbers(1, () => 0), to: numbers(1, () => 1), row: 10 });
  assert.deepEqual([calls["moveTo"], calls["lineTo"], calls["bezierCurveTo"]], [2, 2, undefined]);
});
