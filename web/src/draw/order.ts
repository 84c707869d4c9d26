/** The order of tasks in each level: sweeps by median and mean of their neighbours, while fewer edges cross. */

import type { Links, Shape } from "./layout.ts";

/** Rounds from each beginning, and then from the best of them, by how many edges there are. */
const ROUNDS = [
  { edges: 20_000, first: 2, then: 14 },
  { edges: 100_000, first: 1, then: 6 },
  { edges: Infinity, first: 1, then: 3 },
];
const PATIENCE = 6;
const SAMPLE = 20_000;

/** Sorts `list` by `key` (0 ≤ key < 1), ties by what came first in it. Numbers alone sort fast. */
export function sortBy(list: Uint32Array, key: (task: number) => number): void {
  const count = list.length;
  const room = 2 ** Math.ceil(Math.log2(count + 1));
  const fine = 2 ** 51 / room;
  const packed = new Float64Array(count);
  for (let i = 0; i < count; i++) packed[i] = Math.floor(key(list[i]!) * fine) * room + i;
  packed.sort();
  const old = list.slice();
  for (let i = 0; i < count; i++) list[i] = old[packed[i]! % room]!;
}

interface Found {
  readonly crossings: number;
  readonly tasks: Uint32Array;
}

export class Order {
  /** Tasks by level, each level in its order. */
  readonly tasks: Uint32Array;
  /** Where each level begins in `tasks`. */
  readonly start: Uint32Array;
  /** Of each task its place in its level, from 0 to 1. */
  readonly at: Float64Array;
  private readonly key: Float64Array;
  private readonly sample: Uint32Array;
  private readonly grouped: boolean;
  private readonly rank: Float64Array;

  constructor(
    private readonly shape: Shape,
    private readonly requires: Links,
    private readonly wanted: Links,
    private readonly level: Uint32Array,
    readonly levels: number,
  ) {
    const { count, edges, group } = shape;
    this.start = new Uint32Array(levels + 1);
    for (let i = 0; i < count; i++) this.start[level[i]! + 1]!++;
    for (let i = 0; i < levels; i++) this.start[i + 1]! += this.start[i]!;
    const next = this.start.slice(0, levels);
    this.tasks = new Uint32Array(count);
    for (let i = 0; i < count; i++) this.tasks[next[level[i]!]!++] = i;
    this.at = new Float64Array(count);
    this.key = new Float64Array(count);
    this.grouped = group.some((each) => each >= 0);
    this.rank = new Float64Array(group.reduce((most, each) => Math.max(most, each), -1) + 1);
    for (let i = 0; i < levels; i++) this.number(i);
    const stride = Math.max(1, Math.ceil(edges.from.length / SAMPLE));
    const sample = [];
    for (let k = 0; k < edges.from.length; k += stride) sample.push(k);
    this.sample = Uint32Array.from(sample).sort((a, b) => level[edges.to[a]!]! - level[edges.to[b]!]! || a - b);
  }

  /** Sweeps down and up from the better of three beginnings, and keeps the order with the fewest crossings. */
  sweep(): void {
    const { first, then } = ROUNDS.find((each) => this.shape.edges.from.length <= each.edges)!;
    const given = Float64Array.from({ length: this.shape.count }, (_, i) => i);
    let chosen: Found = { crossings: Infinity, tasks: this.tasks.slice() };
    for (const key of [given, this.walk(true), this.walk(false)]) {
      this.begin(key);
      const found = this.rounds(first);
      if (found.crossings < chosen.crossings) chosen = found;
    }
    this.take(chosen.tasks);
    const found = this.rounds(then);
    this.take((found.crossings < chosen.crossings ? found : chosen).tasks);
  }

  private rounds(rounds: number): Found {
    let best: Found = { crossings: this.crossings(), tasks: this.tasks.slice() };
    let worse = 0;
    const count = (): void => {
      const crossings = this.crossings();
      worse++;
      if (crossings < best.crossings) {
        best = { crossings, tasks: this.tasks.slice() };
        worse = 0;
      }
    };
    for (let round = 0; round < rounds && worse < PATIENCE && best.crossings > 0; round++) {
      const byMedian = round % 4 < 2;
      for (let i = 0; i < this.levels; i++) this.settle(i, this.requires, byMedian);
      count();
      for (let i = this.levels - 1; i >= 0; i--) this.settle(i, this.wanted, byMedian);
      count();
    }
    return best;
  }

  private begin(key: Float64Array): void {
    const { tasks, start, levels } = this;
    for (let i = 0; i < key.length; i++) this.key[i] = key[i]! / key.length;
    for (let level = 0; level < levels; level++) this.sort(tasks.subarray(start[level], start[level + 1]));
    this.take(tasks);
  }

  private take(tasks: Uint32Array): void {
    this.tasks.set(tasks);
    for (let i = 0; i < this.levels; i++) this.number(i);
  }

  /** For each task its turn in a walk over edges both ways: deep, or wide from the last task of a deep one. */
  private walk(deep: boolean): Float64Array {
    const { count } = this.shape;
    const turn = new Float64Array(count).fill(-1);
    const list = new Uint32Array(count + 2 * this.shape.edges.from.length);
    const seeds = deep ? this.tasks : this.tasks.slice().reverse();
    let next = 0;
    for (const seed of seeds) {
      if (turn[seed]! >= 0) continue;
      let [head, tail] = [0, 0];
      list[tail++] = seed;
      while (head < tail) {
        const at = deep ? list[--tail]! : list[head++]!;
        if (turn[at]! >= 0) continue;
        turn[at] = next++;
        for (const { start, other } of [this.requires, this.wanted]) {
          for (let k = start[at]!; k < start[at + 1]!; k++) if (turn[other[k]!]! < 0) list[tail++] = other[k]!;
        }
      }
    }
    return turn;
  }

  /** Keeps the order of tasks that had slots; puts new ones between them, near what they require. */
  insert(before: Float32Array): void {
    const high = 2 + before.reduce((most, each) => (each > most ? each : most), 0);
    const { key, at } = this;
    for (let i = 0; i < at.length; i++) at[i] = Number.isNaN(before[i]!) ? NaN : (before[i]! + 0.5) / high;
    for (let level = 0; level < this.levels; level++) {
      const tasks = this.tasks.subarray(this.start[level], this.start[level + 1]);
      for (const task of tasks) {
        if (Number.isNaN(at[task]!)) at[task] = this.mean(task, this.requires, 0.999);
        key[task] = at[task]!;
      }
      this.sort(tasks);
    }
  }

  /** Pairs of sampled edges that enter the same level and cross. */
  crossings(): number {
    const { from, to } = this.shape.edges;
    const { sample, level, at } = this;
    let sum = 0;
    for (let begin = 0, end = 0; begin < sample.length; begin = end) {
      const target = level[to[sample[begin]!]!]!;
      while (end < sample.length && level[to[sample[end]!]!]! === target) end++;
      const size = this.start[target + 1]! - this.start[target]!;
      const packed = new Float64Array(end - begin);
      const room = 2 ** Math.ceil(Math.log2(size + 1));
      for (let k = begin; k < end; k++) {
        const place = Math.floor(at[to[sample[k]!]!]! * size);
        packed[k - begin] = Math.floor(at[from[sample[k]!]!]! * (2 ** 51 / room)) * room + place;
      }
      packed.sort();
      sum += inversions(packed, room, size);
    }
    return sum;
  }

  private number(level: number): void {
    const [begin, end] = [this.start[level]!, this.start[level + 1]!];
    for (let i = begin; i < end; i++) this.at[this.tasks[i]!] = (i - begin + 0.5) / (end - begin);
  }

  private settle(level: number, links: Links, byMedian: boolean): void {
    const tasks = this.tasks.subarray(this.start[level], this.start[level + 1]);
    for (const task of tasks) {
      this.key[task] = byMedian ? this.median(task, links) : this.mean(task, links, this.at[task]!);
    }
    this.sort(tasks);
    this.number(level);
  }

  private mean(task: number, links: Links, none: number): number {
    const [begin, end] = [links.start[task]!, links.start[task + 1]!];
    if (begin === end) return none;
    let sum = 0;
    for (let k = begin; k < end; k++) sum += this.at[links.other[k]!]!;
    return sum / (end - begin);
  }

  private median(task: number, links: Links): number {
    const [begin, end] = [links.start[task]!, links.start[task + 1]!];
    const count = end - begin;
    if (count < 3) return this.mean(task, links, this.at[task]!);
    const all = new Float64Array(count);
    for (let k = begin; k < end; k++) all[k - begin] = this.at[links.other[k]!]!;
    all.sort();
    const half = count >> 1;
    return count % 2 ? all[half]! : (all[half - 1]! + all[half]!) / 2;
  }

  /** By key; with groups by the mean of each group first. */
  private sort(tasks: Uint32Array): void {
    const { key, rank, shape } = this;
    if (!this.grouped) {
      sortBy(tasks, (task) => key[task]!);
      return;
    }
    const sums = new Map<number, [number, number]>();
    for (const task of tasks) {
      const group = shape.group[task]!;
      if (group < 0) continue;
      const [sum, count] = sums.get(group) ?? [0, 0];
      sums.set(group, [sum + key[task]!, count + 1]);
    }
    const single = (task: number): boolean => shape.group[task]! < 0;
    const units = Uint32Array.from([...sums.keys(), ...[...tasks].filter(single).map((task) => rank.length + task)]);
    const mean = (unit: number): number => {
      if (unit >= rank.length) return key[unit - rank.length]!;
      const [sum, count] = sums.get(unit)!;
      return sum / count;
    };
    sortBy(units, mean);
    units.forEach((unit, place) => {
      if (unit < rank.length) rank[unit] = place;
      else key[unit - rank.length] = place;
    });
    const all = units.length;
    sortBy(tasks, (task) => (single(task) ? key[task]! : rank[shape.group[task]!]! + key[task]! * 0.999) / all);
  }
}

/** Of numbers sorted by what is above `room`: pairs whose rest falls, by a Fenwick tree. */
function inversions(packed: Float64Array, room: number, size: number): number {
  const tree = new Uint32Array(size + 1);
  let sum = 0;
  for (let i = 0; i < packed.length; i++) {
    const place = packed[i]! % room;
    let notAfter = 0;
    for (let k = place + 1; k > 0; k -= k & -k) notAfter += tree[k]!;
    sum += i - notAfter;
    for (let k = place + 1; k <= size; k += k & -k) tree[k]!++;
  }
  return sum;
}
