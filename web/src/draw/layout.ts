/** Where each task of a graph stands: levels by longest path, an order in each that crosses few edges. */

import type { Edges } from "../model/graph.ts";
import { align } from "./align.ts";
import { Order } from "./order.ts";

export interface Shape {
  readonly count: number;
  readonly edges: Edges;
  /** For each task a number of a group, -1 for none. Members stand side by side. */
  readonly group: Int32Array;
  /** The slots of an earlier layout, NaN for what is new: what was there keeps its order. And its `rows`. */
  readonly before?: Float32Array;
  readonly rows?: number;
}

/** In units of one slot: level is x, slot is y; both from 0. */
export interface Places {
  readonly level: Uint32Array;
  readonly slot: Float32Array;
  readonly levels: number;
  /** The most slots of any level. */
  readonly height: number;
  /** Tasks that a level holds above each other; one that has more stands in columns side by side. */
  readonly rows: number;
  /** For each level its columns, and for each task the one that it stands in. */
  readonly columns: Uint16Array;
  readonly column: Uint16Array;
  /** Of a graph too deep to show: for each task the first of the chain that it is folded into, or itself. */
  readonly chain?: Uint32Array;
}

/** The other ends of each task's edges: those of `i` are `other[start[i]]` up to `other[start[i + 1]]`. */
export interface Links {
  readonly start: Uint32Array;
  readonly other: Uint32Array;
}

const DEEP = 400;
/** Shape of a cell (wide : high), and of a picture that is easy to look at. */
const CELL = 2.5;
const PICTURE = 1.6;
/** A graph that grows or shrinks keeps its rows until others are that much better. */
const OTHER = 1.6;

/** 0, 1, 2, … */
export function upTo(count: number): Uint32Array {
  const all = new Uint32Array(count);
  for (let i = 0; i < count; i++) all[i] = i;
  return all;
}

export function links(count: number, own: Uint32Array, others: Uint32Array): Links {
  const start = new Uint32Array(count + 1);
  for (let k = 0; k < own.length; k++) start[own[k]! + 1]!++;
  for (let i = 0; i < count; i++) start[i + 1]! += start[i]!;
  const next = start.slice(0, count);
  const other = new Uint32Array(own.length);
  for (let k = 0; k < own.length; k++) other[next[own[k]!]!++] = others[k]!;
  return { start, other };
}

export function layout(shape: Shape): Places {
  const { count, edges } = shape;
  const requires = links(count, edges.to, edges.from);
  const wanted = links(count, edges.from, edges.to);
  const level = levelsOf(count, requires, wanted);
  const levels = 1 + level.reduce((most, each) => Math.max(most, each), -1);
  if (levels > DEEP) {
    const folded = foldChains(shape, requires, wanted, level);
    if (folded) return folded;
  }
  return placed(shape, requires, wanted, level, levels);
}

function placed(shape: Shape, requires: Links, wanted: Links, level: Uint32Array, levels: number): Places {
  const order = new Order(shape, requires, wanted, level, levels);
  if (shape.before) order.insert(shape.before);
  else order.sweep();
  const sizes = Array.from({ length: levels }, (_, i) => order.start[i + 1]! - order.start[i]!);
  const good = rowsFor(sizes);
  const stays = shape.rows !== undefined && good < shape.rows * OTHER && good * OTHER > shape.rows;
  const rows = stays ? shape.rows! : good;
  const columns = Uint16Array.from(sizes, (size) => Math.ceil(size / rows));
  const { slot, height } = align(shape, stays ? shape.before : undefined, requires, wanted, order, columns);
  // Neighbours stand in columns side by side, each still at its own slot.
  const column = new Uint16Array(shape.count);
  order.tasks.forEach((task, i) => (column[task] = (i - order.start[level[task]!]!) % columns[level[task]!]!));
  return { level, slot, levels, height, rows, columns, column };
}

/** So many that the whole is wider than high: wide levels would else be long thin pillars. */
function rowsFor(sizes: readonly number[]): number {
  const wide = (size: number, rows: number): number => (size > rows ? Math.ceil(size / rows) + 1 : 1);
  const across = (rows: number): number => sizes.reduce((sum, size) => sum + wide(size, rows), 0);
  let [low, high] = [1, Math.max(1, ...sizes)];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (across(middle) * CELL <= middle * PICTURE) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The longest path to each task; roots stand just before the first task that needs them. */
function levelsOf(count: number, requires: Links, wanted: Links): Uint32Array {
  const level = new Uint32Array(count);
  const open = new Uint32Array(count);
  const queued = new Uint8Array(count);
  const queue = new Uint32Array(count);
  let end = 0;
  for (let i = 0; i < count; i++) {
    open[i] = requires.start[i + 1]! - requires.start[i]!;
    if (open[i] === 0) {
      queued[i] = 1;
      queue[end++] = i;
    }
  }
  let rest = 0;
  for (let head = 0; head < count; head++) {
    if (head === end) {
      // Folded groups may require each other: the first of them goes before the others.
      while (queued[rest]) rest++;
      queued[rest] = 1;
      queue[end++] = rest;
    }
    const at = queue[head]!;
    for (let k = wanted.start[at]!; k < wanted.start[at + 1]!; k++) {
      const next = wanted.other[k]!;
      if (queued[next]) continue;
      if (level[next]! <= level[at]!) level[next] = level[at]! + 1;
      if (--open[next]! === 0) {
        queued[next] = 1;
        queue[end++] = next;
      }
    }
  }
  pullRoots(count, requires, wanted, level);
  return level;
}

function pullRoots(count: number, requires: Links, wanted: Links, level: Uint32Array): void {
  for (let i = 0; i < count; i++) {
    if (requires.start[i] !== requires.start[i + 1] || wanted.start[i] === wanted.start[i + 1]) continue;
    let first = Infinity;
    for (let k = wanted.start[i]!; k < wanted.start[i + 1]!; k++) first = Math.min(first, level[wanted.other[k]!]!);
    level[i] = Math.max(first - 1, 0);
  }
}

/** A layout in which each chain of tasks (one edge in, one out) is one place; null where there is none. */
function foldChains(shape: Shape, requires: Links, wanted: Links, level: Uint32Array): Places | null {
  const { count, edges, group } = shape;
  const chain = upTo(count);
  const byLevel = Uint32Array.from(chain).sort((a, b) => level[a]! - level[b]! || a - b);
  for (const i of byLevel) {
    if (requires.start[i + 1]! - requires.start[i]! !== 1) continue;
    const one = requires.other[requires.start[i]!]!;
    if (wanted.start[one + 1]! - wanted.start[one]! === 1 && group[one] === group[i]) chain[i] = chain[one]!;
  }
  const place = new Uint32Array(count);
  let heads = 0;
  for (let i = 0; i < count; i++) if (chain[i] === i) place[i] = heads++;
  if (heads === count) return null;
  const from: number[] = [];
  const to: number[] = [];
  for (let k = 0; k < edges.from.length; k++) {
    const [a, b] = [chain[edges.from[k]!]!, chain[edges.to[k]!]!];
    if (a === b) continue;
    from.push(place[a]!);
    to.push(place[b]!);
  }
  const ofHeads = (_: number, i: number): boolean => chain[i] === i;
  const small = {
    count: heads,
    edges: { from: Uint32Array.from(from), to: Uint32Array.from(to) },
    group: group.filter(ofHeads),
    ...(shape.before ? { before: shape.before.filter(ofHeads) } : {}),
    ...(shape.rows ? { rows: shape.rows } : {}),
  };
  const before = links(heads, small.edges.to, small.edges.from);
  const after = links(heads, small.edges.from, small.edges.to);
  const smallLevel = levelsOf(heads, before, after);
  const levels = 1 + smallLevel.reduce((most, each) => Math.max(most, each), -1);
  const places = placed(small, before, after, smallLevel, levels);
  return {
    ...places,
    level: Uint32Array.from(chain, (head) => places.level[place[head]!]!),
    slot: Float32Array.from(chain, (head) => places.slot[place[head]!]!),
    column: Uint16Array.from(chain, (head) => places.column[place[head]!]!),
    chain,
  };
}
