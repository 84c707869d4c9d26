/** A graph as its groups: boxes with bars of states, and ribbons between them, wider for more edges. */

import type { Graph } from "../model/graph.ts";
import { TASK_STATES } from "../model/states.ts";
import type { View } from "./camera.ts";
import type { Groups } from "./groups.ts";
import { layout } from "./layout.ts";
import type { Looks } from "./looks.ts";
import type { Context } from "./marks.ts";
import { paintGroup, type Box } from "./nodes.ts";

export interface Clusters {
  readonly names: readonly string[];
  /** For each task its cluster, -1 for one that is not drawn. */
  readonly of: Int32Array;
  readonly column: Uint32Array;
  readonly row: Float32Array;
  readonly columns: number;
  readonly rows: number;
  readonly ribbons: readonly { readonly from: number; readonly to: number; readonly edges: number }[];
}

const MARGIN = 28;

/** Tasks of no group make one cluster more. */
export function clusters(graph: Graph, groups: Groups, node: Int32Array): Clusters {
  const place = new Map<number, number>();
  const names: string[] = [];
  const of = new Int32Array(node.length).fill(-1);
  node.forEach((each, task) => {
    if (each < 0) return;
    const group = groups.of[task]!;
    let found = place.get(group);
    if (found === undefined) {
      found = names.push(group < 0 ? "others" : groups.names[group]!) - 1;
      place.set(group, found);
    }
    of[task] = found;
  });
  const between = new Map<number, number>();
  const { from, to } = graph.edges;
  for (let k = 0; k < from.length; k++) {
    const [a, b] = [of[from[k]!]!, of[to[k]!]!];
    if (a < 0 || b < 0 || a === b) continue;
    const key = a * names.length + b;
    between.set(key, (between.get(key) ?? 0) + 1);
  }
  const ends = (key: number) => ({ from: Math.floor(key / names.length), to: key % names.length });
  const ribbons = [...between].map(([key, edges]) => ({ ...ends(key), edges }));
  // Of two groups that require each other only the way with more edges counts for the levels.
  const forward = ribbons.filter((each) => each.edges >= (between.get(each.to * names.length + each.from) ?? 0));
  const { level, slot, levels, height } = layout({
    count: names.length,
    edges: { from: Uint32Array.from(forward, (each) => each.from), to: Uint32Array.from(forward, (each) => each.to) },
    group: new Int32Array(names.length).fill(-1),
  });
  return { names, of, column: level, row: slot, columns: levels, rows: height, ribbons };
}

export function boxOf(all: Clusters, cluster: number, width: number, height: number): Box {
  const [cell, line] = [(width - 2 * MARGIN) / all.columns, (height - 2 * MARGIN) / all.rows];
  const [wide, high] = [Math.min(cell * 0.72, 190), Math.min(line * 0.7, 46)];
  return {
    x: MARGIN + (all.column[cluster]! + 0.5) * cell - wide / 2,
    y: MARGIN + (all.row[cluster]! + 0.5) * line - high / 2,
    width: wide,
    height: high,
  };
}

export function paintClusters(context: Context, all: Clusters, graph: Graph, looks: Looks, view: View): void {
  const { width, height } = view;
  const boxes = all.names.map((_, cluster) => boxOf(all, cluster, width, height));
  const counts = all.names.map(() => new Uint32Array(TASK_STATES.length));
  all.of.forEach((cluster, task) => cluster >= 0 && counts[cluster]![graph.state[task]!]!++);
  context.strokeStyle = looks.edge;
  for (const { from, to, edges } of all.ribbons) {
    const [a, b] = [boxes[from]!, boxes[to]!];
    const [x1, x2] = [a.x + a.width, b.x];
    const [y1, y2] = [a.y + a.height / 2, b.y + b.height / 2];
    const bend = x2 > x1 ? (x2 - x1) / 2 : a.width * 0.7;
    context.globalAlpha = Math.max(0.12, 0.4 - all.ribbons.length / 600);
    context.lineWidth = Math.min(a.height, b.height, 1 + Math.log2(edges) * 1.6);
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    context.stroke();
  }
  context.globalAlpha = 1;
  boxes.forEach((box, cluster) => paintGroup(context, box, all.names[cluster]!, counts[cluster]!, looks));
}

export function clusterAt(all: Clusters, x: number, y: number, width: number, height: number): string | undefined {
  return all.names.find((_, cluster) => {
    const box = boxOf(all, cluster, width, height);
    return x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height;
  });
}
