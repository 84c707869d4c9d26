/** A graph as tasks and edges on a canvas: groups, counts, marks or labelled boxes, as near as one looks. */

import type { Graph } from "../model/graph.ts";
import { TASK_STATES } from "../model/states.ts";
import { Camera, type View } from "./camera.ts";
import { clusterAt, clusters, paintClusters, type Clusters } from "./clusters.ts";
import { Desk } from "./desk.ts";
import type { Mark } from "./edges.ts";
import { groupsOf, type Groups } from "./groups.ts";
import { around, copy, covers, Still, type Size } from "./layer.ts";
import { links } from "./layout.ts";
import { duration, looks, watchLooks, type Looks } from "./looks.ts";
import { SmallMap } from "./map.ts";
import { eachInView, markOf, paintBars, paintMarks, shownOf, stageOf } from "./marks.ts";
import type { By, Context, Shown, Sight, Stage } from "./marks.ts";
import { paintFolded, paintNodes, plain } from "./nodes.ts";
import { paintFound, paintRing, paintRoads, paintTip, type Roads } from "./overlay.ts";
import { nodeAt, scene, sketch, visible, type Before, type Scene, type Wanted } from "./scene.ts";

export interface DagOptions extends Wanted {
  readonly colour: By;
  readonly selected?: number | undefined;
  readonly found: ReadonlySet<number>;
}

/** The world in a picture, and for which looks and states it was drawn. */
interface Picture {
  readonly image: ImageBitmap;
  readonly view: View;
  readonly of: object;
}

interface Wish {
  readonly ids: readonly string[];
  readonly centre: string;
  readonly rest: string;
  readonly mask: Uint8Array;
}

/** What is drawn at once, frame by frame; more goes into a picture first. */
const FEW = 2500;

/** Whether the marks in view can be drawn in each frame. */
function few(scene: Scene, view: View): boolean {
  if (scene.count <= FEW) return true;
  if (view.height / view.ky > FEW || view.width / view.kx > FEW) return false;
  let count = 0;
  eachInView(scene, view, () => count++);
  return count <= FEW;
}

export class Dag {
  /** A click on a task, or on none. */
  chosen: (place: number | undefined) => void = () => undefined;
  /** A click on what stands for a group. */
  group: (name: string) => void = () => undefined;

  private readonly camera: Camera;
  private readonly desk: Desk;
  private readonly context: CanvasRenderingContext2D;
  private readonly map = new SmallMap();
  private readonly stops: (() => void)[];
  private looks: Looks;
  private graph: Graph | undefined;
  private options: DagOptions | undefined;
  /** Those of the graph; of one without, what its labels begin with. */
  groups: Groups = { names: [], of: new Int32Array() };
  private scene: Scene | undefined;
  private clusters: Clusters | undefined;
  private roads: Roads | undefined;
  private shown: Shown | undefined;
  /** What was asked for last: which tasks of which graph, around which one, folded how. */
  private wanted: Wish | undefined;
  /** The last graph shown; `graph` is the one that is drawn, until all of this one have places. */
  private latest: Graph | undefined;
  private settled = false;
  private turn = 0;
  private edges: Picture | undefined;
  private readonly marks = new Still(() => this.repaint());
  private frame = 0;
  private over: { x: number; y: number } | undefined;
  private before: Before | undefined;

  constructor(
    readonly canvas: HTMLCanvasElement,
    worker: Worker,
  ) {
    this.context = canvas.getContext("2d", { alpha: false })!;
    this.desk = new Desk(worker);
    this.looks = looks(canvas);
    this.camera = new Camera(canvas, {
      moved: () => this.repaint(),
      clicked: (x, y) => this.click(x, y),
      over: (x, y) => this.hover(x, y),
      takes: (x, y) => this.toMap(x, y),
    });
    const size = new ResizeObserver(() => this.resize());
    size.observe(canvas);
    this.stops = [() => size.disconnect(), watchLooks(() => this.relook())];
    this.resize();
  }

  /**
   * Draws a graph. Where only states changed, tasks stay where they are; a graph with other tasks has other `ids`, and
   * is drawn as it was until these have places.
   */
  show(graph: Graph, options: DagOptions): void {
    const { wanted } = this;
    const selected = options.selected !== this.options?.selected;
    this.options = options;
    this.latest = graph;
    const { focus, depth, fold, hideCompleted } = options;
    const centre = [graph.id, focus ?? "", focus === undefined ? "" : (depth ?? 2)].join("\n");
    const rest = [graph.edges.from.length, hideCompleted, ...[...fold].sort()].join("\n");
    const same = wanted?.ids === graph.ids && wanted.centre === centre && wanted.rest === rest;
    const mask = same && !hideCompleted ? wanted.mask : visible(graph, options);
    if (same && mask.every((each, i) => each === wanted.mask[i])) {
      if (this.settled) this.graph = graph;
      this.restate();
      if (selected) this.reveal(options.selected);
      return;
    }
    const fits = wanted?.centre !== centre;
    if (fits) this.before = undefined;
    if (this.graph?.id !== graph.id) this.scene = undefined;
    this.wanted = { ids: graph.ids, centre, rest, mask };
    void this.arrange(graph, mask, fits);
  }

  fit(): void {
    this.camera.fit();
  }

  zoom(by: number): void {
    this.camera.zoom(by);
  }

  pan(dx: number, dy: number): void {
    this.camera.pan(dx, dy);
  }

  /** Brings a task into view. */
  reveal(place: number | undefined): void {
    const node = place === undefined ? -1 : (this.scene?.node[place] ?? -1);
    if (node >= 0) this.camera.reveal(this.scene!.x[node]! + 0.5, this.scene!.y[node]! + 0.5);
  }

  /** The task next to this one: along an edge, or above and below it. */
  walk(place: number, way: "left" | "right" | "up" | "down"): number | undefined {
    const { scene, roads } = this;
    const node = scene?.node[place] ?? -1;
    if (node < 0 || !scene || !roads) return undefined;
    const { x, y, left, right, columnStart, first } = scene;
    const far = (other: number): number =>
      Math.abs(y[other]! - y[node]!) + Math.abs(left[other]! - left[node]!) * 2 + Math.abs(x[other]! - x[node]!) * 0.01;
    const nearest = (nodes: Iterable<number>): number | undefined => {
      const [one] = [...nodes].sort((a, b) => far(a) - far(b));
      return one === undefined ? undefined : first[one]!;
    };
    if (way === "left" || way === "right") {
      const { start, other } = way === "left" ? roads.before : roads.after;
      return nearest(other.subarray(start[node], start[node + 1]));
    }
    const down = way === "down";
    const level = scene.byColumn.subarray(columnStart[left[node]!], columnStart[right[node]! + 1]);
    return nearest(level.filter((other) => (down ? y[other]! > y[node]! : y[other]! < y[node]!)));
  }

  /** The task at a pixel of the canvas; none for a group. */
  at(x: number, y: number): number | undefined {
    const node = this.nodeAt(x, y);
    if (node === undefined || this.scene!.folded[node]! >= 0) return undefined;
    return this.scene!.first[node];
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    this.marks.destroy();
    this.turn++;
    for (const stop of this.stops) stop();
    this.camera.destroy();
    this.desk.destroy();
  }

  private async arrange(graph: Graph, mask: Uint8Array, fits: boolean): Promise<void> {
    const turn = ++this.turn;
    this.settled = false;
    const known = graph.ids === this.graph?.ids && graph.groups.length === 0;
    const groups = known ? this.groups : groupsOf(graph);
    const drawn = sketch(graph, groups, mask, this.options!.fold, this.before);
    const places = await this.desk.places(drawn.shape);
    if (turn !== this.turn) return;
    this.before = { ids: graph.ids, first: drawn.first, places };
    const now = scene(drawn, places);
    [this.scene, this.graph, this.groups, this.settled] = [now, this.latest, groups, true];
    this.clusters = clusters(graph, groups, now.node);
    const { from, to } = now.edges;
    this.roads = { before: links(now.count, to, from), after: links(now.count, from, to) };
    const { x, y, left, right, row } = now;
    this.desk.lines({ x, y, left, right, from, to, row });
    this.edges?.image.close();
    this.edges = undefined;
    const { fitted } = this.camera;
    this.camera.show({ width: now.columns, height: now.height, mostX: 290, mostY: 40 });
    this.restate();
    if (fits || fitted) this.fit();
    this.reveal(this.options!.selected);
  }

  private restate(): void {
    if (!this.scene || !this.graph) return;
    this.shown = shownOf(this.scene, this.graph, this.options!.colour, this.looks, Date.now());
    this.map.draw(this.scene, this.shown);
    this.repaint();
  }

  private relook(): void {
    this.looks = looks(this.canvas);
    this.restate();
    this.repaint();
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.canvas;
    const { ratio } = this;
    this.canvas.width = Math.max(1, Math.round(clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(clientHeight * ratio));
    const { fitted } = this.camera;
    this.camera.resize(clientWidth, clientHeight);
    if (fitted) this.camera.fit();
    this.paint();
  }

  private get ratio(): number {
    return Math.min(devicePixelRatio || 1, 3);
  }

  private repaint(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.paint());
  }

  private stage(): Stage {
    return stageOf(this.camera, this.camera.whole, this.clusters?.names.length ?? 0);
  }

  private paint(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { context, camera, looks, scene, shown, graph, options } = this;
    const { ratio } = this;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = looks.ground;
    context.fillRect(0, 0, camera.width, camera.height);
    if (!scene || !shown || !graph || !options) return;
    const stage = this.stage();
    if (stage === 0) {
      paintClusters(context, this.clusters!, graph, looks, camera);
      return;
    }
    const view = camera.view();
    const mark = markOf(view, stage);
    const sight = { scene, graph, groups: this.groups, view, shown, looks, mark, now: Date.now() };
    this.paintEdges(view, mark);
    const selected = options.selected === undefined ? -1 : (scene.node[options.selected] ?? -1);
    const over = this.over ? (this.nodeAt(this.over.x, this.over.y) ?? -1) : -1;
    for (const node of new Set([selected, over])) if (node >= 0) paintRoads(context, sight, this.roads!, node);
    if (stage === 3) {
      paintNodes(context, sight);
      if (options.found.size) paintFound(context, sight, options.found);
    } else this.paintSmall(sight, stage);
    if (selected >= 0) paintRing(context, sight, selected);
    if (over >= 0) paintTip(context, sight, this.over!, this.tip(over));
    const { kx, ky } = camera.whole;
    if (view.kx > kx * 1.05 || view.ky > ky * 1.05) this.map.paint(context, view, this.world(), looks);
  }

  private world(): Size {
    return { width: this.scene!.columns, height: this.scene!.height };
  }

  /** Copies the picture of the edges, and asks for another where it does not fit any more. */
  private paintEdges(view: View, mark: Mark): void {
    const { edges, looks, scene } = this;
    if (edges) copy(this.context, edges.image, edges.view, view, this.ratio);
    const fits = edges && edges.of === looks && covers(edges.view, view, this.world());
    if (fits || this.desk.busy) return;
    const wide = around(view, this.world());
    const pen = { view: wide, mark, colour: looks.edge, ratio: Math.min(this.ratio, 2) };
    this.desk.picture(pen, (image) => {
      if (scene !== this.scene) image.close();
      else {
        this.edges?.image.close();
        this.edges = { image, view: wide, of: looks };
      }
      this.repaint();
    });
  }

  /** Marks or bars: at once where they are few, else by a picture. */
  private paintSmall(sight: Sight, stage: Stage): void {
    const { context } = this;
    const { scene, shown, view } = sight;
    const { found } = this.options!;
    const draw = (on: Context, part: Sight): void => {
      if (stage === 2) paintMarks(on, part);
      else paintBars(on, part);
      paintFolded(on, part);
      if (found.size) paintFound(on, part, found);
    };
    if (few(scene, view)) {
      draw(context, sight);
      return;
    }
    const { ratio, marks } = this;
    marks.paint(context, view, this.world(), ratio, shown, (on, part) => draw(on, { ...sight, view: part }));
  }

  private nodeAt(x: number, y: number): number | undefined {
    const { scene, camera } = this;
    const stage = this.stage();
    if (!scene || stage === 0) return undefined;
    const mark = markOf(camera, stage);
    const near = { x: Math.max(mark.width / 2 + 2, 5) / camera.kx, y: Math.max(mark.height / 2 + 1, 4) / camera.ky };
    return nodeAt(scene, camera.x + x / camera.kx - 0.5, camera.y + y / camera.ky - 0.5, near);
  }

  private tip(node: number): string[] {
    const { scene, graph } = this;
    const [task, many] = [scene!.first[node]!, scene!.start[node + 1]! - scene!.start[node]!];
    const folded = scene!.folded[node]!;
    if (folded >= 0) return [plain(this.groups.names[folded]!), `${many} tasks`];
    if (many > 1) return [plain(graph!.labels[task]!), `and ${many - 1} behind it, one after the other`];
    const took = duration((graph!.ended[task] || Date.now()) - graph!.started[task]!);
    const state = TASK_STATES[graph!.state[task]!]!;
    const run = graph!.run[task]! > 1 && `run ${graph!.run[task]}`;
    const facts = [`${state.mark} ${state.name}`, took, run, graph!.held[task] && "held"];
    return [plain(graph!.labels[task]!), facts.filter(Boolean).join(" · ")];
  }

  private click(x: number, y: number): void {
    if (this.stage() === 0) {
      const name = clusterAt(this.clusters!, x, y, this.camera.width, this.camera.height);
      if (name !== undefined) this.group(name);
      return;
    }
    const node = this.nodeAt(x, y);
    const folded = node === undefined ? -1 : this.scene!.folded[node]!;
    if (folded >= 0) this.group(this.groups.names[folded]!);
    else this.chosen(this.at(x, y));
  }

  private hover(x: number, y: number): void {
    const before = this.over && this.nodeAt(this.over.x, this.over.y);
    this.over = Number.isNaN(x) ? undefined : { x, y };
    const now = this.over && this.nodeAt(x, y);
    this.canvas.style.cursor = now === undefined ? "grab" : "pointer";
    if (now !== before) this.repaint();
  }

  private toMap(x: number, y: number): boolean {
    const { camera } = this;
    const { kx, ky } = camera.whole;
    if (!this.scene || (camera.kx <= kx * 1.05 && camera.ky <= ky * 1.05)) return false;
    const to = this.map.at(x, y, camera, this.world());
    if (to) camera.centre(to.x, to.y);
    return to !== undefined;
  }
}
