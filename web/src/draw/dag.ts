/** A graph as tasks and edges on a canvas. */

import type { Graph } from "../model/graph.ts";

export interface DagOptions {
  /** Only this task and what is at most `depth` edges away from it. */
  readonly focus?: number;
  readonly depth?: number;
  /** Names of groups that are drawn as one. */
  readonly fold: ReadonlySet<string>;
  readonly hideCompleted: boolean;
  readonly colour: "state" | "duration" | "worker" | "target";
  readonly selected?: number;
  readonly found: ReadonlySet<number>;
}

export class Dag {
  /** A click on a task, or on none. */
  chosen: (place: number | undefined) => void = () => undefined;
  /** A click on what stands for a group. */
  group: (name: string) => void = () => undefined;

  constructor(
    readonly canvas: HTMLCanvasElement,
    readonly worker: Worker,
  ) {}

  show(_graph: Graph, _options: DagOptions): void {}
  fit(): void {}
  zoom(_by: number): void {}
  pan(_dx: number, _dy: number): void {}
  /** The task next to this one in a direction: along an edge, or in its level. */
  walk(_place: number, _way: "left" | "right" | "up" | "down"): number | undefined {
    return undefined;
  }
  at(_x: number, _y: number): number | undefined {
    return undefined;
  }
  destroy(): void {}
}
