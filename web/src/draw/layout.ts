/** Where each task of a graph stands: levels by longest path, an order in each that crosses few edges. */

import type { Edges } from "../model/graph.ts";

export interface Shape {
  readonly count: number;
  readonly edges: Edges;
  /** For each task a number of a group, -1 for none. Members stand side by side. */
  readonly group: Int32Array;
}

/** In units of one slot: level is x, slot is y; both from 0. */
export interface Places {
  readonly level: Uint32Array;
  readonly slot: Float32Array;
  readonly levels: number;
  /** The most slots of any level. */
  readonly height: number;
}
