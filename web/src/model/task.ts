/** One task in full: its definition, its runs and why each of them ended, its edges by label, who holds it. */

import type { Row, Rows } from "../rows/port.ts";
import { Trouble } from "../rows/port.ts";
import { adjacent, besides } from "./adjacent.ts";
import { moment, object, objects, text, texts, time, whole } from "./columns.ts";
import type { Graph } from "./graph.ts";
import { CODE, TASK_STATES } from "./states.ts";
import { stateOf } from "./table.ts";

export interface Neighbour {
  readonly place: number;
  readonly label: string;
  /** A code of `TASK_STATES`. */
  readonly state: number;
}

export interface RunLine {
  readonly run: number;
  /** As in `Spans`. */
  readonly outcome: string;
  /** Why it ended, or what it waits for, in words. */
  readonly cause: string;
  readonly reason: string;
  readonly exitCode?: number;
  readonly worker: string;
  /** Milliseconds since 1970, NaN for none; `ready` of the present run alone. */
  readonly ready: number;
  readonly started: number;
  readonly ended: number;
  readonly present: boolean;
}

export interface Task {
  readonly place: number;
  readonly label: string;
  readonly state: number;
  readonly row: Row;
  /** As its worker gets it. */
  readonly definition: unknown;
  /** By label. */
  readonly requires: readonly Neighbour[];
  readonly dependents: readonly Neighbour[];
  /** The latest first. */
  readonly runs: readonly RunLine[];
  readonly resolution: Readonly<Record<string, unknown>>;
  readonly groups: readonly string[];
  /** What holds it back: `paused`, `inactive`, `group:NAME`. */
  readonly held: readonly string[];
  /** Who has its present run, while that runs. */
  readonly lease?: { readonly worker: string; readonly claim: string; readonly until: number };
  readonly budget: { readonly reruns: number; readonly rerunsAllowed: number; readonly retries: number };
}

const CAUSES: Readonly<Record<string, string>> = {
  failed: "failed, and was run again",
  temporary: "failed for the moment, and was tried again",
  lost: "lost: its worker stopped renewing the lease",
  "handed-back": "handed back by its worker",
  stopped: "stopped, as a rerun was asked for",
  completed: "completed, and a rerun was asked for",
  exception: "ended by an exception, and a rerun was asked for",
  skipped: "skipped, and a rerun was asked for",
};

/** Throws `Trouble` where there is no such task any more. */
export async function task(rows: Rows, graph: Graph, place: number): Promise<Task> {
  const id = graph.ids[place] as string;
  const [row, longer] = await rows.get(graph.id, [`task:${id}`, `definition:${id}`]);
  if (!row) throw new Trouble("missing", `graph ${graph.id} has no task ${graph.labels[place] ?? id}`);
  const { before, after } = adjacent(graph.edges, graph.ids.length);
  const state = stateOf(row);
  const definition = text(row, "task") ? object(row, "task") : longer ? object(longer, "task") : {};
  const lease = { worker: text(row, "worker"), claim: text(row, "claim"), until: time(row, "leaseUntil") };
  return {
    place,
    label: text(row, "label"),
    state,
    row,
    definition,
    requires: neighbours(graph, besides(before, place)),
    dependents: neighbours(graph, besides(after, place)),
    runs: runLines(row, state),
    resolution: object(row, "resolution"),
    groups: texts(row, "groups"),
    held: texts(row, "held"),
    ...(state === CODE.running ? { lease } : {}),
    budget: {
      reruns: whole(row, "rerunsLeft"),
      rerunsAllowed: whole(row, "rerunsAllowed"),
      retries: whole(row, "retriesLeft"),
    },
  };
}

function neighbours(graph: Graph, places: Uint32Array): readonly Neighbour[] {
  const found = Array.from(places, (place) => ({
    place,
    label: graph.labels[place] as string,
    state: graph.state[place] as number,
  }));
  return found.sort((a, b) => (a.label < b.label ? -1 : a.label > b.label ? 1 : 0));
}

/** Runs of a task, the latest first. state: of the task. */
export function runLines(row: Row, state: number): readonly RunLine[] {
  const earlier = objects(row, "runs").map((each) => {
    const outcome = String(each.outcome ?? "");
    return {
      run: Number(each.run ?? 0),
      outcome,
      cause: CAUSES[outcome] ?? outcome,
      reason: String(each.reason ?? ""),
      ...(typeof each.exitCode === "number" ? { exitCode: each.exitCode } : {}),
      worker: String(each.worker ?? ""),
      ready: NaN,
      started: moment(each.started),
      ended: moment(each.ended),
      present: false,
    };
  });
  return [presentRun(row, state), ...earlier.reverse()];
}

function presentRun(row: Row, state: number): RunLine {
  const resolution = object(row, "resolution");
  const waits = state === CODE.pending || state === CODE.unscheduled;
  const ended = waits || state === CODE.running ? NaN : time(row, "ended");
  const resolved = state === CODE.running || waits ? NaN : time(row, "resolved");
  const name = TASK_STATES[state]?.name ?? "";
  return {
    run: whole(row, "run"),
    outcome: name,
    cause: state === CODE.unscheduled ? "waits for what it requires" : state === CODE.pending ? "ready" : name,
    reason: waits || state === CODE.running ? text(row, "refusal") : String(resolution.reason ?? ""),
    ...(typeof resolution.exitCode === "number" && !waits ? { exitCode: resolution.exitCode } : {}),
    worker: waits ? "" : text(row, "worker"),
    ready: time(row, "pendingSince"),
    started: waits ? NaN : time(row, "started"),
    ended: Number.isNaN(ended) ? resolved : ended,
    present: true,
  };
}
