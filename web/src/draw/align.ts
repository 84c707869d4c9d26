/** The slot of each task: as near to its neighbours as the order of its level and the room between tasks allow. */

import type { Links, Shape } from "./layout.ts";
import type { Order } from "./order.ts";

const ROUNDS = 3;
/** Between tasks of two groups. */
const GAP = 1.5;
/** How much rather a task stays where it was than it moves nearer to its neighbours. */
const STAY = 1000;
const ROOM = 1.1;

interface Slots {
  readonly slot: Float32Array;
  readonly height: number;
}

/** `before`: slots that tasks keep if they can. A level in several columns has slots that much nearer to each other. */
export function align(
  shape: Shape,
  before: Float32Array | undefined,
  requires: Links,
  wanted: Links,
  order: Order,
  columns: Uint16Array,
): Slots {
  const { tasks, start, levels } = order;
  const slot = new Float32Array(shape.count);
  const offset = offsets(shape, order, columns);
  let most = 0;
  for (let level = 0; level < levels; level++) most = Math.max(most, offset[start[level + 1]! - 1]!);
  const high = before ? Infinity : most * ROOM + 1;
  for (let level = 0; level < levels; level++) {
    const [begin, end] = [start[level]!, start[level + 1]!];
    const middle = (most - offset[end - 1]!) / 2;
    for (let i = begin; i < end; i++) slot[tasks[i]!] = middle + offset[i]!;
  }
  before?.forEach((old, task) => {
    if (!Number.isNaN(old)) slot[task] = old;
  });
  const fit = new Fit(before, order, offset, slot, high);
  if (before) {
    for (let level = 0; level < levels; level++) fit.level(level, requires);
  } else {
    for (let round = 0; round < ROUNDS; round++) {
      for (let level = 0; level < levels; level++) fit.level(level, requires);
      for (let level = levels - 1; level >= 0; level--) fit.level(level, wanted);
    }
  }
  let [least, top] = [Infinity, -1];
  for (const each of slot) [least, top] = [Math.min(least, each), Math.max(top, each)];
  if (before) least = 0;
  for (let i = 0; i < slot.length; i++) slot[i]! -= least;
  return { slot, height: shape.count ? Math.ceil(top - least + 1) : 0 };
}

/** For each place in `order.tasks` how far it is at least from the first of its level. */
function offsets(shape: Shape, order: Order, columns: Uint16Array): Float64Array {
  const offset = new Float64Array(shape.count);
  for (let level = 0; level < order.levels; level++) {
    for (let i = order.start[level]! + 1; i < order.start[level + 1]!; i++) {
      const same = shape.group[order.tasks[i]!] === shape.group[order.tasks[i - 1]!];
      offset[i] = offset[i - 1]! + (same ? 1 : GAP) / columns[level]!;
    }
  }
  return offset;
}

/** Least squares under the order of a level: neighbours that want to overlap are pooled into blocks. */
class Fit {
  private readonly mean: Float64Array;
  private readonly weight: Float64Array;
  private readonly length: Uint32Array;

  constructor(
    private readonly before: Float32Array | undefined,
    private readonly order: Order,
    private readonly offset: Float64Array,
    private readonly slot: Float32Array,
    private readonly high: number,
  ) {
    let most = 0;
    for (let i = 0; i < order.levels; i++) most = Math.max(most, order.start[i + 1]! - order.start[i]!);
    this.mean = new Float64Array(most);
    this.weight = new Float64Array(most);
    this.length = new Uint32Array(most);
  }

  level(level: number, links: Links): void {
    const { order, offset, slot, mean, weight, length, before } = this;
    const [begin, end] = [order.start[level]!, order.start[level + 1]!];
    let blocks = 0;
    for (let i = begin; i < end; i++) {
      const task = order.tasks[i]!;
      const [first, last] = [links.start[task]!, links.start[task + 1]!];
      let wish = slot[task]!;
      let heavy = 0.1;
      if (before && !Number.isNaN(before[task]!)) heavy = STAY;
      else if (last > first) {
        let sum = 0;
        for (let k = first; k < last; k++) sum += slot[links.other[k]!]!;
        wish = sum / (last - first);
        heavy = Math.sqrt(last - first);
      }
      mean[blocks] = wish - offset[i]!;
      weight[blocks] = heavy;
      length[blocks++] = 1;
      while (blocks > 1 && mean[blocks - 2]! > mean[blocks - 1]!) {
        const [a, b] = [blocks - 2, blocks - 1];
        const both = weight[a]! + weight[b]!;
        mean[a] = (mean[a]! * weight[a]! + mean[b]! * weight[b]!) / both;
        weight[a] = both;
        length[a]! += length[b]!;
        blocks--;
      }
    }
    const room = this.high - offset[end - 1]!;
    for (let block = 0, i = begin; block < blocks; block++) {
      const base = Math.max(0, Math.min(mean[block]!, room));
      for (let k = 0; k < length[block]!; k++, i++) slot[order.tasks[i]!] = base + offset[i]!;
    }
  }
}
