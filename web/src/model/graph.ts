/** A graph in memory: its tasks in columns, so that 100,000 of them fit and are quick to walk. */

import type { Row } from "../rows/port.ts";

/** Requirements: task `from[k]` must complete before `to[k]`. Tasks are named by their place in `Graph.ids`. */
export interface Edges {
  readonly from: Uint32Array;
  readonly to: Uint32Array;
}

/** One try of a task that is over, as in the column `runs`. */
export interface Run {
  readonly run: number;
  readonly outcome: string;
  readonly worker?: string;
  readonly started?: string;
  readonly ended?: string;
  readonly reason?: string;
  readonly exitCode?: number;
}

export interface Graph {
  readonly id: string;
  /** The row `task-graph`. */
  readonly header: Row;
  /** TaskIds, in the order of the keys of rows; then by the same place: */
  readonly ids: readonly string[];
  readonly labels: readonly string[];
  /** Codes of `TASK_STATES`. */
  readonly state: Uint8Array;
  readonly run: Uint16Array;
  readonly target: readonly string[];
  readonly worker: readonly string[];
  /** Milliseconds since 1970, NaN where the task has none. */
  readonly pendingSince: Float64Array;
  readonly started: Float64Array;
  readonly ended: Float64Array;
  /** When the end of the last run was written down. */
  readonly resolved: Float64Array;
  /** 1: something holds the task back (a pause, a limit). */
  readonly held: Uint8Array;
  readonly runs: ReadonlyMap<number, readonly Run[]>;
  /** Names of groups, and for each task the first of its groups, -1 for none. */
  readonly groups: readonly string[];
  readonly group: Int32Array;
  readonly edges: Edges;
  /** Edges through joins of groups that are left out, as there are too many: 0 but of graphs with millions of edges. */
  readonly edgesLeftOut: number;
  /** The number of the last event that this shows. */
  readonly event: number;
}
