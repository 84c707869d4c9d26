/** The edges of a graph by the tasks at their ends. */

import type { Edges } from "./graph.ts";

/** Tasks beside each task: those of `place` stand in `list` from `start[place]` to `start[place + 1]`. */
export interface Beside {
  readonly start: Uint32Array;
  readonly list: Uint32Array;
}

export interface Adjacent {
  readonly before: Beside;
  readonly after: Beside;
}

const known = new WeakMap<Edges, Adjacent>();

/** Made once for each graph. */
export function adjacent(edges: Edges, count: number): Adjacent {
  const found = known.get(edges);
  if (found && found.before.start.length === count + 1) return found;
  const made = { before: beside(edges.to, edges.from, count), after: beside(edges.from, edges.to, count) };
  known.set(edges, made);
  return made;
}

export const besides = ({ start, list }: Beside, place: number): Uint32Array =>
  list.subarray(start[place] as number, start[place + 1] as number);

function beside(by: Uint32Array, other: Uint32Array, count: number): Beside {
  const start = new Uint32Array(count + 1);
  for (const place of by) (start[place + 1] as number)++;
  for (let place = 0; place < count; place++) (start[place + 1] as number) += start[place] as number;
  const next = start.slice(0, count);
  const list = new Uint32Array(by.length);
  for (let edge = 0; edge < by.length; edge++) {
    const place = by[edge] as number;
    list[next[place] as number] = other[edge] as number;
    (next[place] as number)++;
  }
  return { start, list };
}
