/** Two graphs, task by task with the same label: what is slower, newly failed, changed, or in one of them alone. */

import type { Rows } from "../rows/port.ts";
import { text } from "./columns.ts";
import type { Graph } from "./graph.ts";
import { all } from "./load.ts";
import { CODE } from "./states.ts";
import { secondsRan } from "./times.ts";

export interface Pair {
  readonly label: string;
  /** Places in the first and the second graph. */
  readonly a: number;
  readonly b: number;
  /** How long its runs took. */
  readonly secondsA: number;
  readonly secondsB: number;
  /** Its definition, or what it requires, is another. */
  readonly changed: boolean;
}

export interface Compared {
  /** All with a label that both graphs have, by label. */
  readonly both: readonly Pair[];
  /** Places of the others in their graphs. */
  readonly onlyA: readonly number[];
  readonly onlyB: readonly number[];
  /** Those that failed, were cancelled or ended in an exception in the second graph, and did not in the first. */
  readonly newlyFailed: readonly Pair[];
  /** Those that completed in both and took longer in the second, by how much longer. */
  readonly slower: readonly Pair[];
  readonly changed: readonly Pair[];
}

const BAD: ReadonlySet<number> = new Set([CODE.failed, CODE.exception, CODE.cancelled] as number[]);

/** Throws `Trouble`. */
export async function compare(rowsA: Rows, a: Graph, rowsB: Rows, b: Graph): Promise<Compared> {
  const [before, after] = await Promise.all([digests(rowsA, a.id), digests(rowsB, b.id)]);
  const places = new Map(b.labels.map((label, place) => [label, place]));
  const both: Pair[] = [];
  const onlyA: number[] = [];
  a.labels.forEach((label, place) => {
    const other = places.get(label);
    if (other === undefined) return onlyA.push(place);
    const changed = before.get(a.ids[place] as string) !== after.get(b.ids[other] as string);
    places.delete(label);
    const times = { secondsA: secondsRan(a, place), secondsB: secondsRan(b, other) };
    return both.push({ label, a: place, b: other, ...times, changed });
  });
  both.sort((x, y) => (x.label < y.label ? -1 : 1));
  const isBad = (graph: Graph, place: number): boolean => BAD.has(graph.state[place] as number);
  const done = (graph: Graph, place: number): boolean => graph.state[place] === CODE.completed;
  return {
    both,
    onlyA,
    onlyB: [...places.values()],
    newlyFailed: both.filter((each) => isBad(b, each.b) && !isBad(a, each.a)),
    slower: both
      .filter((each) => done(a, each.a) && done(b, each.b) && each.secondsB > each.secondsA)
      .sort((x, y) => y.secondsB - y.secondsA - (x.secondsB - x.secondsA)),
    changed: both.filter((each) => each.changed),
  };
}

async function digests(rows: Rows, id: string): Promise<Map<string, string>> {
  const found = await all(rows, id, { start: "task:", end: "task;", select: ["digest"] });
  return new Map(found.map((row) => [row.key.slice(5), text(row, "digest")]));
}
