/** What of a graph is drawn: tasks, or groups and chains of them that are folded into one, and where each stands. */

import type { Edges, Graph } from "../model/graph.ts";
import { CODE } from "../model/states.ts";
import type { Groups } from "./groups.ts";
import { links, upTo, type Places, type Shape } from "./layout.ts";
import { sortBy } from "./order.ts";

export interface Wanted {
  /** Only this task and what is at most `depth` (2) edges before or behind it. */
  readonly focus?: number | undefined;
  readonly depth?: number | undefined;
  /** Names of groups that are drawn as one; see `Dag.groups`. */
  readonly fold: ReadonlySet<string>;
  readonly hideCompleted: boolean;
}

/** Nodes before they have places. */
export interface Sketch {
  /** Tasks to nodes, -1: not drawn. */
  readonly node: Int32Array;
  /** For each node its first task, and the place of the group that it stands for, or -1. */
  readonly first: Uint32Array;
  readonly folded: Int32Array;
  readonly shape: Shape;
}

/** Nodes with places: `x` is a column, `y` a slot. */
export interface Scene {
  readonly node: Int32Array;
  readonly count: number;
  readonly first: Uint32Array;
  readonly folded: Int32Array;
  /** Some nodes are groups. */
  readonly some: boolean;
  /** Tasks of node `i`: `members[start[i]]` up to `members[start[i + 1]]`. */
  readonly start: Uint32Array;
  readonly members: Uint32Array;
  readonly x: Float32Array;
  readonly y: Float32Array;
  /** The first and the last column of each node's level. */
  readonly left: Uint32Array;
  readonly right: Uint32Array;
  readonly edges: Edges;
  readonly columns: number;
  readonly height: number;
  /** Nodes by column and then from the top: those of column `c` begin at `columnStart[c]`. */
  readonly columnStart: Uint32Array;
  readonly byColumn: Uint32Array;
  /** For each node its place in `byColumn`. */
  readonly turn: Uint32Array;
  /** Slots of a row of a drawing that is broken into rows, Infinity for one that is not. */
  readonly row: number;
}

/** 1 for each task that is drawn. */
export function visible(graph: Graph, wanted: Wanted): Uint8Array {
  const count = graph.ids.length;
  const shown = new Uint8Array(count).fill(1);
  if (wanted.focus !== undefined && wanted.focus < count) {
    shown.fill(0);
    for (const [own, other] of [[graph.edges.to, graph.edges.from], [graph.edges.from, graph.edges.to]] as const) {
      const { start, other: next } = links(count, own, other);
      const seen = new Set([wanted.focus]);
      let front = [wanted.focus];
      for (let step = 0; step < (wanted.depth ?? 2) && front.length; step++) {
        const then: number[] = [];
        for (const at of front) {
          for (let k = start[at]!; k < start[at + 1]!; k++) {
            if (seen.has(next[k]!)) continue;
            seen.add(next[k]!);
            then.push(next[k]!);
          }
        }
        front = then;
      }
      for (const task of seen) shown[task] = 1;
    }
  }
  if (wanted.hideCompleted) {
    for (let i = 0; i < count; i++) if (graph.state[i] === CODE["completed"] && i !== wanted.focus) shown[i] = 0;
  }
  return shown;
}

/** What an earlier drawing had: the tasks of `first`, which are places in `ids`, at the slots of `places`. */
export interface Before {
  readonly ids: readonly string[];
  readonly first: Uint32Array;
  readonly places: Places;
}

/** The slots that tasks had before, NaN for those that were not drawn. */
function slotsBefore(graph: Graph, first: readonly number[], { ids, first: old, places }: Before): Float32Array {
  const slots = new Map(Array.from(old, (task, i) => [ids[task]!, places.slot[i]!]));
  return Float32Array.from(first, (task) => slots.get(graph.ids[task]!) ?? NaN);
}

export function sketch(
  graph: Graph,
  groups: Groups,
  shown: Uint8Array,
  fold: ReadonlySet<string>,
  before?: Before,
): Sketch {
  const count = graph.ids.length;
  const node = new Int32Array(count).fill(-1);
  const [first, folded]: [number[], number[]] = [[], []];
  const ofGroup = new Map<number, number>();
  for (let task = 0; task < count; task++) {
    if (!shown[task]) continue;
    const group = groups.of[task]!;
    if (group < 0 || !fold.has(groups.names[group]!)) {
      node[task] = first.push(task) - 1;
      folded.push(-1);
      continue;
    }
    const known = ofGroup.get(group);
    node[task] = known ?? first.push(task) - 1;
    if (known !== undefined) continue;
    folded.push(group);
    ofGroup.set(group, node[task]!);
  }
  const pairs = new Map<number, number>();
  const [from, to]: [number[], number[]] = [[], []];
  for (let k = 0; k < graph.edges.from.length; k++) {
    const [a, b] = [node[graph.edges.from[k]!]!, node[graph.edges.to[k]!]!];
    if (a < 0 || b < 0 || a === b) continue;
    if (folded[a]! >= 0 || folded[b]! >= 0) {
      const pair = a * first.length + b;
      if (pairs.has(pair)) continue;
      pairs.set(pair, 1);
    }
    from.push(a);
    to.push(b);
  }
  const shape = {
    count: first.length,
    edges: { from: Uint32Array.from(from), to: Uint32Array.from(to) },
    group: Int32Array.from(first, (task, i) => (folded[i]! >= 0 ? -1 : graph.groups.length ? groups.of[task]! : -1)),
    ...(before && { before: slotsBefore(graph, first, before), rows: before.places.rows }),
  };
  return { node, first: Uint32Array.from(first), folded: Int32Array.from(folded), shape };
}

const DEEP = 400;
/** Columns for each slot of a drawing that is broken into rows. */
const STRIP = 0.64;

export function scene(from: Sketch, places: Places): Scene {
  const merged = mergeChains(from, places);
  const { count, head } = merged;
  const deep = places.levels > DEEP;
  const row = deep ? places.height + 3 : Infinity;
  const across = deep ? Math.ceil(Math.sqrt(STRIP * places.levels * row)) : Infinity;
  const starts = new Uint32Array(places.levels + 1);
  places.columns.forEach((wide, level) => (starts[level + 1] = starts[level]! + (wide > 1 ? wide + 1 : 1)));
  const [x, y] = [new Float32Array(count), new Float32Array(count)];
  const [left, right] = [new Uint32Array(count), new Uint32Array(count)];
  for (let i = 0; i < count; i++) {
    const level = places.level[head[i]!]!;
    x[i] = deep ? level % across : starts[level]! + places.column[head[i]!]!;
    y[i] = (deep ? Math.floor(level / across) * row : 0) + places.slot[head[i]!]!;
    left[i] = deep ? x[i]! : starts[level]!;
    right[i] = deep ? x[i]! : starts[level]! + places.columns[level]! - 1;
  }
  let [columns, height] = [0, 0];
  for (let i = 0; i < count; i++) [columns, height] = [Math.max(columns, x[i]! + 1), Math.max(height, y[i]! + 1)];
  const { start: columnStart, other: byColumn } = links(columns, Uint32Array.from(x), upTo(count));
  for (let c = 0; c < columns; c++) {
    sortBy(byColumn.subarray(columnStart[c], columnStart[c + 1]), (node) => y[node]! / height);
  }
  const turn = new Uint32Array(count);
  byColumn.forEach((node, k) => (turn[node] = k));
  return { ...merged, turn, x, y, left, right, columns, height, columnStart, byColumn, row };
}

/** Folds chains where the layout did, and lists the tasks of each node. */
function mergeChains(from: Sketch, places: Places) {
  const { chain } = places;
  const now = Int32Array.from(from.first, () => -1);
  const head: number[] = [];
  if (chain) {
    for (let i = 0; i < chain.length; i++) if (chain[i] === i) now[i] = head.push(i) - 1;
    for (let i = 0; i < chain.length; i++) now[i] = now[chain[i]!]!;
  } else for (let i = 0; i < now.length; i++) now[i] = head.push(i) - 1;
  const node = Int32Array.from(from.node, (each) => (each < 0 ? -1 : now[each]!));
  const start = new Uint32Array(head.length + 1);
  for (const each of node) if (each >= 0) start[each + 1]!++;
  for (let i = 0; i < head.length; i++) start[i + 1]! += start[i]!;
  const next = start.slice();
  const members = new Uint32Array(start[head.length]!);
  node.forEach((each, task) => each >= 0 && (members[next[each]!++] = task));
  const kept = chain ? [...from.shape.edges.from.keys()].filter((k) => ends(k, 0) !== ends(k, 1)) : undefined;
  function ends(k: number, end: 0 | 1): number {
    return now[(end ? from.shape.edges.to : from.shape.edges.from)[k]!]!;
  }
  const edges = kept
    ? { from: Uint32Array.from(kept, (k) => ends(k, 0)), to: Uint32Array.from(kept, (k) => ends(k, 1)) }
    : from.shape.edges;
  return {
    node,
    head: Uint32Array.from(head),
    count: head.length,
    first: Uint32Array.from(head, (i) => from.first[i]!),
    folded: Int32Array.from(head, (i) => from.folded[i]!),
    some: from.folded.some((each) => each >= 0),
    start,
    members,
    edges,
  };
}

/** The node under a point of the world, or undefined: `near` is how far off (in columns, in slots) still counts. */
export function nodeAt(of: Scene, x: number, y: number, near: { x: number; y: number }): number | undefined {
  const column = Math.round(x);
  if (column < 0 || column >= of.columns || Math.abs(x - column) > near.x) return undefined;
  let [low, high] = [of.columnStart[column]!, of.columnStart[column + 1]!];
  const end = high;
  const begin = low;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of.y[of.byColumn[middle]!]! < y) low = middle + 1;
    else high = middle;
  }
  let best: number | undefined;
  for (const k of [low - 1, low]) {
    if (k < begin || k >= end) continue;
    const far = Math.abs(of.y[of.byColumn[k]!]! - y);
    if (far <= near.y && (best === undefined || far < Math.abs(of.y[best]! - y))) best = of.byColumn[k]!;
  }
  return best;
}
