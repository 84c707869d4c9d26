/** Edges on a canvas: curves, and for tasks with many edges to one level a spine that these share. In the worker. */

import type { View } from "./camera.ts";
import { links, upTo } from "./layout.ts";

export interface Lines {
  readonly x: Float32Array;
  readonly y: Float32Array;
  /** The first and the last column of each task's level. */
  readonly left: Uint32Array;
  readonly right: Uint32Array;
  readonly from: Uint32Array;
  readonly to: Uint32Array;
  /** Slots of a row, Infinity where the drawing is not broken into rows. */
  readonly row: number;
}

/** How wide and high a task is drawn, in pixels. */
export interface Mark {
  readonly width: number;
  readonly height: number;
}

export interface Pen {
  readonly view: View;
  readonly mark: Mark;
  readonly colour: string;
  readonly ratio: number;
}

const HUB = 8;
const BATCH = 96;
/** Columns between the ends of an edge. */
const LONG = 4;
/** More curves than this show no more: every second, third … is drawn. */
const MOST = 24_000;
const SAMPLE = 1000;

interface Hub {
  readonly node: number;
  readonly column: number;
  readonly others: readonly number[];
  readonly out: boolean;
  /** How many more have their spines there. */
  readonly beside: number;
}

export class Edges {
  /** Places in `lines` that no hub draws. */
  private readonly single: Uint32Array;
  private readonly hubs: readonly Hub[];

  constructor(private readonly lines: Lines) {
    const { from, to, left, right } = lines;
    const taken = new Uint8Array(from.length);
    const hubs: Hub[] = [];
    for (const out of [true, false]) {
      const [own, other, near] = out ? [from, to, left] : [to, from, right];
      for (const bundle of this.bundles(own, other, near, taken)) {
        for (const k of bundle) taken[k] = 1;
        hubs.push({
          node: own[bundle[0]!]!,
          column: near[other[bundle[0]!]!]!,
          others: bundle.map((k) => other[k]!).sort((a, b) => lines.y[a]! - lines.y[b]!),
          out,
          beside: 0,
        });
      }
    }
    const there = new Map<number, number>();
    for (const { column } of hubs) there.set(column, (there.get(column) ?? -1) + 1);
    this.hubs = hubs.map((hub) => ({ ...hub, beside: there.get(hub.column)! }));
    this.single = upTo(from.length).filter((k) => !taken[k]);
  }

  paint(context: OffscreenCanvasRenderingContext2D, pen: Pen): void {
    const { view, ratio } = pen;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, view.width, view.height);
    context.strokeStyle = pen.colour;
    context.lineCap = "round";
    const seen = this.inView(view);
    const step = Math.max(1, Math.ceil(seen.length / MOST));
    const alpha = Math.max(0.07, Math.min(0.6, 0.2 / Math.sqrt(this.ink(seen, view) / step)));
    context.lineWidth = seen.length > 3000 ? 0.7 : 1;
    // Long edges cross everything: these are fainter, and lie below.
    for (const long of [true, false]) {
      const some = seen.filter((k) => this.long(k) === long);
      context.globalAlpha = long ? alpha * 0.45 : alpha;
      for (let k = 0; k < some.length; ) {
        context.beginPath();
        for (let n = 0; n < BATCH && k < some.length; n++, k += step) this.curve(context, some[k]!, pen);
        context.stroke();
      }
    }
    this.paintHubs(context, pen);
  }

  /** How often the edges would cover the view, were they a pixel wide; by a sample of them. */
  private ink(seen: Uint32Array, view: View): number {
    const { from, to, x, y } = this.lines;
    const every = Math.ceil(seen.length / SAMPLE);
    let sum = 0;
    for (let i = 0; i < seen.length; i += every) {
      const [a, b] = [from[seen[i]!]!, to[seen[i]!]!];
      sum += Math.min(view.width, Math.abs(x[a]! - x[b]!) * view.kx);
      sum += Math.min(view.height, Math.abs(y[a]! - y[b]!) * view.ky);
    }
    return (sum * every) / (view.width * view.height) + 0.001;
  }

  private long(k: number): boolean {
    const { left, right, from, to } = this.lines;
    return left[to[k]!]! - right[from[k]!]! > LONG;
  }

  /** Edges of one task to one level, where these are many. */
  private bundles(own: Uint32Array, other: Uint32Array, near: Uint32Array, taken: Uint8Array): number[][] {
    const { start, other: edges } = links(this.lines.x.length, own, upTo(own.length));
    const found: number[][] = [];
    for (let node = 0; node + 1 < start.length; node++) {
      if (start[node + 1]! - start[node]! < HUB) continue;
      const byLevel = new Map<number, number[]>();
      for (const k of edges.subarray(start[node], start[node + 1])) {
        if (taken[k] || this.breaks(k)) continue;
        const level = byLevel.get(near[other[k]!]!);
        if (level) level.push(k);
        else byLevel.set(near[other[k]!]!, [k]);
      }
      for (const bundle of byLevel.values()) if (bundle.length >= HUB) found.push(bundle);
    }
    return found;
  }

  private breaks(k: number): boolean {
    const { from, to, y, row } = this.lines;
    return row !== Infinity && Math.floor(y[from[k]!]! / row) !== Math.floor(y[to[k]!]! / row);
  }

  private inView(view: View): Uint32Array {
    const { from, to, x, y } = this.lines;
    const [left, top] = [view.x - 0.5, view.y - 0.5];
    const [right, bottom] = [left + view.width / view.kx, top + view.height / view.ky];
    const seen = new Uint32Array(this.single.length);
    let count = 0;
    for (const k of this.single) {
      const [a, b] = [from[k]!, to[k]!];
      const [xa, xb, ya, yb] = [x[a]!, x[b]!, y[a]!, y[b]!];
      if ((xa < left && xb < left) || (xa > right && xb > right)) continue;
      if ((ya < top && yb < top) || (ya > bottom && yb > bottom)) continue;
      seen[count++] = k;
    }
    return seen.subarray(0, count);
  }

  private curve(context: OffscreenCanvasRenderingContext2D, k: number, pen: Pen): void {
    const { from, to, x, y } = this.lines;
    const { view, mark } = pen;
    const [a, b] = [from[k]!, to[k]!];
    const x1 = (x[a]! + 0.5 - view.x) * view.kx + mark.width / 2;
    const y1 = (y[a]! + 0.5 - view.y) * view.ky;
    const x2 = (x[b]! + 0.5 - view.x) * view.kx - mark.width / 2;
    const y2 = (y[b]! + 0.5 - view.y) * view.ky;
    if (this.breaks(k)) {
      const stub = view.kx * 0.5;
      context.moveTo(x1, y1);
      context.lineTo(x1 + stub, y1);
      context.moveTo(x2 - stub, y2);
      context.lineTo(x2, y2);
      return;
    }
    const bend = x2 > x1 ? Math.min((x2 - x1) * 0.5, view.kx * 1.5) : view.kx * 0.6;
    context.moveTo(x1, y1);
    if (Math.abs(y2 - y1) < 1) context.lineTo(x2, y2);
    else context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
  }

  private paintHubs(context: OffscreenCanvasRenderingContext2D, pen: Pen): void {
    const { x, y } = this.lines;
    const { view, mark } = pen;
    const ofColumn = (column: number): number => (column + 0.5 - view.x) * view.kx;
    const ofSlot = (slot: number): number => (slot + 0.5 - view.y) * view.ky;
    const gap = Math.max(2, view.kx - mark.width);
    for (const { node, column, others, out, beside } of this.hubs) {
      const side = out ? 1 : -1;
      // Spines of several hubs before one column stand beside each other.
      const spine = ofColumn(column) - side * (mark.width / 2 + gap * (0.25 + 0.1 * (node % 4)));
      const port = ofColumn(x[node]!) + (side * mark.width) / 2;
      const [least, most] = [y[others[0]!]!, y[others.at(-1)!]!];
      const [top, bottom] = [ofSlot(least), ofSlot(most)];
      const at = ofSlot(y[node]!);
      if (Math.max(spine, port) < 0 || Math.min(spine, port) > view.width) continue;
      if (Math.max(bottom, at) < 0 || Math.min(top, at) > view.height) continue;
      const meet = Math.max(top, Math.min(at, bottom));
      context.globalAlpha = Math.min(0.75, (0.22 + Math.sqrt(others.length) / 40) / Math.sqrt(1 + beside / 2));
      context.lineWidth = Math.min(4, 1 + Math.log2(others.length / HUB) * 0.5);
      context.beginPath();
      context.moveTo(port, at);
      const bend = Math.min(Math.abs(spine - port) * 0.6, view.kx * 1.5) * side;
      context.bezierCurveTo(port + bend, at, spine - bend, meet, spine, meet);
      context.moveTo(spine, top);
      context.lineTo(spine, bottom);
      context.stroke();
      context.lineWidth = 0.7;
      // Ticks to the farther columns of a level run below its nearer ones.
      const { left, right } = this.lines;
      context.globalAlpha /= Math.sqrt(1 + right[others[0]!]! - left[others[0]!]!);
      context.beginPath();
      let last = -Infinity;
      for (const other of others) {
        const tick = ofSlot(y[other]!);
        if (tick - last < 1.5 || tick < -2 || tick > view.height + 2) continue;
        context.moveTo(spine, tick);
        context.lineTo(ofColumn(x[other]!) - (side * mark.width) / 2, tick);
        last = tick;
      }
      context.stroke();
    }
  }
}
