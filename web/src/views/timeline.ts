/** When tasks of a graph waited and ran, on a canvas, and beside it the critical path. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { VNode } from "preact";

import { Gantt } from "../draw/gantt.ts";
import { keyTitle, useKeys } from "../keys.ts";
import type { Graph } from "../model/graph.ts";
import { TASK_STATES } from "../model/states.ts";
import { type By, criticalPath, lanes, type Spans, spans, type Step } from "../model/times.ts";
import { route, set } from "../route.ts";
import { type Drawn, Selected, useDrawn } from "./drawing.ts";
import { count, duration, many, now, timeMode } from "./format.ts";
import { type Of, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { Overview, type Part } from "./overview.ts";
import { Empty, State } from "./parts.ts";
import { SearchField } from "./tasks.ts";

const BY: readonly By[] = ["task", "worker", "target", "group"];

/** Tasks of the critical path that are listed at first, and by each “more”: thousands take long to lay out. */
const [STEPS, MORE_STEPS] = [100, 500];

/** Of so many runs the bars that grow are drawn more rarely. */
const [MANY, MANY_MS] = [5_000, 10_000];

function only(all: Spans, wanted: (task: number) => boolean): Spans {
  const kept = [...all.task.keys()].filter((place) => wanted(all.task[place]!));
  return {
    count: kept.length,
    task: Uint32Array.from(kept, (each) => all.task[each]!),
    run: Uint16Array.from(kept, (each) => all.run[each]!),
    outcome: kept.map((each) => all.outcome[each]!),
    worker: kept.map((each) => all.worker[each]!),
    ready: Float64Array.from(kept, (each) => all.ready[each]!),
    start: Float64Array.from(kept, (each) => all.start[each]!),
    end: Float64Array.from(kept, (each) => all.end[each]!),
  };
}

function Path({ graph, path, drawn }: { graph: Graph; path: readonly Step[]; drawn: Drawn }): VNode {
  const whole = path.reduce((sum, each) => sum + each.seconds, 0);
  const [most, setMost] = useState(STEPS);
  return html`<section class="path" aria-label="Critical path">
    <h2>Critical path: ${duration(whole * 1000)}</h2>
    ${path.length === 0 && html`<${Empty}>No task has ended.</${Empty}>`}
    <ol>${path.slice(0, most).map((each) => html`<li key=${each.task}
      class=${each.task === drawn.selected ? "present" : ""}>
      <${State} state=${TASK_STATES[graph.state[each.task]!]!.name} brief />
      ${" "}<a class="label" href=${taskHref(graph.id, graph.labels[each.task]!)}
        onFocus=${() => drawn.select(each.task)}>${graph.labels[each.task]!}</a>
      ${" "}<small>${duration(each.seconds * 1000)}, ran ${duration(each.ran * 1000)}</small>
    </li>`)}</ol>
    ${path.length > most && html`<button type="button" onClick=${() => setMost(most + MORE_STEPS)}>
      ${count(Math.min(MORE_STEPS, path.length - most))} more of ${count(path.length)} tasks</button>`}
  </section>`;
}

export function Timeline({ open, graph }: Of): VNode {
  const { query } = route.value;
  const by = BY.find((each) => each === query.get("by")) ?? "task";
  const critical = query.get("critical") === "1";
  const drawn = useDrawn(graph);
  const canvas = useRef<HTMLCanvasElement>(null);
  const gantt = useRef<Gantt | null>(null);
  const mark = useRef<((part: Part) => void) | null>(null);
  const path = useMemo(() => criticalPath(graph), [graph, open.version]);
  const all = useMemo(() => {
    const onPath = new Set(path.map((each) => each.task));
    const found = spans(graph);
    return critical ? only(found, (task) => onPath.has(task)) : found;
  }, [graph, open.version, critical]);
  const places = useMemo(() => lanes(graph, all, by, Date.now()), [all, by]);
  const goesOn = useMemo(() => all.end.some(Number.isNaN), [all]);
  const tick = goesOn && Math.floor(now.value / (all.count > MANY ? MANY_MS : 1_000));
  useEffect(() => {
    gantt.current = new Gantt(canvas.current!);
    gantt.current.seen = (begin, end) => mark.current?.({ from: begin, to: end });
    return () => gantt.current?.destroy();
  }, []);
  const [from, to] = [Number(query.get("from")), Number(query.get("to"))];
  const fit = (): void => {
    set({ from: null, to: null });
    gantt.current?.fit();
  };
  useEffect(() => {
    gantt.current!.chosen = drawn.select;
    gantt.current!.show(graph, all, places, {
      now: Date.now(),
      utc: timeMode.value === "utc",
      critical: new Set(path.map((each) => each.task)),
      ...(drawn.selected >= 0 ? { selected: drawn.selected } : {}),
      found: drawn.found,
    });
  }, [all, places, timeMode.value, drawn.selected, drawn.found, tick]);
  useEffect(() => gantt.current!.part(from, to), [from, to]);
  const brushed = (part: Part): void => set({ from: Math.floor(part.from), to: Math.ceil(part.to) });
  const zoom = (factor: number) => () => gantt.current?.zoom(factor);
  const step = (by: 1 | -1) => () => {
    const at = all.task.indexOf(drawn.selected);
    drawn.select(all.task[Math.max(0, Math.min(all.count - 1, at + by))]);
  };
  useKeys({
    fit,
    zoomIn: zoom(1.4),
    zoomOut: zoom(1 / 1.4),
    wider: zoom(1.4),
    narrower: zoom(1 / 1.4),
    left: () => gantt.current?.pan(80, 0),
    right: () => gantt.current?.pan(-80, 0),
    below: step(1),
    above: step(-1),
    critical: () => set({ critical: !critical }),
    nextFailed: () => drawn.failed(1),
    lastFailed: () => drawn.failed(-1),
    open: () => drawn.selected >= 0 && drawn.open(drawn.selected),
  });
  const choose = (event: Event): void => {
    const { value } = event.currentTarget as HTMLSelectElement;
    set({ by: value === "task" ? null : value });
  };
  return html`<section class="fill">
    <div class="filters">
      <${SearchField} />
      <label class="field">Lanes by <select value=${by} onChange=${choose}>
        ${BY.map((each) => html`<option key=${each} value=${each} selected=${each === by}>${each}</option>`)}
      </select></label>
      <label class="check"><input type="checkbox" checked=${critical} title=${keyTitle("critical")}
        onChange=${() => set({ critical: !critical })} /> Critical path alone</label>
      <span class="actions">
        <button type="button" title=${keyTitle("fit")} onClick=${fit}>Fit</button>
        <button type="button" title=${keyTitle("wider")} aria-label="Zoom in" onClick=${zoom(1.4)}>+</button>
        <button type="button" title=${keyTitle("narrower")} aria-label="Zoom out" onClick=${zoom(1 / 1.4)}>−</button>
      </span>
      <span role="status">${many(all.count, "run")}</span>
    </div>
    <p class="unseen">The table of tasks has when each waited and ran; the critical path stands beside the drawing.</p>
    <${Overview} graph=${graph} all=${all} tick=${tick} brushed=${brushed} fit=${fit} marks=${mark} />
    <div class="drawing">
      <div class="canvas"><canvas ref=${canvas} aria-hidden="true"></canvas></div>
      <div class="beside">
        <${Selected} graph=${graph} place=${drawn.selected} />
        <${Path} graph=${graph} path=${path} drawn=${drawn} />
      </div>
    </div>
  </section>`;
}
