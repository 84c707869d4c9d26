/** The graph that is open: read once, then followed while the page is seen. */

import { effect, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { text, texts, time } from "../model/columns.ts";
import type { Graph } from "../model/graph.ts";
import { follow, load } from "../model/load.ts";
import { TASK_STATES } from "../model/states.ts";
import type { Row } from "../rows/port.ts";
import { noted, source } from "./source.ts";

export interface Open {
  readonly id: string;
  readonly graph: Graph | null;
  /** Grows with each change of the graph. */
  readonly version: number;
  /** Rows that have been read so far. */
  readonly read: number;
  readonly trouble: unknown;
  /** Since when the source has not been reached, and when it is tried again; milliseconds. */
  readonly away: { readonly since: number; readonly again: number } | null;
}

const opening = (id: string): Open => ({ id, graph: null, version: 0, read: 0, trouble: null, away: null });

export const open = signal<Open>(opening(""));

const [PAUSE, PAUSE_MOST, TASKS_A_MS] = [150, 2_000, 15];

/** Milliseconds between two drawings of a graph that changes: of a large one everything takes longer. */
function pauseOf(graph: Graph): number {
  return Math.max(PAUSE, Math.min(PAUSE_MOST, graph.ids.length / TASKS_A_MS));
}

const seen = signal(!document.hidden);
document.addEventListener("visibilitychange", () => {
  seen.value = !document.hidden;
});

function change(id: string, values: Partial<Open>): void {
  if (open.peek().id === id) open.value = { ...open.peek(), ...values };
}

function followed(id: string, first: Graph, ended: AbortSignal): void {
  let graph = first;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const show = (): void => {
    timer = undefined;
    change(id, { graph, version: open.peek().version + 1 });
  };
  const stop = effect(() => {
    if (!seen.value) return undefined;
    const unseen = new AbortController();
    const signals = AbortSignal.any([ended, unseen.signal]);
    const changed = (now: Graph): void => {
      graph = now;
      timer ??= setTimeout(show, pauseOf(graph));
    };
    const { rows } = source.peek()!;
    const troubled = (trouble?: unknown, seconds?: number): void => {
      const now = Date.now();
      const away = seconds ? { since: open.peek().away?.since ?? now, again: now + seconds * 1000 } : null;
      change(id, { trouble: trouble ? noted(trouble) : null, away });
    };
    follow(rows, graph, changed, signals, troubled).catch((trouble: unknown) => {
      if (!signals.aborted) troubled(trouble);
    });
    return () => unseen.abort();
  });
  ended.addEventListener("abort", () => {
    stop();
    clearTimeout(timer);
  });
}

function start(id: string): () => void {
  const ended = new AbortController();
  open.value = opening(id);
  const { rows } = source.peek()!;
  load(rows, id, (read) => ended.signal.aborted || change(id, { read })).then(
    (graph) => {
      if (ended.signal.aborted) return;
      change(id, { graph, version: 1 });
      followed(id, graph, ended.signal);
    },
    (trouble: unknown) => ended.signal.aborted || change(id, { trouble: noted(trouble) }),
  );
  return () => ended.abort();
}

export function useGraph(id: string): Open {
  const { number } = source.value!;
  useEffect(() => start(id), [id, number]);
  const { value } = open;
  return value.id === id ? value : opening(id);
}

/** How many tasks are in each state. */
export function countsOf(graph: Graph): number[] {
  const counts = TASK_STATES.map(() => 0);
  for (const code of graph.state) counts[code]!++;
  return counts;
}

/** The state of a graph in words: a running one that is paused as a whole is `paused`. */
export function stateOf(header: Row): string {
  const state = text(header, "state");
  return state === "running" && texts(header, "held").includes("paused") ? "paused" : state;
}

/** Whether something is left that can come: it runs, is paused or blocked. */
export function isLive(header: Row): boolean {
  return ["running", "paused", "blocked"].includes(stateOf(header));
}

/** When a graph finished or was cancelled, NaN while it has not. */
export function endOf(header: Row): number {
  const finished = time(header, "finished");
  return Number.isNaN(finished) ? time(header, "cancelled") : finished;
}
