/** Logical edges of tasks: what their rows require, through the joins that lie between. */

import type { Row } from "../rows/port.ts";
import { texts } from "./columns.ts";
import type { Edges } from "./graph.ts";
import { isRelay, isShared } from "./ids.ts";

/** More edges than this are thinned, where they lead through joins of groups: m tasks may require a group of n. */
export const EDGES_MAX = 3_000_000;

const THINNED_FROM = 10_000;

export interface Logical {
  readonly edges: Edges;
  readonly leftOut: number;
}

/** requires: the column of each task. joins: their rows. */
export function logical(ids: readonly string[], requires: readonly string[], joins: readonly Row[]): Logical {
  const places = new Map<string, number>();
  ids.forEach((id, place) => places.set(id, place));
  return new Looking(places, joins).look(requires);
}

class Looking {
  private readonly joins = new Map<string, readonly string[]>();
  private readonly behind = new Map<string, Uint32Array>();
  private readonly seen: Uint32Array;
  private looks = 0;

  constructor(
    private readonly places: ReadonlyMap<string, number>,
    joins: readonly Row[],
  ) {
    for (const row of joins) this.joins.set(row.key, texts(row, "requires"));
    this.seen = new Uint32Array(places.size);
  }

  look(requires: readonly string[]): Logical {
    const listed = requires.map(references);
    const count = this.count(listed);
    const thinned = count > EDGES_MAX ? this.users(listed) : new Map<string, number>();
    let from = new Uint32Array(Math.min(count, 1 << 20) + 1);
    let to = new Uint32Array(from.length);
    let size = 0;
    const first = new Set<string>();
    listed.forEach((references, place) => {
      const look = ++this.looks;
      const add = (required: number): void => {
        if (this.seen[required] === look) return;
        this.seen[required] = look;
        if (size === from.length) [from, to] = [doubled(from), doubled(to)];
        from[size] = required;
        to[size++] = place;
      };
      for (const reference of references) {
        const direct = this.places.get(reference);
        if (direct !== undefined) add(direct);
        else if (isRelay(reference)) {
          const behind = this.required(reference);
          if ((thinned.get(reference) ?? 0) * behind.length > THINNED_FROM && first.has(reference)) {
            if (behind.length) add(behind[0] as number);
          } else behind.forEach(add);
          first.add(reference);
        }
      }
    });
    const edges = { from: from.slice(0, size), to: to.slice(0, size) };
    return { edges, leftOut: thinned.size ? Math.max(0, count - size) : 0 };
  }

  /** Places of the tasks behind a join, each once. */
  private required(join: string): Uint32Array {
    const known = this.behind.get(join);
    if (known) return known;
    this.behind.set(join, new Uint32Array()); // a ring of joins, which only damage can make, ends here
    const found = new Set<number>();
    for (const reference of this.joins.get(join) ?? []) {
      const place = this.places.get(reference);
      if (place !== undefined) found.add(place);
      else if (isRelay(reference)) this.required(reference).forEach((each) => found.add(each));
    }
    const listed = Uint32Array.from(found);
    this.behind.set(join, listed);
    return listed;
  }

  private count(listed: readonly (readonly string[])[]): number {
    let count = 0;
    for (const references of listed) {
      for (const reference of references) count += isRelay(reference) ? this.required(reference).length : 1;
    }
    return count;
  }

  /** How many tasks require each join of a group. */
  private users(listed: readonly (readonly string[])[]): Map<string, number> {
    const users = new Map<string, number>();
    for (const references of listed) {
      for (const each of references) if (isShared(each)) users.set(each, (users.get(each) ?? 0) + 1);
    }
    return users;
  }
}

const NONE: readonly string[] = [];

function references(column: string): readonly string[] {
  if (column.length < 3) return NONE;
  try {
    const found = JSON.parse(column) as unknown;
    return Array.isArray(found) ? (found as string[]) : NONE;
  } catch {
    return NONE; // damaged: `taskgraph doctor` names it
  }
}

function doubled(array: Uint32Array<ArrayBuffer>): Uint32Array<ArrayBuffer> {
  const larger = new Uint32Array(array.length * 2);
  larger.set(array);
  return larger;
}
