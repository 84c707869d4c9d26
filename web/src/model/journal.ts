/** The journal of a graph: gapless event rows, each with all facts of one commit. */

import { factsOf } from "../rows/facts.ts";
import type { Fact, Range, Rows } from "../rows/port.ts";
import { pages } from "../rows/port.ts";
import { eventKey } from "./ids.ts";

const PROBES = 20;
const PAGE_ROWS = 1_000;
const NEXT_ROWS = 100;
const AT_ONCE = 6;

export type Event = Fact;

/** Events from the row numbered `from` to that numbered `to`, in order; `to` may be Infinity. */
export async function events(rows: Rows, id: string, from: number, to: number): Promise<readonly Event[]> {
  const first = await rows.page(id, { ...range(from, to), limit: PAGE_ROWS });
  const found = first.rows.flatMap(factsOf);
  if (!first.next) return found;
  const next = Math.max(1, from) + PAGE_ROWS;
  const last = Number.isFinite(to) ? to : await lastEvent(rows, id, next - 1);
  const share = Math.max(PAGE_ROWS, Math.ceil((last - next + 1) / AT_ONCE));
  const parts: Promise<Event[]>[] = [];
  for (let start = next; start <= last; start += share) {
    parts.push(part(rows, id, start, Math.min(last, start + share - 1)));
  }
  return found.concat(...(await Promise.all(parts)));
}

async function part(rows: Rows, id: string, from: number, to: number): Promise<Event[]> {
  const found: Event[] = [];
  for await (const page of pages(rows, id, range(from, to))) found.push(...page.flatMap(factsOf));
  return found;
}

function range(from: number, to: number): Range {
  const end = Number.isFinite(to) ? eventKey(to + 1) : "event;";
  return { start: eventKey(Math.max(1, from)), end, select: ["sequence", "time", "events"] };
}

/**
 * The number of the last event row, 0 for none. Numbers have no gaps, so doubling steps find the end. known: of one
 * that is there.
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
