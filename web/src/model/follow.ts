/**
 * Keeping a graph in memory up to date. The facts of its journal are applied at once; rows are read where these are
 * few, and else when it has become quiet: many pages that follow one graph must not slow it down. Claims are no facts,
 * so rows of tasks that are ready are read each second while something moves, some by turns where they are many, and
 * ever more rarely while nothing does.
 */

import type { Fact, Row, Rows } from "../rows/port.ts";
import { Trouble } from "../rows/port.ts";
import { pause, visible } from "../rows/waiting.ts";
import { adjacent, besides } from "./adjacent.ts";
import type { Adjacent } from "./adjacent.ts";
import { moment } from "./columns.ts";
import type { Graph } from "./graph.ts";
import { GRAPH } from "./ids.ts";
import { all, headerOf, load, pausedTargets } from "./load.ts";
import { CODE } from "./states.ts";
import type { Columns, Paused } from "./table.ts";
import { columnsOf, put, TASK_COLUMNS } from "./table.ts";

type Changed = (graph: Graph, tasks: readonly number[]) => void;

/** Between looks: of a graph of more than so many tasks, which takes long to draw, and of any other. */
const LARGE = 5_000;
const GAP_SECONDS = { large: 2, small: 1 };
const GAP_LOOKS = 4;
const SOON_SECONDS = 1;
const SOON_SECONDS_MAX = 16;
const IDLE_SECONDS = 60;
const QUIET_SECONDS = 2;
const AWAY_SECONDS = 2;
const AWAY_SECONDS_MAX = 15;
const FEW = 30;
const FEW_READY = 100;
/** Where one page has all tasks, those that run are asked for instead. */
const PAGE_TASKS = 1_000;
/** So many rows, or such a share of all, are read by their keys: fewer where each takes a request. */
const KEYS = { together: { most: 400, share: 1 / 20 }, alone: { most: 16, share: 1 / 100 } };

const UNSCHEDULED = CODE.unscheduled as number;
const PENDING = CODE.pending as number;
const RUNNING = CODE.running as number;
const ENDS: Readonly<Record<string, number>> = {
  "task-completed": CODE.completed as number,
  "task-failed": CODE.failed as number,
  "task-exception": CODE.exception as number,
  "task-cancelled": CODE.cancelled as number,
  "task-skipped": CODE.skipped as number,
};
/** No facts, as it is time to look at rows. */
const NOTHING: readonly Fact[] = [];
const AGAIN: ReadonlySet<string> = new Set(["task-rerun", "task-retry"]);
/** After these, other rows may have changed than those that they name. */
const WHOLE: ReadonlySet<string> = new Set([
  "graph-extended",
  "graph-edited",
  "graph-paused",
  "graph-resumed",
  "graph-repaired",
  "journal-gap",
]);

/**
 * Until `signal` is aborted, or the graph is gone. Arrays of the graph are changed in place, and `changed` is called
 * with a new `Graph` over them and the places that changed; after an extension or an edit with all places of a graph
 * whose `ids` are new. troubled: is called with what keeps the source away and the seconds until it is tried again,
 * and without them when it is back.
 */
export async function follow(
  rows: Rows,
  graph: Graph,
  changed: Changed,
  signal: AbortSignal,
  troubled: (trouble?: Trouble, seconds?: number) => void = () => undefined,
): Promise<void> {
  let following: Following | undefined;
  let away = 0;
  while (!signal.aborted) {
    try {
      if (away) {
        await pause(away, signal);
        await headerOf(rows, graph.id);
      }
      following ??= new Following(rows, graph, await pausedTargets(rows));
      const facts = away ? [] : await following.wait(signal);
      const began = performance.now();
      if (facts.some((fact) => WHOLE.has(fact.kind))) {
        graph = await load(rows, graph.id, () => undefined);
        following = undefined;
        changed(graph, [...graph.ids.keys()]);
      } else await following.look(facts, changed);
      if (away) troubled();
      away = 0;
      const gap = graph.ids.length > LARGE ? GAP_SECONDS.large : GAP_SECONDS.small;
      await pause(Math.max(gap, (GAP_LOOKS * (performance.now() - began)) / 1000), signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Trouble)) throw error;
      if (error.reason === "missing") return troubled(error);
      away = Math.min(AWAY_SECONDS_MAX, away * 2 || AWAY_SECONDS);
      troubled(error, away);
    }
  }
}

class Following {
  private readonly places: ReadonlyMap<string, number>;
  private readonly beside: Adjacent;
  private readonly columns: Columns;
  /** Requirements of each task that are not resolved. */
  private readonly left: Uint32Array;
  /** Tasks of which facts have said something that their rows were not read for. */
  private readonly stale = new Set<number>();
  private soon = SOON_SECONDS;
  private coming: Promise<readonly Fact[]> | undefined;
  private turn = 0;

  constructor(
    private readonly rows: Rows,
    private graph: Graph,
    private readonly paused: Paused,
  ) {
    this.places = new Map(graph.ids.map((id, place) => [id, place]));
    this.beside = adjacent(graph.edges, graph.ids.length);
    this.columns = columnsOf(graph);
    const isLeft = (place: number): boolean => !isOver(graph.state[place] as number);
    this.left = Uint32Array.from(graph.ids, (_, task) => besides(this.beside.before, task).filter(isLeft).length);
  }

  /** What is new; nothing when it is time to look what has become of tasks that were ready, or to read stale rows. */
  async wait(signal: AbortSignal): Promise<readonly Fact[]> {
    const over = new AbortController();
    const either = AbortSignal.any([signal, over.signal]);
    if (!this.coming) {
      this.coming = this.rows.news(this.graph.id, this.graph.event, signal);
      this.coming.catch(() => undefined); // nothing waits for it while rows are read
    }
    const unlessOver = (error: unknown): readonly Fact[] => {
      if (!either.aborted) throw error;
      return NOTHING;
    };
    const waits = [this.coming];
    const looks = (seconds: number): unknown => waits.push(pause(seconds, either).then(() => NOTHING, unlessOver));
    if (this.stale.size) looks(QUIET_SECONDS * (1 + Math.random()));
    else if (this.ready().length) looks(this.isIdle() ? IDLE_SECONDS : this.soon);
    this.soon = Math.min(2 * this.soon, 2 * SOON_SECONDS_MAX);
    let found: readonly Fact[] | undefined;
    try {
      found = await Promise.race(waits);
    } finally {
      over.abort();
      if (found !== NOTHING) this.coming = undefined; // else it brings its facts to the next wait
    }
    await visible(signal);
    return found;
  }

  private isIdle(): boolean {
    return this.soon > SOON_SECONDS_MAX;
  }

  /** Applies facts, and reads rows; calls back with what has changed by these. */
  async look(facts: readonly Fact[], changed: Changed): Promise<void> {
    const places = new Set<number>();
    for (const fact of facts) this.apply(fact, places);
    const wanted = [...this.toRead(facts.length)];
    const whole = wanted.length > 0 || facts.some((fact) => fact.kind.startsWith("graph-"));
    const [read, claimed] = await Promise.all([whole ? this.read(wanted) : undefined, this.claimed(facts.length)]);
    for (const row of [...(read?.tasks ?? []), ...claimed]) if (this.update(row)) places.add(this.place(row));
    if (read) for (const place of wanted) this.stale.delete(place);
    const event = facts.at(-1)?.sequence ?? this.graph.event;
    const header = read?.header ?? this.graph.header;
    if (!facts.length && !places.size && sameRow(header, this.graph.header)) return;
    this.soon = SOON_SECONDS;
    this.graph = { ...this.graph, header, event };
    changed(this.graph, [...places]);
  }

  /** Stale rows: all of them where they are few or nothing is new, and some of many while little is new. */
  private toRead(facts: number): Iterable<number> {
    if (this.stale.size <= FEW || !facts) return this.stale;
    return facts <= FEW ? [...this.stale].slice(0, FEW_READY) : [];
  }

  private place(row: Row): number {
    return this.places.get(row.key.slice(5)) as number;
  }

  /** Tasks that wait for a worker, and that nothing holds back. */
  private ready(): number[] {
    const { state, held } = this.columns;
    const found: number[] = [];
    for (let place = 0; place < state.length; place++) if (state[place] === PENDING && !held[place]) found.push(place);
    return found;
  }

  /** Rows of tasks that may have been claimed; the fewer, the more facts there are. */
  private async claimed(facts: number): Promise<readonly Row[]> {
    const ready = this.ready();
    const { together = 1 } = this.rows;
    const most = this.isIdle() ? together : facts > FEW ? FEW : Math.max(FEW, together);
    const many = ready.length > Math.min(most, FEW) && facts <= FEW;
    if (many && this.graph.ids.length <= PAGE_TASKS) return this.running();
    const some = this.some(ready, most);
    if (!some.length) return [];
    const found = await this.rows.get(this.graph.id, some.map((place) => this.key(place)));
    return found.filter((row) => row !== null);
  }

  /** Of many that are ready: those that were first, those that were last, and others by turns. */
  private some(ready: readonly number[], most: number): readonly number[] {
    if (ready.length <= most) return ready;
    const part = Math.ceil(most / 3);
    const since = (place: number): number => this.columns.pendingSince[place] as number;
    const times = Float64Array.from(ready, since).sort();
    const first = ready.filter((place) => since(place) <= (times[part - 1] as number)).slice(0, part);
    const last = ready.filter((place) => since(place) >= (times[times.length - part] as number)).slice(0, part);
    this.turn = (this.turn + part) % ready.length;
    return [...new Set([...first, ...last, ...ready.slice(this.turn, this.turn + part)])].slice(0, most);
  }

  private key(place: number): string {
    return `task:${this.graph.ids[place] as string}`;
  }

  private apply(fact: Fact, places: Set<number>): void {
    const place = this.places.get(String(fact.fields.task ?? ""));
    if (place === undefined) return;
    const { columns } = this;
    places.add(place);
    this.stale.add(place);
    const end = ENDS[fact.kind];
    const run = fact.fields.run;
    if (typeof run === "number") columns.run[place] = run;
    if (end !== undefined) {
      columns.resolved[place] = moment(fact.time);
      columns.state[place] = this.counted(place, end, places);
      columns.ended[place] = columns.resolved[place];
      columns.held[place] = 0;
    } else if (AGAIN.has(fact.kind)) {
      columns.state[place] = this.counted(place, this.left[place] ? UNSCHEDULED : PENDING, places);
      columns.pendingSince[place] = moment(fact.time);
      columns.resolved[place] = NaN;
    }
  }

  /** Gives a state, after it is counted by the dependents of its task: what completes may make them ready. */
  private counted(place: number, state: number, places?: Set<number>): number {
    const { columns, left } = this;
    const was = isOver(columns.state[place] as number);
    const is = isOver(state);
    if (was === is) return state;
    for (const each of besides(this.beside.after, place)) {
      (left[each] as number) += is ? -1 : 1;
      if (!is || left[each] || columns.state[each] !== UNSCHEDULED) continue;
      // Whether it is ready, or about to be skipped, only its row says, where something above it has failed.
      if (places && state === CODE.completed && this.all(each, place)) {
        columns.state[each] = PENDING;
        columns.pendingSince[each] = columns.resolved[place] as number;
        places.add(each);
      }
      this.stale.add(each);
    }
    return state;
  }

  /** Whether all that a task requires has completed, with what has just ended. */
  private all(task: number, ended: number): boolean {
    const { state } = this.columns;
    return besides(this.beside.before, task).every((each) => each === ended || state[each] === CODE.completed);
  }

  /** The row of the graph and those of tasks: each by its key, or all where they are many. */
  private async read(places: readonly number[]): Promise<{ header: Row; tasks: readonly Row[] }> {
    const { ids, id } = this.graph;
    const { most, share } = this.rows.together ? KEYS.together : KEYS.alone;
    if (places.length > Math.max(most, ids.length * share)) {
      return { header: await headerOf(this.rows, id), tasks: await this.tasks({}) };
    }
    const keys = [GRAPH, ...places.map((place) => this.key(place))];
    const [header, ...tasks] = await this.rows.get(id, keys);
    if (!header) throw new Trouble("missing", `graph ${id} was deleted`);
    return { header, tasks: tasks.filter((row) => row !== null) }; // one that an edit took away: a fact says so
  }

  private running(): Promise<readonly Row[]> {
    return this.tasks({ state: ["running"] });
  }

  private async tasks(where: Readonly<Record<string, readonly string[]>>): Promise<readonly Row[]> {
    const select = [...TASK_COLUMNS.filter((name) => name !== "requires" && name !== "groups"), "resolution"];
    const found = await all(this.rows, this.graph.id, { start: "task:", end: "task;", where, select });
    return found.filter((row) => this.places.has(row.key.slice(5)));
  }

  /** Whether a row says something new of its task. */
  private update(row: Row): boolean {
    const place = this.place(row);
    const { columns } = this;
    const seen = (): string =>
      [columns.state, columns.run, columns.held, columns.started, columns.ended, columns.worker]
        .map((column) => column[place])
        .join(" ");
    const before = seen();
    const state = columns.state[place] as number;
    put(columns, place, row, this.paused);
    const now = columns.state[place] as number;
    columns.state[place] = state;
    columns.state[place] = this.counted(place, now);
    return before !== seen();
  }
}

const isOver = (state: number): boolean => state > RUNNING;

const sameRow = (a: Row, b: Row): boolean => a.columns.operation === b.columns.operation;
