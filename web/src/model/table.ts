/** Tasks in columns while they are read, in the order in which they come. */

import type { Row } from "../rows/port.ts";
import { list, objects, text, time, whole } from "./columns.ts";
import type { Graph, Run } from "./graph.ts";
import { CODE } from "./states.ts";

/** Columns of a task that a graph in memory is made of. */
export const TASK_COLUMNS = [
  "label",
  "state",
  "run",
  "target",
  "worker",
  "pendingSince",
  "started",
  "ended",
  "resolved",
  "held",
  "groups",
  "runs",
  "requires",
] as const;

const UNSCHEDULED = 0;
const PENDING = 1;

/** The columns of a graph that change while it runs. */
export interface Columns {
  state: Uint8Array;
  run: Uint16Array;
  target: string[];
  worker: string[];
  pendingSince: Float64Array;
  started: Float64Array;
  ended: Float64Array;
  resolved: Float64Array;
  held: Uint8Array;
  runs: Map<number, readonly Run[]>;
}

export const columnsOf = (graph: Graph): Columns => graph as unknown as Columns;

/** Targets that are paused, over all graphs. */
export type Paused = ReadonlySet<string>;

/** Writes what a row says of a task to its place. The state `cancelled` differs from `exception` by its resolution. */
export function put(into: Columns, place: number, row: Row, paused: Paused): void {
  const state = stateOf(row);
  const target = text(row, "target") || "default";
  into.state[place] = state;
  into.run[place] = whole(row, "run");
  into.target[place] = target;
  into.worker[place] = text(row, "worker");
  into.pendingSince[place] = time(row, "pendingSince");
  into.started[place] = time(row, "started");
  into.ended[place] = time(row, "ended");
  into.resolved[place] = time(row, "resolved");
  const held = row.columns.held;
  const waits = state === PENDING || state === UNSCHEDULED;
  into.held[place] = waits && ((held && held !== "[]") || paused.has(target)) ? 1 : 0;
  const runs = row.columns.runs ? objects(row, "runs") : [];
  if (runs.length) into.runs.set(place, runs as unknown as readonly Run[]);
  else into.runs.delete(place);
}

export function stateOf(row: Row): number {
  const code = CODE[text(row, "state")] ?? UNSCHEDULED;
  return code === CODE.exception && isCancelled(row) ? (CODE.cancelled as number) : code;
}

function isCancelled(row: Row): boolean {
  const resolution = row.columns.resolution;
  if (typeof resolution !== "string" || !resolution) return false;
  try {
    return (JSON.parse(resolution) as { cancelled?: unknown }).cancelled === true;
  } catch {
    return false;
  }
}

/** Rows of tasks, put into columns as they come; `graph` then puts them in the order of their keys. */
export class Table {
  private size = 0;
  private columns: Columns;
  private ids: string[] = [];
  private labels: string[] = [];
  private requires: string[] = [];
  private group: Int32Array;
  private readonly blocks: { range: number; start: number; end: number }[] = [];
  private readonly groups = new Map<string, number>();
  private readonly firsts = new Map<unknown, number>();
  private readonly words = new Map<string, string>();

  constructor(
    expected: number,
    private readonly paused: Paused,
  ) {
    this.columns = made(expected);
    this.group = new Int32Array(expected);
  }

  get length(): number {
    return this.size;
  }

  /** range: of several that are read side by side, by their keys; the pages of each come in order. */
  add(range: number, rows: readonly Row[]): void {
    const start = this.size;
    this.grow(start + rows.length);
    for (const row of rows) {
      const place = this.size++;
      put(this.columns, place, row, this.paused);
      this.columns.target[place] = this.same(this.columns.target[place] as string);
      this.columns.worker[place] = this.same(this.columns.worker[place] as string);
      this.ids.push(row.key.slice(5));
      this.labels.push(text(row, "label"));
      this.requires.push(text(row, "requires"));
      this.group[place] = this.firstGroup(row);
    }
    this.blocks.push({ range, start, end: this.size });
  }

  /** What is there but the edges; and for these, the column `requires` of each task. */
  graph(): { tasks: Omit<Graph, "id" | "header" | "edges" | "edgesLeftOut" | "event">; requires: readonly string[] } {
    const order = new Uint32Array(this.size);
    let next = 0;
    for (const block of this.blocks.sort((a, b) => a.range - b.range || a.start - b.start)) {
      for (let place = block.start; place < block.end; place++) order[next++] = place;
    }
    const into = made(this.size);
    const group = new Int32Array(this.size);
    const { columns } = this;
    for (let place = 0; place < this.size; place++) {
      const from = order[place] as number;
      into.state[place] = columns.state[from] as number;
      into.run[place] = columns.run[from] as number;
      into.pendingSince[place] = columns.pendingSince[from] as number;
      into.started[place] = columns.started[from] as number;
      into.ended[place] = columns.ended[from] as number;
      into.resolved[place] = columns.resolved[from] as number;
      into.held[place] = columns.held[from] as number;
      group[place] = this.group[from] as number;
      const runs = columns.runs.get(from);
      if (runs) into.runs.set(place, runs);
    }
    const picked = (texts: readonly string[]): string[] => Array.from(order, (from) => texts[from] as string);
    into.target = picked(columns.target);
    into.worker = picked(columns.worker);
    const names = { ids: picked(this.ids), labels: picked(this.labels), groups: [...this.groups.keys()] };
    const tasks = { ...into, ...names, group };
    return { tasks, requires: picked(this.requires) };
  }

  private same(word: string): string {
    const known = this.words.get(word);
    if (known !== undefined) return known;
    this.words.set(word, word);
    return word;
  }

  private firstGroup(row: Row): number {
    const column = row.columns.groups;
    if (!column) return -1;
    let found = this.firsts.get(column);
    if (found === undefined) {
      const [first] = list(row, "groups").map(String);
      found = first === undefined ? -1 : (this.groups.get(first) ?? this.groups.size);
      if (first !== undefined) this.groups.set(first, found);
      this.firsts.set(column, found);
    }
    return found;
  }

  private grow(wanted: number): void {
    if (wanted <= this.group.length) return;
    const columns = made(Math.max(wanted, this.group.length * 2));
    const before = this.columns;
    for (const name of ["state", "run", "pendingSince", "started", "ended", "resolved", "held"] as const) {
      columns[name].set(before[name]);
    }
    const group = new Int32Array(columns.state.length);
    group.set(this.group);
    this.group = group;
    this.columns = { ...columns, target: before.target, worker: before.worker, runs: before.runs };
  }
}

function made(count: number): Columns {
  return {
    state: new Uint8Array(count),
    run: new Uint16Array(count),
    target: [],
    worker: [],
    pendingSince: new Float64Array(count).fill(NaN),
    started: new Float64Array(count).fill(NaN),
    ended: new Float64Array(count).fill(NaN),
    resolved: new Float64Array(count).fill(NaN),
    held: new Uint8Array(count),
    runs: new Map(),
  };
}
