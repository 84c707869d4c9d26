/** What ran when: bars on lanes, on a canvas. */

/** Bars in columns, by lanes; `model/times.ts` makes them. */
export interface Bars {
  /** Names of lanes: a worker's slot, a target, or a task. */
  readonly lanes: readonly string[];
  readonly lane: Uint32Array;
  /** The place of the task in `Graph.ids`. */
  readonly task: Uint32Array;
  /** Milliseconds since 1970; `to` is NaN while it goes on. */
  readonly from: Float64Array;
  readonly to: Float64Array;
  /** Codes of `BAR`. */
  readonly kind: Uint8Array;
  /** Of the task: codes of `TASK_STATES`. */
  readonly state: Uint8Array;
}

export const BAR = { queued: 0, ran: 1, lost: 2, held: 3 } as const;

export interface GanttOptions {
  readonly labels: readonly string[];
  /** The time at the right end of bars that go on. */
  readonly now: number;
  readonly utc: boolean;
  /** Tasks of the critical path. */
  readonly critical: ReadonlySet<number>;
  readonly selected?: number;
  readonly found: ReadonlySet<number>;
}

export class Gantt {
  /** A click on a bar, or on none. */
  chosen: (place: number | undefined) => void = () => undefined;

  constructor(readonly canvas: HTMLCanvasElement) {}

  show(_bars: Bars, _options: GanttOptions): void {}
  fit(): void {}
  zoom(_by: number): void {}
  pan(_dx: number, _dy: number): void {}
  at(_x: number, _y: number): number | undefined {
    return undefined;
  }
  destroy(): void {}
}
