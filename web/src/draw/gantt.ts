/** What ran when: runs as bars in lanes, on a canvas, with a time axis above and names beside. */

import type { Graph } from "../model/graph.ts";
import type { Lanes, Spans } from "../model/times.ts";
import { ticks } from "./axis.ts";
import { chart, eachBar, extent, hatch, paintBars, type Chart, type Style } from "./bars.ts";
import { Camera, type View } from "./camera.ts";
import { Still, type Size } from "./layer.ts";
import { duration, looks, watchLooks, type Looks } from "./looks.ts";
import type { Context } from "./marks.ts";
import { cut, plain } from "./nodes.ts";
import { paintTip } from "./overlay.ts";

export interface GanttOptions {
  /** The time at the right end of what goes on. */
  readonly now: number;
  readonly utc: boolean;
  /** Tasks of the critical path. */
  readonly critical: ReadonlySet<number>;
  readonly selected?: number | undefined;
  readonly found: ReadonlySet<number>;
}

const [NAMES, AXIS, EDGE] = [170, 28, 14];
/** Pixels of a lane: at least so many when all is shown, so that one scrolls rather than guesses. */
const [LOW, HIGH] = [3, 28];
const FEW = 1200;

export class Gantt {
  /** A click on a bar, or on none. */
  chosen: (place: number | undefined) => void = () => undefined;
  /** Which time is in view, in milliseconds since 1970. */
  seen: (from: number, to: number) => void = () => undefined;

  private readonly context: CanvasRenderingContext2D;
  private readonly camera: Camera;
  private readonly still = new Still(() => this.repaint());
  private readonly stops: (() => void)[];
  private looks: Looks;
  private chart: Chart | undefined;
  private options: GanttOptions | undefined;
  private style: Style | undefined;
  private over: { x: number; y: number } | undefined;
  private frame = 0;
  private fitted = true;

  constructor(readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext("2d", { alpha: false })!;
    this.looks = looks(canvas);
    const hand = {
      moved: () => {
        this.fitted = false;
        this.repaint();
      },
      clicked: (x: number, y: number) => this.chosen(this.at(x, y)),
      over: (x: number, y: number) => this.hover(x, y),
      scrolls: true,
    };
    this.camera = new Camera(canvas, hand, { left: NAMES, top: AXIS, right: EDGE, bottom: EDGE });
    const size = new ResizeObserver(() => this.resize());
    size.observe(canvas);
    this.stops = [() => size.disconnect(), watchLooks(() => this.relook())];
    this.resize();
  }

  show(graph: Graph, spans: Spans, lanes: Lanes, options: GanttOptions): void {
    const before = this.chart;
    const selected = options.selected !== this.options?.selected;
    this.options = options;
    if (before?.spans !== spans || before.lanes !== lanes || before.now !== options.now) {
      this.chart = chart(graph, spans, lanes, options.now);
      const { seconds } = this.chart;
      this.camera.show({ width: seconds, height: Math.max(1, lanes.count), mostX: 4000, mostY: HIGH });
      const first = (all: Lanes | undefined): string | undefined => all?.headings[0]?.name;
      const other = before?.graph.id !== graph.id || first(before.lanes) !== first(lanes);
      if (other || this.fitted) this.fit();
    }
    this.restyle();
    if (selected) this.reveal(options.selected);
  }

  /** All of the time; of the lanes as many as can be seen apart, from the first on. */
  fit(): void {
    this.camera.fit();
    const { ky } = this.camera;
    if (ky < LOW) {
      this.camera.zoom(LOW / ky, 0, 0, "y");
      this.camera.pan(0, 1e9);
    }
    this.fitted = true;
    this.repaint();
  }

  /** A part of the time over the whole width, from the first lane that has something of it: milliseconds since 1970. */
  part(from: number, to: number): void {
    const { chart, camera } = this;
    if (!chart || !(to > from)) return;
    const wanted = (camera.width - NAMES - EDGE) / ((to - from) / 1000);
    camera.zoom(wanted / camera.kx, 0, 0, "x");
    const [left, right] = [(from - chart.zero) / 1000, (to - chart.zero) / 1000];
    let lane = chart.lanes.count;
    for (let span = 0; span < chart.spans.count; span++) {
      const each = extent(chart, span);
      if (each.until >= left && each.from <= right) lane = Math.min(lane, chart.lanes.lane[span]!);
    }
    camera.pan((camera.x - left) * camera.kx + NAMES, (camera.y - lane) * camera.ky + AXIS);
  }

  /** In time. */
  zoom(by: number): void {
    this.camera.zoom(by, (this.camera.width + NAMES) / 2, 0, "x");
  }

  /** In height. */
  zoomLanes(by: number): void {
    this.camera.zoom(by, 0, this.camera.height / 2, "y");
  }

  pan(dx: number, dy: number): void {
    this.camera.pan(dx, dy);
  }

  reveal(place: number | undefined): void {
    const { chart } = this;
    const span = place === undefined || !chart ? -1 : chart.spans.task.lastIndexOf(place);
    if (span >= 0) this.camera.reveal(extent(chart!, span).at, chart!.lanes.lane[span]! + 0.5, NAMES + 20);
  }

  at(x: number, y: number): number | undefined {
    const span = this.spanAt(x, y);
    return span === undefined ? undefined : this.chart!.spans.task[span];
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    for (const stop of this.stops) stop();
    this.still.destroy();
    this.camera.destroy();
  }

  private spanAt(x: number, y: number): number | undefined {
    const { chart, camera } = this;
    if (!chart || x < NAMES || y < AXIS) return undefined;
    const lane = Math.floor(camera.y + y / camera.ky);
    const second = camera.x + x / camera.kx;
    const near = 3 / camera.kx;
    let found: number | undefined;
    const part = { ...camera.view(), y: lane, height: camera.ky * 0.5 };
    eachBar(chart, part, (span, on) => {
      const { from, until } = extent(chart, span);
      if (on === lane && from - near <= second && second <= until + near) found = span;
    });
    return found;
  }

  private relook(): void {
    this.looks = looks(this.canvas);
    this.restyle();
  }

  private restyle(): void {
    if (!this.options) return;
    const { critical, found } = this.options;
    this.style = { looks: this.looks, hatch: hatch(this.context, this.looks.states[1]!), critical, found, left: NAMES };
    this.repaint();
  }

  private get ratio(): number {
    return Math.min(devicePixelRatio || 1, 3);
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.canvas;
    this.canvas.width = Math.max(1, Math.round(clientWidth * this.ratio));
    this.canvas.height = Math.max(1, Math.round(clientHeight * this.ratio));
    this.camera.resize(clientWidth, clientHeight);
    if (this.fitted) this.fit();
    this.paint();
  }

  private repaint(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.paint());
  }

  private world(): Size {
    return { width: this.chart!.seconds, height: this.chart!.lanes.count };
  }

  private paint(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { context, camera, looks, chart, options, style, ratio } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = looks.ground;
    context.fillRect(0, 0, camera.width, camera.height);
    if (!chart || !options || !style) return;
    const view = camera.view();
    const marks = this.ticks(view, options);
    this.paintBands(view, chart);
    context.fillStyle = looks.line;
    for (const { x } of marks) context.fillRect(Math.round(x), AXIS, 1, camera.height);
    const few = this.few(view, chart);
    if (few) paintBars(context, chart, view, style);
    else {
      const without = { ...style, left: 0 };
      const draw = (on: Context, part: View): void => paintBars(on, chart, part, without);
      this.still.paint(context, view, this.world(), ratio, style, draw);
    }
    if (few && options.found.size) eachBar(chart, view, (span) => this.paintRing(view, chart, span, options));
    if (options.selected !== undefined) {
      for (let span = 0; span < chart.spans.count; span++) {
        if (chart.spans.task[span] === options.selected) this.paintRing(view, chart, span, options);
      }
    }
    const now = (chart.now - chart.zero) / 1000;
    if (now <= chart.seconds * 1.001) this.paintNow((now - view.x) * view.kx);
    this.paintNames(view, chart);
    this.paintAxis(marks);
    const at = (x: number): number => chart.zero + (view.x + x / view.kx) * 1000;
    this.seen(at(NAMES), at(view.width - EDGE));
    const over = this.over && this.spanAt(this.over.x, this.over.y);
    if (over !== undefined) paintTip(context, { view, looks }, this.over!, this.tip(over));
  }

  /** Whether what is in view can be drawn in each frame. */
  private few(view: View, chart: Chart): boolean {
    const first = Math.max(0, Math.floor(view.y));
    const last = Math.min(chart.lanes.count, Math.ceil(view.y + view.height / view.ky) + 1);
    if (last - first > FEW) return false;
    let count = 0;
    eachBar(chart, view, () => count++);
    return count <= FEW;
  }

  private ticks(view: View, options: GanttOptions): { x: number; text: string; day: boolean }[] {
    const { zero } = this.chart!;
    const from = zero + (view.x + NAMES / view.kx) * 1000;
    const to = zero + (view.x + view.width / view.kx) * 1000;
    const all = ticks(from, to, (95 / view.kx) * 1000, options.utc);
    return all.map(({ time, text, day }) => ({ x: ((time - zero) / 1000 - view.x) * view.kx, text, day }));
  }

  /** Every second heading has a band, so that its lanes are seen to be one. */
  private paintBands(view: View, { lanes }: Chart): void {
    this.context.fillStyle = this.looks.panel;
    lanes.headings.forEach(({ first, lanes: many }, i) => {
      const [top, high] = [(first - view.y) * view.ky, many * view.ky];
      if (i % 2 || top > view.height || top + high < 0) return;
      this.context.fillRect(0, top, view.width, high);
    });
  }

  private paintRing(view: View, chart: Chart, span: number, options: GanttOptions): void {
    const { context, looks } = this;
    const task = chart.spans.task[span]!;
    const selected = task === options.selected;
    if (!selected && !options.found.has(task)) return;
    const { from, until } = extent(chart, span);
    const [x1, x2] = [(from - view.x) * view.kx, (until - view.x) * view.kx];
    context.strokeStyle = selected ? looks.accent : looks.found;
    context.lineWidth = selected ? 2.5 : 1.5;
    const top = (chart.lanes.lane[span]! - view.y) * view.ky;
    context.strokeRect(x1 - 2, top - 1, Math.max(3, x2 - x1) + 4, view.ky + 2);
  }

  private paintNow(x: number): void {
    const { context, looks, camera } = this;
    context.strokeStyle = looks.accent;
    context.lineWidth = 1.5;
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(x, AXIS);
    context.lineTo(x, camera.height);
    context.stroke();
    context.setLineDash([]);
  }

  private paintNames(view: View, { lanes }: Chart): void {
    const { context, looks } = this;
    context.fillStyle = looks.ground;
    context.fillRect(0, 0, NAMES - 8, view.height);
    context.fillStyle = looks.line;
    context.fillRect(NAMES - 8, AXIS, 1, view.height);
    context.font = `12px ${looks.font}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillStyle = looks.text;
    let free = AXIS;
    for (const { name, first, lanes: many } of lanes.headings) {
      const [top, bottom] = [(first - view.y) * view.ky, (first + many - view.y) * view.ky];
      if (bottom < AXIS) continue;
      if (top > view.height) break;
      // The name of lanes that begin above stays in view.
      const high = many === 1 ? view.ky : Math.min(view.ky, 16);
      const y = Math.max(top + high / 2, Math.min(AXIS + 9, bottom - 7));
      if (y < free + 7) continue;
      context.fillText(cut(context, plain(name) || "none yet", NAMES - 18), 6, y);
      free = y + 7;
    }
  }

  private paintAxis(marks: readonly { x: number; text: string; day: boolean }[]): void {
    const { context, looks, camera } = this;
    context.fillStyle = looks.ground;
    context.fillRect(0, 0, camera.width, AXIS);
    context.fillStyle = looks.line;
    context.fillRect(0, AXIS - 1, camera.width, 1);
    context.textAlign = "left";
    context.textBaseline = "middle";
    for (const { x, text, day } of marks) {
      context.fillStyle = looks.line;
      context.fillRect(Math.round(x), AXIS - 7, 1, 7);
      context.fillStyle = day ? looks.text : looks.quiet;
      context.font = `${day ? "bold " : ""}11px ${looks.font}`;
      context.fillText(text, x + 4, AXIS / 2 - 1);
    }
    context.fillStyle = looks.quiet;
    context.font = `11px ${looks.font}`;
    context.fillText(this.options!.utc ? "UTC" : "local time", 6, AXIS / 2 - 1);
  }

  private tip(span: number): string[] {
    const { graph, spans, now } = this.chart!;
    const { from, at, to } = extent(this.chart!, span);
    const name = plain(graph.labels[spans.task[span]!]!);
    const expected = soon(spans, span, now);
    if (spans.outcome[span] === "expected") return [name, expected];
    const run = spans.run[span]! > 1 ? `run ${spans.run[span]}` : "";
    const waited = at - from > 0.0005 ? `waited ${duration((at - from) * 1000)}` : "";
    const ran = Number.isNaN(spans.start[span]!) ? "" : `ran ${duration((to - at) * 1000)}`;
    const facts = [spans.outcome[span]!, run, waited, ran, plain(spans.worker[span]!)];
    return [name, facts.filter(Boolean).join(" · "), ...(expected ? [expected] : [])];
  }

  private hover(x: number, y: number): void {
    const before = this.over && this.spanAt(this.over.x, this.over.y);
    this.over = Number.isNaN(x) ? undefined : { x, y };
    const now = this.over && this.spanAt(x, y);
    this.canvas.style.cursor = now === undefined ? "grab" : "pointer";
    if (now !== before) this.repaint();
  }
}

/** What a forecast says of a run, "" for nothing. */
function soon(spans: Spans, span: number, now: number): string {
  const [start, end] = [spans.expectedStart[span]!, spans.expectedEnd[span]!];
  if (Number.isNaN(end)) return "";
  const when = (verb: string, time: number): string =>
    time < now ? `was to ${verb} ${duration(now - time)} ago` : `${verb}s in ${duration(time - now)}`;
  const begins = Number.isNaN(spans.start[span]!) ? `${when("begin", start)}, ` : "";
  const outcome = spans.expectedOutcome[span] === "completed" ? "" : `: ${spans.expectedOutcome[span]}`;
  return `forecast: ${begins}${when("end", end)}${outcome}`;
}
