/** What both drawings of a graph share: the task that is selected, the search, the way to the next failure. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import type { VNode } from "preact";

import { Dag, type DagOptions } from "../draw/dag.ts";
import type { Graph } from "../model/graph.ts";
import { CODE, FAILED_CODES, TASK_STATES } from "../model/states.ts";
import type { Expected } from "../model/times.ts";
import { go, href, route, set } from "../route.ts";
import { duration, now } from "./format.ts";
import { taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { Facts, State, Time } from "./parts.ts";
import { matcher, ran, waited } from "./picked.ts";
import { has } from "./source.ts";
import { ownWorker } from "../own_worker.ts";

let worker: Worker | undefined;

/** The one worker of the page. */
export function theWorker(): Worker {
  worker ??= ownWorker();
  return worker;
}

export interface Drawn {
  /** The place of the task that is selected, -1 for none. */
  readonly selected: number;
  readonly select: (place: number | undefined) => void;
  readonly open: (place: number) => void;
  readonly found: ReadonlySet<number>;
  /** Select the next task that failed, or with -1 the one before. */
  readonly failed: (by: 1 | -1) => void;
}

export function placeOf(graph: Graph, label: string | null): number {
  return label ? graph.labels.indexOf(label) : -1;
}

export function useDrawn(graph: Graph): Drawn {
  const { query } = route.value;
  const name = query.get("sel") ?? query.get("focus");
  const selected = useMemo(() => placeOf(graph, name), [graph.labels, name]);
  const typed = query.get("q") ?? "";
  const found = useMemo(() => {
    if (!typed) return new Set<number>();
    const fits = matcher(typed);
    return new Set(graph.labels.flatMap((label, place) => (fits(label) ? [place] : [])));
  }, [graph.labels, typed]);
  const failed = (by: 1 | -1): void => {
    const count = graph.ids.length;
    const wanted = (place: number): boolean => (typed ? found.has(place) : FAILED_CODES.has(graph.state[place]!));
    for (let step = 1; step <= count; step++) {
      const place = (selected + by * step + 2 * count) % count;
      if (wanted(place)) return set({ sel: graph.labels[place]! });
    }
  };
  return {
    selected,
    select: (place) => set({ sel: place === undefined ? null : graph.labels[place]! }),
    open: (place) => go(taskHref(graph.id, graph.labels[place]!)),
    found,
    failed,
  };
}

interface Wish extends Omit<DagOptions, "selected" | "found"> {
  readonly drawn: Drawn;
  /** Fold or unfold a group. */
  readonly turn: (group: string) => void;
}

/** A graph on a canvas. version: another one where states have changed in place. */
export function useDag(graph: Graph, version: number, wish: Wish): {
  canvas: { current: HTMLCanvasElement | null };
  dag: { current: Dag | null };
} {
  const canvas = useRef<HTMLCanvasElement>(null);
  const dag = useRef<Dag | null>(null);
  const { drawn, turn, ...options } = wish;
  const { selected, found } = drawn;
  const { focus, depth, fold, hideCompleted, colour } = options;
  useEffect(() => {
    dag.current = new Dag(canvas.current!, theWorker());
    return () => dag.current?.destroy();
  }, []);
  useEffect(() => {
    const made = dag.current!;
    made.chosen = drawn.select;
    made.group = turn;
    made.show(graph, { ...options, ...(selected >= 0 ? { selected } : {}), found });
  }, [graph, version, focus, depth, fold, hideCompleted, colour, selected, found]);
  return { canvas, dag };
}

/** The task that is selected, and where to go from it. */
interface SelectedProps {
  graph: Graph;
  place: number;
  /** Of that task, by a forecast. */
  expected?: readonly Expected[] | undefined;
}

export function Selected({ graph, place, expected = [] }: SelectedProps): VNode | null {
  if (place < 0) return null;
  const isLeft = graph.state[place]! <= CODE.running!;
  const [begins, ends] = isLeft ? [expected[0]?.start ?? NaN, expected.at(-1)?.end ?? NaN] : [NaN, NaN];
  const label = graph.labels[place]!;
  const plan = href(["g", graph.id, "plan"], { change: "rerun", labels: JSON.stringify([label]) });
  const without = href(["g", graph.id, "forecast"], { drop: JSON.stringify([label]) });
  return html`<section class="selected" aria-label="Selected task">
    <p><${State} state=${TASK_STATES[graph.state[place]!]!.name} /> <a class="label" href=${taskHref(graph.id, label)}>
      ${label}</a></p>
    <${Facts} of=${[
      ["Started", Number.isFinite(graph.started[place]) && html`<${Time} at=${graph.started[place]} />`],
      ["Waited", duration(waited(graph, place, now.value))],
      ["Ran", duration(ran(graph, place, now.value))],
      ["Run", graph.run[place] || ""],
      ["Worker", graph.worker[place]],
      ["Begins about", begins > now.peek() && html`<${Time} at=${begins} />`],
      ["Ends about", Number.isFinite(ends) && html`<${Time} at=${ends} />`],
    ]} />
    <p class="actions">
      <a class="button small" href=${taskHref(graph.id, label, "log")}>Log</a>
      <a class="button small judged" href=${taskHref(graph.id, label, "why")}>Why</a>
      <a class="button small" href=${href(["g", graph.id, "dag"], { focus: label, depth: 2 })}>Neighbours</a>
      ${FAILED_CODES.has(graph.state[place]!) && html`<a class="button small judged" href=${plan}>Rerun …</a>`}
      ${isLeft && has("api") && html`<a class="button small" href=${without}>What if without …</a>`}
    </p>
  </section>`;
}

export function Legend(): VNode {
  return html`<ul class="legend" aria-label="States">
    ${TASK_STATES.map(({ name }) => html`<li key=${name}><${State} state=${name} /></li>`)}
  </ul>`;
}
