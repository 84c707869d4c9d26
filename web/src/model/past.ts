/** A graph as it was after any event of its journal. */

import { adjacent, besides } from "./adjacent.ts";
import { moment, text } from "./columns.ts";
import type { Graph } from "./graph.ts";
import type { Event } from "./journal.ts";
import { CODE } from "./states.ts";
import { spans } from "./times.ts";
import type { Spans } from "./times.ts";

const ENDS: Readonly<Record<string, number>> = {
  "task-completed": CODE.completed as number,
  "task-failed": CODE.failed as number,
  "task-exception": CODE.exception as number,
  "task-cancelled": CODE.cancelled as number,
  "task-skipped": CODE.skipped as number,
};

export interface Moment {
  /** By task, codes of `TASK_STATES`. */
  readonly state: Uint8Array;
  /** Milliseconds since 1970. */
  readonly time: number;
}

export class Past {
  private readonly places: ReadonlyMap<string, number>;
  private readonly all: Spans;
  private readonly counts: ReadonlySet<number>;
  private state = new Uint8Array();
  /** Requirements that have not ended, as far as their dependents count that. */
  private left = new Int32Array();
  private next = 0;
  private time = NaN;

  /** events: all of the journal. Journals do not say when runs began: that is known of those that rows list. */
  constructor(
    private readonly graph: Graph,
    private readonly events: readonly Event[],
  ) {
    this.places = new Map(graph.ids.map((id, place) => [id, place]));
    this.all = spans(graph);
    const ends = text(graph.header, "failurePolicy") === "continue" ? Object.values(ENDS) : [CODE.completed as number];
    this.counts = new Set(ends);
    this.begin();
  }

  /** After the event row with this number. */
  at(sequence: number): Moment {
    if (this.next > 0 && (this.events[this.next - 1] as Event).sequence > sequence) this.begin();
    for (; this.next < this.events.length; this.next++) {
      const event = this.events[this.next] as Event;
      if (event.sequence > sequence) break;
      this.time = moment(event.time);
      this.apply(event);
    }
    return { state: this.withRunning(), time: this.time };
  }

  private begin(): void {
    const count = this.graph.ids.length;
    const { before } = adjacent(this.graph.edges, count);
    this.left = Int32Array.from({ length: count }, (_, task) => besides(before, task).length);
    this.state = Uint8Array.from(this.left, (left) => (left ? CODE.unscheduled : CODE.pending) as number);
    this.next = 0;
    this.time = moment(this.events[0]?.time);
  }

  private apply(event: Event): void {
    const task = this.places.get(String(event.fields.task ?? ""));
    if (task === undefined) return;
    const end = ENDS[event.kind];
    if (end !== undefined) this.become(task, end);
    else if (event.kind === "task-rerun" || event.kind === "task-retry") {
      this.become(task, (this.left[task] as number) > 0 ? (CODE.unscheduled as number) : (CODE.pending as number));
    }
  }

  private become(task: number, state: number): void {
    const before = this.counts.has(this.state[task] as number);
    const now = this.counts.has(state);
    this.state[task] = state;
    if (before === now) return;
    for (const each of besides(adjacent(this.graph.edges, this.graph.ids.length).after, task)) {
      (this.left[each] as number) += now ? -1 : 1;
      const waits = this.state[each] === CODE.unscheduled || this.state[each] === CODE.pending;
      if (waits) this.state[each] = ((this.left[each] as number) > 0 ? CODE.unscheduled : CODE.pending) as number;
    }
  }

  private withRunning(): Uint8Array {
    const state = this.state.slice();
    const { count, task, start, end } = this.all;
    for (let span = 0; span < count; span++) {
      const began = (start[span] as number) <= this.time;
      const over = (end[span] as number) <= this.time; // NaN: it runs still
      const place = task[span] as number;
      if (began && !over && state[place] === CODE.pending) state[place] = CODE.running as number;
    }
    return state;
  }
}
