/** What is drawn over tasks: the edges of one, a ring, what a search found, a note at the pointer. */

import type { View } from "./camera.ts";
import type { Links } from "./layout.ts";
import type { Looks } from "./looks.ts";
import { paintMark, type Context, type Sight } from "./marks.ts";
import { cut } from "./nodes.ts";

const MOST = 2000;

export interface Roads {
  readonly before: Links;
  readonly after: Links;
}

interface Point {
  readonly x: number;
  readonly y: number;
}

interface Tipped {
  readonly view: View;
  readonly looks: Looks;
}

function pixel({ scene, view }: Sight, node: number): Point {
  return { x: (scene.x[node]! + 0.5 - view.x) * view.kx, y: (scene.y[node]! + 0.5 - view.y) * view.ky };
}

/** The edges of one task: to what it requires dashed, to what requires it solid. */
export function paintRoads(context: Context, sight: Sight, roads: Roads, node: number): void {
  const { view, mark, looks } = sight;
  const own = pixel(sight, node);
  context.strokeStyle = looks.accent;
  for (const [{ start, other }, side] of [[roads.after, 1], [roads.before, -1]] as const) {
    const count = start[node + 1]! - start[node]!;
    context.setLineDash(side < 0 ? [5, 3] : []);
    context.lineWidth = count > 40 ? 1 : 1.8;
    context.globalAlpha = count > 200 ? 0.4 : 0.9;
    context.beginPath();
    for (let k = start[node]!; k < start[node + 1]! && k < start[node]! + MOST; k++) {
      const end = pixel(sight, other[k]!);
      const [x1, x2] = [own.x + (side * mark.width) / 2, end.x - (side * mark.width) / 2];
      const bend = Math.min(Math.abs(x2 - x1) * 0.5, view.kx * 1.5) * side;
      context.moveTo(x1, own.y);
      context.bezierCurveTo(x1 + bend, own.y, x2 - bend, end.y, x2, end.y);
    }
    context.stroke();
  }
  context.setLineDash([]);
  context.globalAlpha = 1;
}

export function paintRing(context: Context, sight: Sight, node: number): void {
  const { mark, looks } = sight;
  const { x, y } = pixel(sight, node);
  const [wide, high] = [Math.max(mark.width, 5) + 6, Math.max(mark.height, 5) + 6];
  context.strokeStyle = looks.accent;
  context.lineWidth = 2.5;
  context.beginPath();
  context.roundRect(x - wide / 2, y - high / 2, wide, high, 4);
  context.stroke();
}

/** A veil over all, with a ring and a mark for each task that was found. */
export function paintFound(context: Context, sight: Sight, found: ReadonlySet<number>): void {
  const { scene, view, shown, looks, mark } = sight;
  const boxes = mark.width > 60;
  if (!boxes) {
    context.globalAlpha = 0.6;
    context.fillStyle = looks.ground;
    context.fillRect(0, 0, view.width, view.height);
    context.globalAlpha = 1;
  }
  const [wide, high] = [Math.max(mark.width, 5), Math.max(mark.height, 4)];
  context.strokeStyle = looks.found;
  context.lineWidth = 1.7;
  for (const task of found) {
    const node = scene.node[task] ?? -1;
    if (node < 0) continue;
    const { x, y } = pixel(sight, node);
    if (x < -wide || y < -high || x > view.width + wide || y > view.height + high) continue;
    if (!boxes) {
      context.fillStyle = shown.palette[shown.colour[node]!]!;
      paintMark(context, x, y, shown.state[node]!, mark, looks);
    }
    context.strokeRect(x - wide / 2 - 1.5, y - high / 2 - 1.5, wide + 3, high + 3);
  }
}

/** A few lines beside the pointer. */
export function paintTip(context: Context, { view, looks }: Tipped, at: Point, lines: readonly string[]): void {
  context.font = `12px ${looks.font}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  const room = Math.min(420, view.width - 24);
  const said = lines.map((line) => cut(context, line, room));
  const wide = Math.max(...said.map((line) => context.measureText(line).width)) + 16;
  const high = said.length * 17 + 9;
  const x = Math.max(4, Math.min(at.x + 14, view.width - wide - 4));
  const y = at.y + 18 + high > view.height ? at.y - high - 10 : at.y + 18;
  context.fillStyle = looks.panel;
  context.strokeStyle = looks.quiet;
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(x, y, wide, high, 4);
  context.fill();
  context.stroke();
  said.forEach((line, i) => {
    context.fillStyle = i ? looks.quiet : looks.text;
    context.fillText(line, x + 8, y + 13 + i * 17);
  });
}
