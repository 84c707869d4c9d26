/** Logical edges of tasks: what their rows require, through the joins that lie between. */

import type { Row } from "../rows/port.ts";
import { text } from "./columns.ts";
import type { Edges } from "./graph.ts";
import { isRelay } from "./ids.ts";
import { Places } from "./places.ts";

/** More edges than this are thinned, where they lead through joins of groups: m tasks may require a group of n. */
export const EDGES_MAX = 3_000_000;

const THINNED_FROM = 10_000;

export interface Logical {
  readonly edges: Edges;
  readonly leftOut: number;
}

/** requires: the column of each task. joins: their rows. */
export function logical(ids: readonly string[], requires: readonly string[], joins: readonly Row[]): Logical {
  return new Looking(ids, joins).look(requires);
}

class Looking {
  private readonly places: Places;
  private readonly joins = new Map<string, string>();
  private readonly behind = new Map<string, Uint32Array>();
  private readonly seen: Uint32Array;
  private from = new Uint32Array(1 << 16);
  private to = new Uint32Array(1 << 16);
  private size = 0;

  constructor(ids: readonly string[], joins: readonly Row[]) {
    this.places = new Places(ids);
    for (const row of joins) this.joins.set(row.key, text(row, "requires"));
    this.seen = new Uint32Array(ids.length);
  }

  look(requires: readonly string[]): Logical {
    const users = this.joins.size ? this.users(requires) : new Map<string, number>();
    let count = 0;
    users.forEach((number, join) => (count += number * this.required(join).length));
    const thin = count > EDGES_MAX;
    const passed = new Set<string>();
    requires.forEach((list, place) => {
      const add = (required: number): void => this.add(required, place);
      this.places.each(list, add, (reference) => {
        if (!isRelay(reference)) return;
        const behind = this.required(reference);
        const many = thin && (users.get(reference) ?? 0) * behind.length > THINNED_FROM;
        if (many && passed.has(reference) && behind.length) add(behind[0] as number);
        else behind.forEach(add);
        passed.add(reference);
      });
    });
    const edges = { from: this.from.slice(0, this.size), to: this.to.slice(0, this.size) };
    return { edges, leftOut: thin ? this.leftOut(users) : 0 };
  }

  private add(required: number, place: number): void {
    if (this.seen[required] === place + 1) return;
    this.seen[required] = place + 1;
    if (this.size === this.from.length) [this.from, this.to] = [doubled(this.from), doubled(this.to)];
    this.from[this.size] = required;
    this.to[this.size++] = place;
  }

  /** Places of the tasks behind a join, each once. */
  private required(join: string): Uint32Array {
    const known = this.behind.get(join);
    if (known) return known;
    this.behind.set(join, new Uint32Array()); // a ring of joins, which only damage can make, ends here
    const found = new Set<number>();
    this.places.each(
      this.joins.get(join) ?? "",
      (place) => found.add(place),
      (reference) => isRelay(reference) && this.required(reference).forEach((each) => found.add(each)),
    );
    const listed = Uint32Array.from(found);
    this.behind.set(join, listed);
    return listed;
  }

  /** How many tasks require each join. */
  private users(requires: readonly string[]): Map<string, number> {
    const users = new Map<string, number>();
    const count = (reference: string): void => {
      if (isRelay(reference)) users.set(reference, (users.get(reference) ?? 0) + 1);
    };
    for (const list of requires) if (list.includes("join:")) this.places.each(list, () => undefined, count);
    return users;
  }

  private leftOut(users: ReadonlyMap<string, number>): number {
    let left = 0;
    users.forEach((number, join) => {
      const { length } = this.required(join);
      if (number * length > THINNED_FROM) left += (number - 1) * (length - 1);
    });
    return left;
  }
}

function doubled(array: Uint32Array<ArrayBuffer>): Uint32Array<ArrayBuffer> {
  const larger = new Uint32Array(array.length * 2);
  larger.set(array);
  return larger;
}
