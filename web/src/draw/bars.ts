/** Runs as bars: waiting hatched, running solid, lost or tried again outlined, held grey; what is forecast dashed. */

import type { Graph } from "../model/graph.ts";
import { CODE, TASK_STATES } from "../model/states.ts";
import { type Lanes, lasts, type Spans } from "../model/times.ts";
import type { View } from "./camera.ts";
import { duration, type Looks } from "./looks.ts";
import type { Context } from "./marks.ts";
import { cut, plain } from "./nodes.ts";

/** Runs by lane and then by time, so that those in view are found fast. */
export interface Chart {
  readonly graph: Graph;
  readonly spans: Spans;
  readonly lanes: Lanes;
  /** Runs of lane `l`: `order[start[l]]` up to `order[start[l + 1]]`. */
  readonly start: Uint32Array;
  readonly order: Uint32Array;
  /** Milliseconds since 1970 at the left end; `x` of the drawing counts seconds from there. */
  readonly zero: number;
  readonly now: number;
  readonly seconds: number;
}

export function chart(graph: Graph, spans: Spans, lanes: Lanes, now: number): Chart {
  const start = new Uint32Array(lanes.count + 1);
  for (let i = 0; i < spans.count; i++) start[lanes.lane[i]! + 1]!++;
  for (let i = 0; i < lanes.count; i++) start[i + 1]! += start[i]!;
  const next = start.slice();
  const order = new Uint32Array(spans.count);
  // Spans are in the order of time already.
  for (let i = 0; i < spans.count; i++) order[next[lanes.lane[i]!]!++] = i;
  let [zero, last] = [Infinity, -Infinity];
  for (let i = 0; i < spans.count; i++) {
    const begins = spans.ready[i]! <= spans.start[i]! ? spans.ready[i]! : spans.start[i]! || spans.ready[i]!;
    if (begins < zero) zero = begins;
    if (spans.expectedStart[i]! < zero) zero = spans.expectedStart[i]!;
    last = Math.max(last, lasts(spans, i, now));
  }
  if (zero > last) [zero, last] = [now - 1000, now];
  return { graph, spans, lanes, start, order, zero, now, seconds: Math.max(0.05, (last - zero) / 1000) };
}

/**
 * From when to when a run is drawn, in seconds of the drawing: `at` parts waiting from running, `to` ends what was.
 * What is forecast of it lies between `soon` and `until`, which ends the whole.
 */
interface Extent {
  readonly from: number;
  readonly at: number;
  readonly to: number;
  readonly soon: number;
  readonly until: number;
}

export function extent({ spans, zero, now }: Chart, span: number): Extent {
  const [ready, began, soon] = [spans.ready[span]!, spans.start[span]!, spans.expectedStart[span]!];
  const to = spans.outcome[span] === "expected" ? soon : spans.end[span] || now;
  const at = Number.isNaN(began) ? to : began;
  const from = ready <= at ? ready : at;
  const present = Math.max(to, at);
  return {
    from: (from - zero) / 1000,
    at: (at - zero) / 1000,
    to: (present - zero) / 1000,
    soon: ((Number.isNaN(began) && !Number.isNaN(soon) ? soon : present) - zero) / 1000,
    until: (Math.max(present, lasts(spans, span, now)) - zero) / 1000,
  };
}

export interface Style {
  readonly looks: Looks;
  readonly hatch: CanvasPattern;
  readonly critical: ReadonlySet<number>;
  readonly found: ReadonlySet<number>;
  /** Pixels at the left that names cover. */
  readonly left: number;
}

export function hatch(context: Context, colour: string): CanvasPattern {
  const tile = new OffscreenCanvas(6, 6);
  const on = tile.getContext("2d")!;
  on.strokeStyle = colour;
  on.lineWidth = 1.3;
  for (const shift of [-6, 0, 6]) {
    on.moveTo(shift, 6);
    on.lineTo(shift + 6, 0);
  }
  on.stroke();
  return context.createPattern(tile, "repeat")!;
}

export function eachBar(chart: Chart, view: View, act: (span: number, lane: number) => void): void {
  const { start, order, lanes } = chart;
  const first = Math.max(0, Math.floor(view.y));
  const last = Math.min(lanes.count - 1, Math.ceil(view.y + view.height / view.ky));
  const [left, right] = [view.x, view.x + view.width / view.kx];
  for (let lane = first; lane <= last; lane++) {
    let [low, high] = [start[lane]!, start[lane + 1]!];
    const end = high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (extent(chart, order[middle]!).until < left) low = middle + 1;
      else high = middle;
    }
    for (let k = low; k < end; k++) {
      if (extent(chart, order[k]!).from > right) break;
      act(order[k]!, lane);
    }
  }
}

export function paintBars(context: Context, chart: Chart, view: View, style: Style): void {
  const high = Math.max(1, Math.min(view.ky * 0.78, view.ky - 1, 22));
  context.textBaseline = "middle";
  // Where bars are less than a pixel apart only the first of each pixel is drawn, and what failed.
  let [lastLane, lastPixel] = [-1, -1];
  const over: (() => void)[] = [];
  const ghosts: Ghost[] = [];
  const step = Math.max(1, Math.floor(0.7 / view.ky));
  eachBar(chart, view, (span, lane) => {
    const bad = OUTLINED.has(chart.spans.outcome[span]!) || chart.spans.outcome[span] === "failed";
    if (!bad && lane % step) return;
    const { from, at, to, soon, until } = extent(chart, span);
    const x = (second: number): number => (second - view.x) * view.kx;
    const [x1, x2, x3, x4] = [x(from), x(at), x(to), x(until)];
    const pixel = Math.floor(x4);
    if (!bad && x4 - x1 < 1 && lane === lastLane && pixel === lastPixel) return;
    [lastLane, lastPixel] = [lane, pixel];
    const y = (lane + 0.5 - view.y) * view.ky;
    const ends = (chart.spans.expectedEnd[span]! - chart.zero) / 1000;
    if (ends > soon) ghosts.push({ span, x1: Math.max(-50, x(soon)), x2: Math.min(view.width + 50, x(ends)), y });
    if (chart.spans.outcome[span] === "expected") return;
    const bar = { x1: Math.max(-50, x1), x2: Math.max(-50, x2), x3, y, high };
    paintWait(context, chart, span, bar, style);
    over.push(() => paintBar(context, chart, span, bar, style));
  });
  paintGhosts(context, chart, ghosts, high, style);
  // In the lane of a worker a task waited while another one ran: what ran lies above.
  for (const paint of over) paint();
  context.globalAlpha = 1;
}

/** Outcomes of runs that another run follows. */
const OUTLINED = new Set(["lost", "handed-back", "stopped", "temporary", "exception"]);

/** In pixels: it waits from `x1`, runs from `x2`, ends at `x3`; `y` is its middle. */
interface Bar {
  readonly x1: number;
  readonly x2: number;
  readonly x3: number;
  readonly y: number;
  readonly high: number;
}

/** Between what was found the rest is pale. */
function fade(context: Context, task: number, found: ReadonlySet<number>): void {
  context.globalAlpha = found.size && !found.has(task) ? 0.25 : 1;
}

function paintWait(context: Context, { spans }: Chart, span: number, bar: Bar, { looks, hatch, found }: Style): void {
  const { x1, x2, y, high } = bar;
  if (x2 - x1 <= 0.5) return;
  fade(context, spans.task[span]!, found);
  const top = y - high / 2;
  if (spans.outcome[span] === "held") {
    context.fillStyle = looks.line;
    context.fillRect(x1, top, x2 - x1, high);
  } else if (high >= 5 && x2 - x1 > 3) {
    context.fillStyle = hatch;
    context.fillRect(x1, top + 1, x2 - x1, high - 2);
  } else {
    context.fillStyle = looks.states[CODE["pending"]!]!;
    context.fillRect(x1, y - high / 6, x2 - x1, high / 3);
  }
}

function paintBar(context: Context, chart: Chart, span: number, bar: Bar, style: Style): void {
  const { looks, critical, found, left } = style;
  const { x2, x3, y, high } = bar;
  const { graph, spans } = chart;
  const [outcome, task] = [spans.outcome[span]!, spans.task[span]!];
  const top = y - high / 2;
  fade(context, task, found);
  const wide = Math.max(1, x3 - x2);
  if (x3 > x2 || !Number.isNaN(spans.start[span]!)) {
    const state = CODE[outcome] ?? CODE["exception"]!;
    const again = spans.run[span]! < graph.run[task]! || OUTLINED.has(outcome) || !(outcome in CODE);
    const colour = looks.states[state]!;
    context.fillStyle = again ? looks.ground : colour;
    context.fillRect(x2, top, wide, high);
    if (again && high >= 4) {
      context.strokeStyle = colour;
      context.lineWidth = 1.5;
      context.strokeRect(x2 + 0.75, top + 0.75, Math.max(0.5, wide - 1.5), high - 1.5);
    } else if (again) {
      context.fillStyle = colour;
      context.fillRect(x2, y - high / 4, wide, high / 2);
    }
    if (high >= 10 && wide > 14) {
      context.fillStyle = again ? colour : looks.ground;
      paintText(context, chart, span, { ...bar, x2: Math.max(x2, left) }, looks);
    }
  }
  if (critical.has(task) && x3 > x2) {
    context.fillStyle = looks.text;
    const thick = high >= 8 ? 3 : 1.5;
    context.fillRect(x2, top + high - thick / 2, wide, thick);
  }
}

/** The forecast of a run, in pixels; `y` is its middle. */
interface Ghost {
  readonly span: number;
  readonly x1: number;
  readonly x2: number;
  readonly y: number;
}

/** Outlines of dashes, those of one colour at once; of low ones a line of dashes. */
function paintGhosts(context: Context, chart: Chart, all: readonly Ghost[], high: number, style: Style): void {
  const { looks, found, critical, left } = style;
  const { graph, spans } = chart;
  const isPale = ({ span }: Ghost): boolean => found.size > 0 && !found.has(spans.task[span]!);
  const fails = ({ span }: Ghost): boolean => spans.expectedOutcome[span] !== "completed";
  const tall = high >= 5;
  context.setLineDash(tall ? [4, 3] : [3, 2]);
  context.lineWidth = tall ? 1.2 : Math.max(1, high / 2);
  for (const [bad, pale] of [[false, true], [true, true], [false, false], [true, false]]) {
    context.globalAlpha = pale ? 0.25 : 1;
    context.strokeStyle = bad ? looks.states[CODE["failed"]!]! : looks.edge;
    context.beginPath();
    for (const each of all) {
      if (fails(each) !== bad || isPale(each) !== pale) continue;
      const { x1, x2, y } = each;
      if (tall) context.rect(x1 + 0.6, y - high / 2 + 0.6, Math.max(1, x2 - x1 - 1.2), high - 1.2);
      else {
        context.moveTo(x1, y);
        context.lineTo(Math.max(x1 + 1, x2), y);
      }
    }
    context.stroke();
  }
  context.setLineDash([]);
  const named = chart.lanes.headings.length < chart.lanes.count;
  for (const each of all) {
    const { span, x2, y } = each;
    const x1 = Math.max(each.x1, left);
    context.globalAlpha = isPale(each) ? 0.25 : 1;
    context.fillStyle = fails(each) ? looks.states[CODE["failed"]!]! : looks.quiet;
    const task = spans.task[span]!;
    if (critical.has(task)) context.fillRect(each.x1, y + high / 2 - 1, Math.max(1, x2 - each.x1), high >= 8 ? 2 : 1);
    if (high < 10 || x2 - x1 <= 14) continue;
    const mark = fails(each) ? TASK_STATES[CODE["failed"]!]!.mark : "◌";
    const lasts = duration(spans.expectedEnd[span]! - spans.expectedStart[span]!);
    const text = x2 - x1 < 46 ? mark : `${mark} ${named ? plain(graph.labels[task]!) : lasts}`;
    write(context, text, { x1, x2, y, high }, looks);
  }
  context.globalAlpha = 1;
}

/** A text within a bar, as much of it as there is room for. */
function write(
  context: Context,
  text: string,
  { x1, x2, y, high }: { x1: number; x2: number; y: number; high: number },
  looks: Looks,
): void {
  context.textAlign = "left";
  context.font = `${Math.max(9, Math.min(12, Math.round(high * 0.75)))}px ${looks.font}`;
  context.fillText(cut(context, text, x2 - x1 - 8), x1 + 4, y + 0.5);
}

function paintText(context: Context, { graph, spans, lanes, now }: Chart, span: number, bar: Bar, looks: Looks): void {
  const { x2: from, x3: to, y, high } = bar;
  const state = TASK_STATES[CODE[spans.outcome[span]!] ?? CODE["exception"]!]!;
  // Where each lane is a task its name stands beside the lane already.
  const [begins, label] = [spans.start[span]!, plain(graph.labels[spans.task[span]!]!)];
  const said = lanes.headings.length < lanes.count ? label : duration((spans.end[span] || now) - begins);
  const text = to - from < 46 ? state.mark : `${state.mark} ${said}`;
  write(context, text, { x1: from, x2: to, y, high }, looks);
}
