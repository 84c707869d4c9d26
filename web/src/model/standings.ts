/** How groups stand that need only some of their tasks, by the rows that count for them. */

import { pages, type Row, type Rows } from "../rows/port.ts";
import { text, whole } from "./columns.ts";

/** `decided`: `succeeded`, `failed`, or "" while it is open. */
export interface Standing {
  readonly group: string;
  readonly ok: number;
  readonly bad: number;
  readonly needs: number;
  readonly of: number;
  readonly decided: string;
  readonly cancels: boolean;
}

function standing(row: Row): Standing {
  const [ok, bad, needs, of] = ["ok", "bad", "needs", "of"].map((name) => whole(row, name)) as [
    number,
    number,
    number,
    number,
  ];
  const decided = ok >= needs ? "succeeded" : of - bad < needs ? "failed" : "";
  return { group: text(row, "label"), ok, bad, needs, of, decided, cancels: text(row, "rest") !== "" };
}

/** Of all groups of a graph that have such a rule. */
export async function standings(rows: Rows, graph: string): Promise<readonly Standing[]> {
  const keys: string[] = [];
  for await (const page of pages(rows, graph, { start: "group:", end: "group;", select: ["tally"] })) {
    keys.push(...page.map((row) => text(row, "tally")).filter(Boolean));
  }
  const found = await rows.get(graph, keys);
  return found.filter((row) => row !== null).map(standing);
}
