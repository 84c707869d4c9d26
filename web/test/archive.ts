/** Rows for tests: an archive made of them, as the page opens it. */

import { gzipSync } from "node:zlib";
import { ArchiveRows } from "../src/rows/archive.ts";
import type { Value } from "../src/rows/port.ts";

export type Columns = Readonly<Record<string, Value | { readonly time: string }>>;

export const GRAPH = "test";

/** rows: by their keys. more: lines behind them, before the end. */
export function archive(rows: Readonly<Record<string, Columns>>, more: readonly unknown[] = []): Promise<ArchiveRows> {
  return ArchiveRows.open(file(rows, more));
}

export function file(rows: Readonly<Record<string, Columns>>, more: readonly unknown[] = [], end = true): Blob {
  const keys = Object.keys(rows).sort();
  const lines: unknown[] = [
    { archive: "taskgraph", format: 1, graph: GRAPH, state: "finished" },
    ...keys.map((row) => ({ row, columns: rows[row] })),
    ...more,
  ];
  if (end) lines.push({ end: { rows: keys.length, logs: 0, complete: true, sha256: "" } });
  return new Blob([gzipSync(lines.map((each) => `${JSON.stringify(each)}\n`).join(""))]);
}

/** TaskIds of 22 characters. */
export const idOf = (number: number): string => `T${String(number).padStart(21, "0")}`;

const taskColumns = (number: number, requires: readonly string[]): Columns => ({
  label: `task ${number}`,
  state: "unscheduled",
  run: 0,
  requires: JSON.stringify(requires),
});

/** A graph whose task n requires these references. more: further rows, and columns that tasks have beside. */
export function graphRows(
  requires: readonly (readonly string[])[],
  more: Readonly<Record<string, Columns>> = {},
): Record<string, Columns> {
  const rows: Record<string, Columns> = { "task-graph": { state: "running", tasks: requires.length } };
  requires.forEach((each, number) => (rows[`task:${idOf(number)}`] = taskColumns(number, each)));
  for (const [key, columns] of Object.entries(more)) rows[key] = { ...rows[key], ...columns };
  return rows;
}
