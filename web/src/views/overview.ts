/** What ran and what was ready over the time of a graph, above its timeline: a part is brushed to be looked at. */

import { useEffect, useMemo, useRef } from "preact/hooks";
import type { VNode } from "preact";
import type uPlot from "uplot";

import { looks, watchLooks } from "../draw/looks.ts";
import { type Busy, busy, type Hold, holdsOf } from "../model/busy.ts";
import { text } from "../model/columns.ts";
import type { Graph } from "../model/graph.ts";
import { events } from "../model/journal.ts";
import { CODE } from "../model/states.ts";
import type { Spans } from "../model/times.ts";
import { count, duration, now, timeMode } from "./format.ts";
import { html } from "./html.ts";
import { Time, useAsked } from "./parts.ts";
import { read } from "./source.ts";

const PIECES = 400;
const HEIGHT = 96;
const BRUSH_LEAST = 4;
const EVENTS_MAX = 20_000;
const HOLDS_SHOWN = 6;

/** A part of the time, in milliseconds since 1970. */
export interface Part {
  readonly from: number;
  readonly to: number;
}

type Plot = typeof uPlot;

/** What was ends now, and what is forecast begins there. */
function dataOf({ times, running, ready, held, expected }: Busy): uPlot.AlignedData {
  const after = times.findIndex((each) => each > now.peek());
  const first = after < 0 ? times.length : after;
  const past = [running, ready, held].map((each) => each.map((value, place) => (place < first ? value : null)));
  const ahead = expected.map((value, place) => (place < first ? null : value));
  return [times, ...past, ahead] as unknown as uPlot.AlignedData;
}

/** Bands where work was held back: hatched, so that they are seen without their colour. */
function paintHolds(plot: uPlot, holds: readonly Hold[], colour: string): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.strokeStyle = colour;
  ctx.globalAlpha = 0.5;
  for (const { of, from, to } of holds) {
    const left = plot.valToPos(from, "x", true);
    const right = Number.isNaN(to) ? bbox.left + bbox.width : plot.valToPos(to, "x", true);
    const top = of ? bbox.top + (bbox.height * 3) / 4 : bbox.top;
    const high = bbox.top + bbox.height - top;
    ctx.beginPath();
    ctx.rect(left, top, Math.max(1, right - left), high);
    for (let x = left; x < right; x += 6) {
      ctx.moveTo(x, top + high);
      ctx.lineTo(Math.min(right, x + high), top + high - Math.min(high, right - x));
    }
    ctx.stroke();
  }
  ctx.restore();
}

const SECOND = 1_000;
const MINUTE = 60_000;

/** A time of the axis in as many digits as the steps of the axis need. */
function clock(time: number, step: number): string {
  const at = new Date(timeMode.peek() === "utc" ? time : time - new Date(time).getTimezoneOffset() * MINUTE);
  const [day, hours] = at.toISOString().replace("Z", "").split("T") as [string, string];
  if (step >= 1_440 * MINUTE) return day;
  return hours.slice(0, step >= MINUTE ? 5 : step >= SECOND ? 8 : 12);
}

interface Shown {
  data: Busy;
  holds: readonly Hold[];
  brushed: (part: Part) => void;
  fit: () => void;
}

function optionsOf(Plot: Plot, element: HTMLElement, shown: { current: Shown }): uPlot.Options {
  const { states, quiet, font } = looks(element);
  const axis = { stroke: quiet, font: `11px ${font}`, grid: { show: false }, ticks: { size: 4, stroke: quiet } };
  const paths = Plot.paths.stepped!({ align: 1 });
  const line = { paths, points: { show: false }, width: 1.5 };
  const running = states[CODE.running!]!;
  return {
    width: Math.max(100, element.clientWidth),
    height: HEIGHT,
    ms: 1,
    tzDate: (time) => (timeMode.peek() === "utc" ? Plot.tzDate(new Date(time), "Etc/UTC") : new Date(time)),
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false },
    scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.05)] } },
    axes: [
      { ...axis, size: 26, space: 90, values: (_, times, __, ___, step) => times.map((each) => clock(each, step)) },
      { ...axis, size: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e5] },
    ],
    series: [
      {},
      { ...line, stroke: running, fill: `color-mix(in srgb, ${running} 30%, transparent)` },
      { ...line, stroke: states[CODE.pending!]!, dash: [5, 3] },
      { ...line, stroke: quiet, dash: [1, 3] },
      { ...line, stroke: running, dash: [4, 3] },
    ],
    hooks: {
      drawClear: [(plot) => paintHolds(plot, shown.current.holds, quiet)],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < BRUSH_LEAST) return;
          shown.current.brushed({ from: plot.posToVal(left, "x"), to: plot.posToVal(left + width, "x") });
        },
      ],
      ready: [(plot) => plot.over.addEventListener("dblclick", () => shown.current.fit())],
    },
  };
}

/** The chart in an element, made anew for another theme or other times; and what marks the part that is in view. */
function usePlot(given: Shown): { element: { current: HTMLDivElement | null }; mark: (part: Part) => void } {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef(given);
  const seen = useRef<Part | null>(null);
  shown.current = given;
  const mark = (part: Part): void => {
    seen.current = part;
    const { current } = plot;
    if (!current) return;
    const [left, right] = [part.from, part.to].map((time) => {
      return Math.max(0, Math.min(current.over.clientWidth, current.valToPos(time, "x")));
    }) as [number, number];
    current.setSelect({ left, width: right - left, top: 0, height: current.over.clientHeight }, false);
  };
  useEffect(() => {
    const { current: within } = element;
    let over = false;
    let stops: (() => void)[] = [];
    void import("uplot").then(({ default: Plot }) => {
      if (over) return;
      const make = (): void => {
        plot.current?.destroy();
        plot.current = new Plot(optionsOf(Plot, within!, shown), dataOf(shown.current.data), within!);
        if (seen.current) mark(seen.current);
      };
      const size = new ResizeObserver(() => {
        plot.current?.setSize({ width: Math.max(100, within!.clientWidth), height: HEIGHT });
        if (seen.current) mark(seen.current);
      });
      make();
      size.observe(within!);
      stops = [() => size.disconnect(), watchLooks(make), () => plot.current?.destroy()];
    });
    return () => {
      over = true;
      for (const stop of stops) stop();
      plot.current = null;
    };
  }, [timeMode.value]);
  useEffect(() => {
    plot.current?.setData(dataOf(given.data));
    if (seen.current) mark(seen.current);
  }, [given.data, given.holds]);
  return { element, mark };
}

function Holds({ of }: { of: readonly Hold[] | null }): VNode | string {
  if (of === null) return html`<span>Pauses of the past are left out: the journal is long.</span>`;
  return html`<span>${of.slice(-HOLDS_SHOWN).map(({ of: name, from, to }) => html`<span key=${`${name} ${from}`}
    >‖ ${name ? `group ${name}` : "the graph"} held back <${Time} at=${from} />, ${
      Number.isNaN(to) ? "until now" : `for ${duration(to - from)}`}. </span>`)}
    ${of.length > HOLDS_SHOWN && `and ${count(of.length - HOLDS_SHOWN)} before`}</span>`;
}

interface Props {
  graph: Graph;
  all: Spans;
  /** Grows while something goes on. */
  tick: unknown;
  brushed: (part: Part) => void;
  fit: () => void;
  /** Is given what marks the part that is in view. */
  marks: { current: ((part: Part) => void) | null };
}

export function Overview({ graph, all, tick, brushed, fit, marks }: Props): VNode {
  const data = useMemo(() => busy(all, now.peek(), PIECES), [all, tick]);
  const holding = all.outcome.includes("held");
  const asked = useAsked(async () => {
    if (graph.event > EVENTS_MAX) return null;
    return holdsOf(await read((rows) => events(rows, graph.id, 1, Infinity)));
  }, [graph.id, text(graph.header, "held"), holding]);
  const holds = useMemo(() => asked.value ?? [], [asked.value]);
  const { element, mark } = usePlot({ data, holds, brushed, fit });
  marks.current = mark;
  const most = Math.max(0, ...data.running);
  const isForecast = all.expectedEnd.some((each) => !Number.isNaN(each));
  return html`<div class="overview">
    <div ref=${element} aria-hidden="true"></div>
    <p><small><span class="state" data-colour="running">▆ running</span>, ${most >= 1 && `${count(Math.round(most))} at
      most, `}<span class="state" data-colour="pending">╌ ready</span>, ┈ held back${
      isForecast && ", ╌ running as forecast"}; drag to look at a part.
      ${" "}<${Holds} of=${asked.value === undefined ? [] : asked.value} /></small></p>
  </div>`;
}
