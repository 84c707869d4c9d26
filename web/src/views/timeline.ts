/** When tasks of a graph waited and ran, on a canvas, and beside it the critical path. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { VNode } from "preact";

import { Gantt } from "../draw/gantt.ts";
import { keyTitle, useKeys } from "../keys.ts";
import type { Graph } from "../model/graph.ts";
import { TASK_STATES } from "../model/states.ts";
import { expectedRuns, type Forecast } from "../model/forecast.ts";
import { type By, criticalPath, lanes, only, spans, type Step } from "../model/times.ts";
import { route, set } from "../route.ts";
import { type Drawn, Selected, useDrawn } from "./drawing.ts";
import { Asking, EndsAbout, endsOf, NoServer, NothingLeft } from "./forecast.ts";
import { askForecast, forecastOf } from "./forecasts.ts";
import { count, duration, many, now, timeMode } from "./format.ts";
import { type Of, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { Overview, type Part } from "./overview.ts";
import { Empty, State, TroubleBox } from "./parts.ts";
import { source } from "./source.ts";
import { isLive } from "./store.ts";
import { SearchField } from "./tasks.ts";

const BY: readonly By[] = ["task", "worker", "target", "group"];

/** Tasks of the critical path that are listed at first, and by each “more”: thousands take long to lay out. */
const [STEPS, MORE_STEPS] = [100, 500];

/** The forecast, where it is wanted: asked for once when it is first, as each costs the server. */
function useForecast(of: Of, wanted: boolean): Forecast | undefined {
  const shown = wanted && isLive(of.graph.header);
  const asked = forecastOf(of.graph.id);
  useEffect(() => {
    const { busy, value, trouble } = forecastOf(of.graph.id);
    if (shown && source.value?.api && !busy && !value && !trouble) void askForecast(of);
  }, [shown, of.graph.id]);
  return shown ? asked.value : undefined;
}

/** Of so many runs the bars that grow are drawn more rarely. */
const [MANY, MANY_MS] = [5_000, 10_000];

/** The critical path of a forecast, by the places of its tasks. */
function pathOf(graph: Graph, forecast: Forecast): readonly Step[] {
  const places = new Map(graph.ids.map((id, place) => [id, place]));
  return forecast.criticalPath.flatMap(({ taskId, seconds, ranSeconds: ran }) => {
    const task = places.get(taskId);
    return task === undefined ? [] : [{ task, seconds, ran }];
  });
}

/** What is forecast, how old it is, and how it is drawn; or why it is not there. */
function Ahead({ of }: { of: Of }): VNode {
  const { id, header } = of.graph;
  if (!source.value?.api) return html`<${NoServer} id=${id} />`;
  if (!isLive(header)) return html`<${NothingLeft} />`;
  const asked = forecastOf(id);
  const { value: found, trouble } = asked;
  return html`<div class="ahead" aria-busy=${asked.busy}>
    ${Boolean(trouble) && html`<${TroubleBox} trouble=${trouble} />`}
    ${found && html`<p><span class="ghost" aria-hidden="true">◌</span> dashed: what is left, as ${
      found.seeds > 1 ? `the middle one of ${found.seeds} rehearsals has it` : "it was rehearsed"
    }; ${found.finishing > 0 ? "it ends about" : "it moves until"} <${EndsAbout} forecast=${found} />${
      endsOf(found) && `; ${endsOf(found)}`
    }${found.runsLeftOut > 0 && `; ${many(found.runsLeftOut, "run")} left out`}.</p>`}
    <${Asking} of=${of} asked=${asked} />
  </div>`;
}

interface PathProps {
  graph: Graph;
  path: readonly Step[];
  title: string;
  drawn: Drawn;
}

function Path({ graph, path, title, drawn }: PathProps): VNode {
  const whole = path.reduce((sum, each) => sum + each.seconds, 0);
  const [most, setMost] = useState(STEPS);
  return html`<section class="path" aria-label=${title}>
    <h2>${title}: ${duration(whole * 1000)}</h2>
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

export function Timeline(of: Of): VNode {
  const { open, graph } = of;
  const { query } = route.value;
  const by = BY.find((each) => each === query.get("by")) ?? "task";
  const critical = query.get("critical") === "1";
  const drawn = useDrawn(graph);
  const canvas = useRef<HTMLCanvasElement>(null);
  const gantt = useRef<Gantt | null>(null);
  const mark = useRef<((part: Part) => void) | null>(null);
  const wanted = query.get("forecast") === "1";
  const forecast = useForecast(of, wanted);
  const path = useMemo(
    () => (forecast ? pathOf(graph, forecast) : criticalPath(graph)),
    [graph, open.version, forecast],
  );
  const expected = useMemo(() => forecast && expectedRuns(graph.ids, forecast), [graph.ids, forecast]);
  const all = useMemo(() => {
    const onPath = new Set(path.map((each) => each.task));
    const found = spans(graph, expected);
    return critical ? only(found, (task) => onPath.has(task)) : found;
  }, [graph, open.version, critical, expected]);
  const places = useMemo(() => lanes(graph, all, by, Date.now()), [all, by]);
  const ahead = useMemo(() => all.outcome.reduce((sum, each) => sum + Number(each === "expected"), 0), [all]);
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
    // Past more runs of the same task, and of tasks that have been passed with an earlier one.
    let at = all.task.indexOf(drawn.selected) + by;
    while (at > 0 && at < all.count && all.task.indexOf(all.task[at]!) < at) at += by;
    if (at < all.count) drawn.select(all.task[Math.max(0, at)]);
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
    forecast: () => set({ forecast: !wanted }),
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
      <label class="check"><input type="checkbox" checked=${wanted} title=${keyTitle("forecast")}
        onChange=${() => set({ forecast: !wanted })} /> Forecast</label>
      <span class="actions">
        <button type="button" title=${keyTitle("fit")} onClick=${fit}>Fit</button>
        <button type="button" title=${keyTitle("wider")} aria-label="Zoom in" onClick=${zoom(1.4)}>+</button>
        <button type="button" title=${keyTitle("narrower")} aria-label="Zoom out" onClick=${zoom(1 / 1.4)}>−</button>
      </span>
      <span role="status">${many(all.count - ahead, "run")}${ahead > 0 && `, ${count(ahead)} to come`}</span>
    </div>
    <p class="unseen">The table of tasks has when each waited and ran; the critical path, and the task that is selected,
      stand beside the drawing.</p>
    ${wanted && html`<${Ahead} of=${of} />`}
    <${Overview} graph=${graph} all=${all} tick=${tick} brushed=${brushed} fit=${fit} marks=${mark} />
    <div class="drawing">
      <div class="canvas"><canvas ref=${canvas} aria-hidden="true"></canvas></div>
      <div class="beside">
        <${Selected} graph=${graph} place=${drawn.selected} expected=${expected?.get(drawn.selected)} />
        <${Path} graph=${graph} path=${path} drawn=${drawn}
          title=${forecast ? "Critical path of the forecast" : "Critical path"} />
      </div>
    </div>
  </section>`;
}
