/** Keeping a graph in memory up to date: by its journal, and by a look at what is ready, as claims are no events. */

import type { Row, Rows } from "../rows/port.ts";
import { Trouble } from "../rows/port.ts";
import { pause, visible } from "../rows/waiting.ts";
import { adjacent, besides } from "./adjacent.ts";
import type { Graph } from "./graph.ts";
import { eventKey, GRAPH } from "./ids.ts";
import { eventsOf } from "./journal.ts";
import type { Event } from "./journal.ts";
import { all, headerOf, load, pausedTargets } from "./load.ts";
import { CODE } from "./states.ts";
import type { Paused } from "./table.ts";
import { columnsOf, put, TASK_COLUMNS } from "./table.ts";

type Changed = (graph: Graph, tasks: readonly number[]) => void;

const GAP_SECONDS = 1;
const GAP_LOOKS = 4;
const SOON_SECONDS = 1;
const SOON_SECONDS_MAX = 16;
const AWAY_SECONDS = 2;
const AWAY_SECONDS_MAX = 15;
const KEYS_MIN = 400;
const KEYS_SHARE = 20;
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
 * whose `ids` are new. troubled: is called with what keeps the source away, and without it when it is back.
 */
export async function follow(
  rows: Rows,
  graph: Graph,
  changed: Changed,
  signal: AbortSignal,
  troubled: (trouble?: Trouble) => void = () => undefined,
): Promise<void> {
  let following: Following | undefined;
  let away = 0;
  while (!signal.aborted) {
    try {
      if (away) await pause(away, signal);
      following ??= new Following(rows, graph, await pausedTargets(rows));
      if (!away) await following.wait(signal);
      const began = performance.now();
      const looked = await following.look(changed);
      if (looked) following = new Following(rows, looked.graph, looked.paused);
      if (away) troubled();
      away = 0;
      await pause(Math.max(GAP_SECONDS, (GAP_LOOKS * (performance.now() - began)) / 1000), signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Trouble)) throw error;
      troubled(error);
      if (error.reason === "missing") return;
      away = Math.min(AWAY_SECONDS_MAX, away * 2 || AWAY_SECONDS);
    }
  }
}

class Following {
  private readonly places: ReadonlyMap<string, number>;
  /** Requirements of each task that are not resolved. */
  private readonly left: Uint32Array;
  private soon = SOON_SECONDS;

  constructor(
    private readonly rows: Rows,
    private graph: Graph,
    private readonly paused: Paused,
  ) {
    this.places = new Map(graph.ids.map((id, place) => [id, place]));
    const { before } = adjacent(graph.edges, graph.ids.length);
    this.left = Uint32Array.from(graph.ids, (_, task) =>
      besides(before, task).reduce((left, each) => left + (isOver(graph.state[each] as number) ? 0 : 1), 0),
    );
  }

  /** Until there is news, or it is time to look what has become of tasks that were ready. */
  async wait(signal: AbortSignal): Promise<void> {
    const over = new AbortController();
    const either = AbortSignal.any([signal, over.signal]);
    const waits = [this.rows.news(this.graph.id, this.graph.event, either)];
    if (this.soon <= SOON_SECONDS_MAX && this.ready().length) waits.push(pause(this.soon, either));
    this.soon *= 2;
    const settled = waits.map((each) => each.catch(() => undefined));
    await Promise.race(settled);
    over.abort();
    await visible(signal);
  }

  /** Reads what has changed; gives the graph where it was read anew. */
  async look(changed: Changed): Promise<{ graph: Graph; paused: Paused } | undefined> {
    const { id, event } = this.graph;
    const found = await all(this.rows, id, { start: eventKey(event + 1), end: "event;" });
    const events = found.flatMap(eventsOf);
    if (events.some((each) => WHOLE.has(each.kind))) return this.again(changed);
    const wanted = new Set([...this.named(events), ...this.ready()]);
    const read = await this.read([...wanted]);
    if (!read) return this.again(changed);
    const last = found.at(-1);
    const places = read.tasks.filter((row) => this.update(row)).map((row) => this.place(row));
    // What has become ready by these ends is read at once, and not at the next look.
    const ended = places.filter((place) => isOver(this.graph.state[place] as number));
    const next = ended.flatMap((place) => this.readyBehind(place));
    const more = next.length ? await this.read(next) : undefined;
    for (const row of more?.tasks ?? []) if (this.update(row)) places.push(this.place(row));
    if (!last && !places.length) return undefined;
    this.soon = SOON_SECONDS;
    this.graph = { ...this.graph, header: read.header, event: last ? Number(last.key.slice(6)) : event };
    changed(this.graph, places);
    return undefined;
  }

  private async again(changed: Changed): Promise<{ graph: Graph; paused: Paused }> {
    const [graph, paused] = await Promise.all([
      load(this.rows, this.graph.id, () => undefined),
      pausedTargets(this.rows),
    ]);
    changed(graph, [...graph.ids.keys()]);
    return { graph, paused };
  }

  private place(row: Row): number {
    return this.places.get(row.key.slice(5)) as number;
  }

  /** Tasks that wait for a worker, and that nothing holds back. */
  private ready(): number[] {
    const { state, held } = this.graph;
    const found: number[] = [];
    for (let place = 0; place < state.length; place++) {
      if (state[place] === CODE.pending && !held[place]) found.push(place);
    }
    return found;
  }

  private named(events: readonly Event[]): Set<number> {
    const found = new Set<number>();
    const see = (value: unknown): void => {
      if (typeof value === "string") {
        const place = this.places.get(value);
        if (place !== undefined) found.add(place);
      } else if (typeof value === "object" && value !== null) Object.values(value).forEach(see);
    };
    for (const { fields } of events) see(fields);
    return found;
  }

  private readyBehind(place: number): number[] {
    const { after } = adjacent(this.graph.edges, this.graph.ids.length);
    const waits = (each: number): boolean => !this.left[each] && this.graph.state[each] === CODE.unscheduled;
    return [...besides(after, place)].filter(waits);
  }

  /** The row of the graph and those of tasks: each by its key, or all where they are many. Nothing if one is gone. */
  private async read(places: readonly number[]): Promise<{ header: Row; tasks: readonly Row[] } | undefined> {
    const { ids, id } = this.graph;
    if (places.length > Math.max(KEYS_MIN, ids.length / KEYS_SHARE)) {
      const header = await headerOf(this.rows, id);
      const select = [...TASK_COLUMNS.filter((name) => name !== "requires" && name !== "groups"), "resolution"];
      const tasks = await all(this.rows, id, { start: "task:", end: "task;", select });
      return tasks.every((row) => this.places.has(row.key.slice(5))) ? { header, tasks } : undefined;
    }
    const keys = [GRAPH, ...places.map((place) => `task:${ids[place] as string}`)];
    const [header, ...tasks] = await this.rows.get(id, keys);
    if (!header) throw new Trouble("missing", `graph ${id} was deleted`);
    return tasks.includes(null) ? undefined : { header, tasks: tasks as Row[] };
  }

  /** Whether a row says something new of its task. */
  private update(row: Row): boolean {
    const place = this.place(row);
    const columns = columnsOf(this.graph);
    const { state, run, held, started, worker } = columns;
    const seen = (): string => [state[place], run[place], held[place], started[place], worker[place]].join(" ");
    const before = seen();
    const was = isOver(columns.state[place] as number);
    put(columns, place, row, this.paused);
    const is = isOver(columns.state[place] as number);
    if (was !== is) {
      const { after } = adjacent(this.graph.edges, this.graph.ids.length);
      for (const each of besides(after, place)) (this.left[each] as number) += is ? -1 : 1;
    }
    return before !== seen();
  }
}

const isOver = (state: number): boolean => state >= (CODE.completed as number);
