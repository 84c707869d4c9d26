/** How many tasks ran, will run, were ready and were held back over time; and when work was held back by a pause. */

import type { Fact } from "../rows/port.ts";
import { moment } from "./columns.ts";
import { lasts, type Spans } from "./times.ts";

/** Averages over pieces of time of the same length; `times` has their beginnings, in milliseconds since 1970. */
export interface Busy {
  readonly times: readonly number[];
  readonly running: readonly number[];
  /** Ready, and waiting for a worker. */
  readonly ready: readonly number[];
  /** Ready, but held back now. */
  readonly held: readonly number[];
  /** Running by a forecast, after `now`. */
  readonly expected: readonly number[];
}

/** Sums of lengths of time by pieces, of intervals that come in any order; each takes the same time to add. */
class Sums {
  private readonly part: Float64Array;
  private readonly steps: Float64Array;

  constructor(private readonly count: number) {
    this.part = new Float64Array(count + 1);
    this.steps = new Float64Array(count + 2);
  }

  /** In pieces, from the beginning. */
  add(from: number, to: number): void {
    const [first, last] = [Math.floor(from), Math.min(this.count, Math.floor(to))];
    if (first === last) {
      this.part[first]! += to - from;
      return;
    }
    this.part[first]! += first + 1 - from;
    this.part[last]! += to - last;
    this.steps[first + 1]!++;
    this.steps[last]!--;
  }

  all(): number[] {
    let whole = 0;
    return Array.from({ length: this.count }, (_, piece) => {
      whole += this.steps[piece]!;
      return whole + this.part[piece]!;
    });
  }
}

/** now: until when what has no end goes on. */
export function busy(all: Spans, now: number, pieces: number): Busy {
  let [zero, last] = [Infinity, -Infinity];
  for (let span = 0; span < all.count; span++) {
    const [ready, start] = [all.ready[span]!, all.start[span]!];
    const begins = ready <= start || Number.isNaN(start) ? ready : start;
    zero = Math.min(zero, all.outcome[span] === "expected" ? Math.min(now, all.expectedStart[span]!) : begins);
    last = Math.max(last, lasts(all, span, now));
  }
  if (!(last > zero)) return { times: [], running: [], ready: [], held: [], expected: [] };
  const size = (last - zero) / pieces;
  const [running, ready, held, expected] = [0, 0, 0, 0].map(() => new Sums(pieces)) as [Sums, Sums, Sums, Sums];
  const add = (sums: Sums, from: number, to: number): void => {
    if (to > from) sums.add((from - zero) / size, (Math.min(to, last) - zero) / size);
  };
  for (let span = 0; span < all.count; span++) {
    const start = all.start[span]!;
    add(expected, Math.max(now, all.expectedStart[span]!), all.expectedEnd[span]!);
    if (all.outcome[span] === "expected") continue;
    const waits = all.outcome[span] === "held" ? held : ready;
    add(waits, all.ready[span]!, Number.isNaN(start) ? now : start);
    add(running, start, all.end[span] || now);
  }
  const times = Array.from({ length: pieces }, (_, piece) => zero + piece * size);
  return { times, running: running.all(), ready: ready.all(), held: held.all(), expected: expected.all() };
}

export interface Hold {
  /** "" for the whole graph; a group, or how many tasks. */
  readonly of: string;
  readonly from: number;
  /** NaN while it lasts. */
  readonly to: number;
}

/** Pauses of the graph and of groups, as its journal says. */
export function holdsOf(facts: readonly Fact[]): readonly Hold[] {
  const open = new Map<string, number>();
  const found: Hold[] = [];
  for (const { kind, fields, time } of facts) {
    const of = String(fields.group ?? "");
    if (kind === "graph-paused" && !fields.labels) {
      if (!open.has(of)) open.set(of, moment(time));
    } else if (kind === "graph-resumed" && !fields.labels && open.has(of)) {
      found.push({ of, from: open.get(of)!, to: moment(time) });
      open.delete(of);
    }
  }
  for (const [of, from] of open) found.push({ of, from, to: Number.NaN });
  return found.sort((a, b) => a.from - b.from);
}
