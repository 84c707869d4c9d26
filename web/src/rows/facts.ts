/** What journals say: each event row holds all facts of one commit. */

import type { Fact, Row } from "./port.ts";

/** The facts of an event row; none of one that is damaged, for `taskgraph doctor` to name. */
export function factsOf(row: Row): Fact[] {
  const { sequence, time, events } = row.columns;
  const number = typeof sequence === "number" ? sequence : Number(row.key.slice("event:".length));
  return listed(events).map(({ event, ...fields }, part) => ({
    sequence: number,
    part,
    time: String(time ?? ""),
    kind: String(event ?? ""),
    fields,
  }));
}

function listed(column: unknown): Record<string, unknown>[] {
  try {
    const found = JSON.parse(String(column || "[]")) as unknown;
    return Array.isArray(found) ? found.filter((each) => typeof each === "object" && each !== null) : [];
  } catch {
    return [];
  }
}

/** A fact as the API says it. */
export function saidFact(said: Readonly<Record<string, unknown>>): Fact {
  const { sequence, cursor, time, event, changed, ...fields } = said;
  void changed; // columns of rows: these are read
  const part = Number(String(cursor).split(".")[1] ?? 0);
  return { sequence: Number(sequence), part, time: String(time ?? ""), kind: String(event ?? ""), fields };
}
