/** The journal of a graph: gapless event rows, each with all facts of one commit. */

import type { Row, Rows } from "../rows/port.ts";
import { pages } from "../rows/port.ts";
import { objects, text, whole } from "./columns.ts";
import { eventKey } from "./ids.ts";

const PROBES = 20;
const PAGE_ROWS = 1_000;
const NEXT_ROWS = 100;

export interface Event {
  /** Number of its row, and its place in that, from 0: `sequence.part` is its cursor. */
  readonly sequence: number;
  readonly part: number;
  /** RFC 3339. */
  readonly time: string;
  /** Such as `task-completed`. */
  readonly kind: string;
  /** `task`, `label`, `run`, `reason`, `because`, … */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Events from the row numbered `from` to that numbered `to`, in order; `to` may be Infinity. */
export async function events(rows: Rows, id: string, from: number, to: number): Promise<readonly Event[]> {
  const end = Number.isFinite(to) ? eventKey(to + 1) : "event;";
  const found: Event[] = [];
  for await (const page of pages(rows, id, { start: eventKey(Math.max(1, from)), end })) {
    for (const row of page) found.push(...eventsOf(row));
  }
  return found;
}

export function eventsOf(row: Row): Event[] {
  const sequence = whole(row, "sequence") || Number(row.key.slice(6));
  return objects(row, "events").map(({ event, ...fields }, part) => ({
    sequence,
    part,
    time: text(row, "time"),
    kind: String(event ?? ""),
    fields,
  }));
}

/**
 * The number of the last event row, 0 for none. Numbers have no gaps, so doubling steps find the end. known: of one that
 * is there.
 */
export async function lastEvent(rows: Rows, id: string, known = 0): Promise<number> {
  let last = known;
  for (;;) {
    const limit = known ? NEXT_ROWS : PAGE_ROWS;
    const page = await rows.page(id, { start: eventKey(last + 1), end: "event;", select: ["sequence"], limit });
    const end = page.rows.at(-1);
    if (end) last = Number(end.key.slice(6));
    if (!page.next) return last;
    const numbers = Array.from({ length: PROBES }, (_, step) => last + 2 ** step);
    const found = await rows.get(id, numbers.map(eventKey));
    numbers.forEach((number, place) => {
      if (found[place]) last = Math.max(last, number);
    });
  }
}
