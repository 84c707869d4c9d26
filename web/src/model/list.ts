/** Graphs of a store, the newest first, with the state that each has now. */

import type { Row, Rows } from "../rows/port.ts";
import { pages } from "../rows/port.ts";
import { object, text, texts, time, whole } from "./columns.ts";
import { GRAPH } from "./ids.ts";

const PAGE_GRAPHS = 50;
const PAGE_ROWS = 1_000;

export interface Listed {
  readonly id: string;
  /** "" for none. */
  readonly name: string;
  /** As on its row; `paused` of one that would run otherwise; `missing` where there is no row. */
  readonly state: string;
  readonly tasks: number;
  readonly failed: number;
  readonly skipped: number;
  /** Milliseconds since 1970, NaN for none. */
  readonly created: number;
  readonly ended: number;
  readonly schedule: string;
  readonly tags: Readonly<Record<string, unknown>>;
  /** Why it is marked as standing still, "" if it is not. */
  readonly stalled: string;
  readonly blockedBy: string;
  readonly header: Row | null;
}

export interface Wanted {
  readonly state?: string;
  /** In its name or its id, in any case of letters. */
  readonly match?: string;
  readonly schedule?: string;
  /** KEY, or KEY=VALUE. */
  readonly tags?: readonly string[];
  /** Milliseconds since 1970. */
  readonly since?: number;
}

/** Pages of graphs; they may be of any size, and empty. Throws `Trouble`. */
export async function* graphs(rows: Rows, wanted: Wanted = {}): AsyncGenerator<readonly Listed[]> {
  const filtered = Object.values(wanted).some((each) => each !== undefined && each !== "");
  const where = wanted.schedule ? { schedule: [wanted.schedule] } : {};
  const limit = filtered ? PAGE_ROWS : PAGE_GRAPHS;
  for await (const index of pages(rows, "index:graphs", { limit, where })) {
    for (let start = 0; start < index.length; start += PAGE_GRAPHS) {
      const near = index.slice(start, start + PAGE_GRAPHS).filter((row) => mayBe(row, wanted));
      const found = await Promise.all(near.map((row) => listed(rows, text(row, "graph"), row)));
      yield found.filter((each) => isThere(each) && is(each, wanted));
    }
    const last = index.at(-1);
    if (wanted.since && last && time(last, "created") < wanted.since) return; // the newest come first
  }
}

export async function listed(rows: Rows, id: string, index?: Row): Promise<Listed> {
  const [header] = await rows.get(id, [GRAPH]);
  return asListed(id, header ?? null, index);
}

export function asListed(id: string, header: Row | null, index?: Row): Listed {
  const row = header ?? { key: GRAPH, columns: {} };
  const state = header ? text(row, "state") : "missing";
  const ended = time(row, "finished");
  const named = object(row, "metadata").name;
  const over = state === "finished" || state === "cancelled";
  return {
    id,
    name: index ? text(index, "name") : typeof named === "string" ? named : "",
    state: state === "running" && texts(row, "held").includes("paused") ? "paused" : state,
    tasks: whole(row, "tasks"),
    failed: whole(row, "failedTasks"),
    skipped: whole(row, "skippedTasks"),
    created: time(index ?? row, "created"),
    ended: Number.isNaN(ended) ? time(row, "cancelled") : ended,
    schedule: text(index ?? row, "schedule") || text(row, "schedule"),
    tags: object(row, "tags"),
    stalled: over ? "" : text(row, "stalledBecause"),
    blockedBy: text(row, "blockedBy"),
    header,
  };
}

function mayBe(index: Row, { match = "", since = -Infinity }: Wanted): boolean {
  const named = `${text(index, "name")}\n${text(index, "graph")}`.toLowerCase();
  return named.includes(match.toLowerCase()) && !(time(index, "created") < since);
}

/** A submission may have listed it, and died before it had written it. */
function isThere({ header, created }: Listed): boolean {
  return header !== null && time(header, "created") === created;
}

function is(graph: Listed, { state, tags = [] }: Wanted): boolean {
  if (state && graph.state !== state) return false;
  return tags.every((tag) => {
    const [key = "", ...value] = tag.split("=");
    return key in graph.tags && (!value.length || String(graph.tags[key]) === value.join("="));
  });
}
