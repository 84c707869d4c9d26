/** A graph as tasks and edges: drawn on a canvas, with the same tasks in a list beside it. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { VNode } from "preact";

import type { Dag } from "../draw/dag.ts";
import { groupsOf } from "../draw/groups.ts";
import { keyTitle, useKeys } from "../keys.ts";
import { adjacent, besides } from "../model/adjacent.ts";
import type { Graph } from "../model/graph.ts";
import { CODE } from "../model/states.ts";
import { route, set } from "../route.ts";
import { Tree } from "./beside.ts";
import { type Drawn, Legend, placeOf, Selected, useDag, useDrawn } from "./drawing.ts";
import { count, many } from "./format.ts";
import type { Of } from "./graph.ts";
import { html } from "./html.ts";
import { LeftOut } from "./parts.ts";
import { SearchField } from "./tasks.ts";

const COLOURS = ["state", "duration", "worker", "target"] as const;
const ZOOM = 1.4;
/** Of so many tasks the list is made after the drawing has been asked for. */
const LARGE = 5_000;
type Colour = (typeof COLOURS)[number];

/** Tasks that are at most so many edges away from one. */
function near(graph: Graph, place: number, depth: number): ReadonlySet<number> {
  const { before, after } = adjacent(graph.edges, graph.ids.length);
  const found = new Set([place]);
  let edge = [place];
  for (let step = 0; step < depth; step++) {
    const next = edge.flatMap((each) => [...besides(before, each), ...besides(after, each)]);
    edge = [...new Set(next)].filter((each) => !found.has(each));
    for (const each of edge) found.add(each);
  }
  return found;
}

interface Options {
  readonly focus: number;
  readonly depth: number;
  readonly fold: ReadonlySet<string>;
  readonly hide: boolean;
  readonly colour: Colour;
}

function useOptions(graph: Graph): Options {
  const { query } = route.value;
  const folded = query.get("fold") ?? "";
  const name = query.get("focus");
  const colour = query.get("color") as Colour | null;
  return {
    focus: useMemo(() => placeOf(graph, name), [graph.labels, name]),
    depth: Math.max(1, Math.min(20, Number(query.get("depth")) || 2)),
    fold: useMemo(() => new Set(folded.split(",").filter(Boolean).map(decodeURIComponent)), [folded]),
    hide: query.get("hide") === "completed",
    colour: colour && COLOURS.includes(colour) ? colour : "state",
  };
}

function setFold(fold: ReadonlySet<string>): void {
  set({ fold: [...fold].map(encodeURIComponent).join(",") });
}

function turned(fold: ReadonlySet<string>, group: string): ReadonlySet<string> {
  const changed = new Set(fold);
  if (!changed.delete(group)) changed.add(group);
  return changed;
}

function Controls({ graph, options, dag }: { graph: Graph; options: Options; dag: { current: Dag | null } }): VNode {
  const names = useMemo(() => groupsOf(graph).names, [graph.labels, graph.groups]);
  const all = names.length > 0 && names.every((each) => options.fold.has(each));
  const colour = (event: Event): void => {
    const { value } = event.currentTarget as HTMLSelectElement;
    set({ color: value === "state" ? null : value });
  };
  const follow = route.value.query.get("follow") === "1";
  const zoom = (by: number) => () => dag.current?.zoom(by);
  const depth = (event: Event): void => set({ depth: (event.currentTarget as HTMLInputElement).value });
  return html`<div class="filters">
    <${SearchField} />
    <label class="check"><input type="checkbox" checked=${options.hide} title=${keyTitle("hide")}
      onChange=${() => set({ hide: options.hide ? null : "completed" })} /> Hide completed</label>
    <label class="check"><input type="checkbox" checked=${follow} title=${keyTitle("followRunning")}
      onChange=${() => set({ follow: !follow })} /> Follow what runs</label>
    <label class="field">Colour by <select value=${options.colour} onChange=${colour}>
      ${COLOURS.map((each) => {
        return html`<option key=${each} value=${each} selected=${each === options.colour}>${each}</option>`;
      })}
    </select></label>
    ${names.length > 0 && html`<button type="button" onClick=${() => setFold(new Set(all ? [] : names))}>
      ${all ? "Unfold groups" : `Fold ${many(names.length, "group")}`}</button>`}
    ${options.focus >= 0 && html`<label class="field">Steps around it
        <input type="number" min="1" max="20" value=${options.depth} onChange=${depth} /></label>
      <button type="button" onClick=${() => set({ focus: null, depth: null })}>Show all</button>`}
    <span class="actions">
      <button type="button" title=${keyTitle("fit")} onClick=${() => dag.current?.fit()}>Fit</button>
      <button type="button" title=${keyTitle("zoomIn")} aria-label="Zoom in" onClick=${zoom(ZOOM)}>+</button>
      <button type="button" title=${keyTitle("zoomOut")} aria-label="Zoom out" onClick=${zoom(1 / ZOOM)}>−</button>
    </span>
  </div>`;
}

function useDagKeys(graph: Graph, options: Options, drawn: Drawn, dag: { current: Dag | null }): void {
  const { selected } = drawn;
  const walk = (way: "left" | "right" | "up" | "down") => () => {
    const next = selected < 0 ? 0 : dag.current?.walk(selected, way);
    if (next !== undefined) drawn.select(next);
  };
  const groups = groupsOf(graph);
  const focus = (): void => {
    if (options.focus >= 0) set({ focus: null, depth: null });
    else if (selected >= 0) set({ focus: graph.labels[selected]!, depth: options.depth });
  };
  useKeys({
    fit: () => dag.current?.fit(),
    zoomIn: () => dag.current?.zoom(ZOOM),
    zoomOut: () => dag.current?.zoom(1 / ZOOM),
    followRunning: () => set({ follow: route.value.query.get("follow") === null }),
    hide: () => set({ hide: options.hide ? null : "completed" }),
    focus,
    expand: () => {
      const group = groups.names[groups.of[selected] ?? -1];
      if (group) setFold(turned(options.fold, group));
    },
    nextFailed: () => drawn.failed(1),
    lastFailed: () => drawn.failed(-1),
    left: walk("left"),
    right: walk("right"),
    above: walk("up"),
    below: walk("down"),
    open: () => selected >= 0 && drawn.open(selected),
  });
}

/** Select a task that runs as soon as the one that was selected does not. */
function useFollowRunning(graph: Graph, version: number, drawn: Drawn): void {
  const follow = route.value.query.get("follow") === "1";
  useEffect(() => {
    if (!follow || graph.state[drawn.selected] === CODE.running) return;
    const next = graph.state.indexOf(CODE.running!);
    if (next >= 0) drawn.select(next);
  }, [follow, version]);
}

export function DagView({ open, graph }: Of): VNode {
  const options = useOptions(graph);
  const drawn = useDrawn(graph);
  const { canvas, dag } = useDag(graph, open.version, {
    ...(options.focus >= 0 ? { focus: options.focus, depth: options.depth } : {}),
    fold: options.fold,
    hideCompleted: options.hide,
    colour: options.colour,
    drawn,
    turn: (group) => setFold(turned(options.fold, group)),
  });
  useDagKeys(graph, options, drawn, dag);
  useFollowRunning(graph, open.version, drawn);
  const groups = useMemo(() => groupsOf(graph), [graph.labels, graph.groups]);
  const typed = route.value.query.get("q");
  const [begun, setBegun] = useState(graph.ids.length <= LARGE);
  useEffect(() => {
    const timer = setTimeout(() => setBegun(true)); // the drawing is asked for by then, in the worker
    return () => clearTimeout(timer);
  }, []);
  const places = useMemo(() => {
    if (!begun) return [];
    const around = options.focus >= 0 ? near(graph, options.focus, options.depth) : undefined;
    const all = [...graph.ids.keys()].filter((place) => {
      if (around && !around.has(place)) return false;
      if (options.hide && graph.state[place] === CODE.completed) return false;
      return !typed || drawn.found.has(place);
    });
    return all.sort((a, b) => (graph.labels[a]! < graph.labels[b]! ? -1 : 1));
  }, [begun, graph.labels, options.hide && open.version, options.focus, options.depth, drawn.found]);
  return html`<section class="fill">
    <${Controls} graph=${graph} options=${options} dag=${dag} />
    <${LeftOut} edges=${graph.edgesLeftOut} />
    <p class="unseen">${many(graph.ids.length, "task")} and ${count(graph.edges.from.length)} requirements; the list of
      tasks has the same as the drawing.</p>
    <div class="drawing">
      <div class="canvas"><canvas ref=${canvas} aria-hidden="true"></canvas></div>
      <div class="beside">
        <${Selected} graph=${graph} place=${drawn.selected} />
        <p role="status"><small>${many(places.length, "task")}${typed && " found"}</small></p>
        <${Tree} graph=${graph} groups=${groups} fold=${options.fold} places=${places} selected=${drawn.selected}
          select=${drawn.select} open=${drawn.open} turn=${(group: string) => setFold(turned(options.fold, group))} />
      </div>
    </div>
    <${Legend} />
  </section>`;
}
