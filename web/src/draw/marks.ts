/** Tasks as small marks, and where these would be too small, as bars that count them. */

import type { Graph } from "../model/graph.ts";
import { CODE, TASK_STATES } from "../model/states.ts";
import type { View } from "./camera.ts";
import type { Mark } from "./edges.ts";
import type { Groups } from "./groups.ts";
import type { Looks } from "./looks.ts";
import type { Scene } from "./scene.ts";

export type Context = CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D;

/** How much is to be seen: groups; counts by level and state; marks; nodes with labels. */
export type Stage = 0 | 1 | 2 | 3;

/** What each node shows, worked out anew when states change. */
export interface Shown {
  readonly palette: readonly string[];
  /** A place in `palette`. */
  readonly colour: Uint8Array;
  /** Of a node of many tasks the one that matters most. */
  readonly state: Uint8Array;
}

const GRAVE = ["failed", "exception", "running", "pending", "unscheduled", "cancelled", "skipped", "completed"];
const RANK = Uint8Array.from(TASK_STATES, (each) => (GRAVE.indexOf(each.name) + GRAVE.length + 1) % (GRAVE.length + 1));
export const BAD = new Set([CODE["failed"]!, CODE["exception"]!]);

export function stageOf(view: View, whole: { kx: number; ky: number }, groups: number): Stage {
  if (view.kx >= 105 && view.ky >= 15) return 3;
  if (groups > 1 && view.kx < whole.kx * 0.85 && view.ky < whole.ky * 0.85) return 0;
  return view.ky >= 1.9 ? 2 : 1;
}

export function markOf(view: View, stage: Stage): Mark {
  if (stage === 3) return { width: Math.min(view.kx * 0.78, 226), height: Math.min(view.ky - 4, 34) };
  return { width: Math.max(1.5, Math.min(view.kx * 0.42, 26)), height: Math.max(1, Math.min(view.ky * 0.72, 12)) };
}

export type By = "state" | "duration" | "worker" | "target";

/** All that one frame is drawn from. */
export interface Sight {
  readonly scene: Scene;
  readonly graph: Graph;
  readonly groups: Groups;
  readonly view: View;
  readonly shown: Shown;
  readonly looks: Looks;
  readonly mark: Mark;
  readonly now: number;
}

export function shownOf(scene: Scene, graph: Graph, by: By, looks: Looks, now: number): Shown {
  const state = new Uint8Array(scene.count);
  for (let i = 0; i < scene.count; i++) {
    let worst = graph.state[scene.first[i]!]!;
    for (let k = scene.start[i]!; k < scene.start[i + 1]!; k++) {
      const each = graph.state[scene.members[k]!]!;
      if (RANK[each]! < RANK[worst]!) worst = each;
    }
    state[i] = worst;
  }
  if (by === "state") return { palette: looks.states, colour: state, state };
  const plain = looks.line;
  if (by !== "duration") {
    const names = graph[by];
    const places = new Map<string, number>([["", 0]]);
    const colour = Uint8Array.from(scene.first, (task) => {
      const name = names[task]!;
      if (!places.has(name)) places.set(name, 1 + ((places.size - 1) % looks.names.length));
      return places.get(name)!;
    });
    return { palette: [plain, ...looks.names], colour, state };
  }
  const time = (task: number): number => (graph.ended[task] || now) - graph.started[task]!;
  let longest = 1000;
  for (const task of scene.first) if (time(task) > longest) longest = time(task);
  const step = Math.log(longest) / looks.ramp.length;
  const colour = Uint8Array.from(scene.first, (task) => {
    const took = time(task);
    return took >= 0 ? 1 + Math.min(looks.ramp.length - 1, Math.floor(Math.log(Math.max(1, took)) / step)) : 0;
  });
  return { palette: [plain, ...looks.ramp], colour, state };
}

/** Calls for each node whose mark may be in view. */
export function eachInView(scene: Scene, view: View, act: (node: number, x: number, y: number) => void): void {
  const first = Math.max(0, Math.floor(view.x) - 1);
  const last = Math.min(scene.columns - 1, Math.ceil(view.x + view.width / view.kx) + 1);
  const [top, bottom] = [view.y - 1.5, view.y + view.height / view.ky + 0.5];
  for (let column = first; column <= last; column++) {
    let [low, high] = [scene.columnStart[column]!, scene.columnStart[column + 1]!];
    const end = high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (scene.y[scene.byColumn[middle]!]! < top) low = middle + 1;
      else high = middle;
    }
    const x = (column + 0.5 - view.x) * view.kx;
    for (let k = low; k < end; k++) {
      const node = scene.byColumn[k]!;
      if (scene.y[node]! > bottom) break;
      act(node, x, (scene.y[node]! + 0.5 - view.y) * view.ky);
    }
  }
}

export function paintMarks(context: Context, { scene, view, shown, looks, mark }: Sight): void {
  eachInView(scene, view, (node, x, y) => {
    if (scene.folded[node]! >= 0) return;
    context.fillStyle = shown.palette[shown.colour[node]!]!;
    paintMark(context, x, y, shown.state[node]!, mark, looks);
  });
}

/** Each state has an outline of its own, as far as there is room. */
export function paintMark(context: Context, x: number, y: number, state: number, mark: Mark, looks: Looks): void {
  let { width, height } = mark;
  const name = TASK_STATES[state]!.name;
  if (BAD.has(state)) {
    // Higher than the others, at least four pixels, and with a notch: cut from above or from the right.
    height = Math.max(4, height * 1.25);
    width = Math.max(4, width);
    context.fillRect(x - width / 2, y - height / 2, width, height);
    context.fillStyle = looks.ground;
    const notch = Math.max(1.5, Math.min(width / 4, 5));
    if (name === "failed") context.fillRect(x - notch / 2, y - height / 2, notch, height * 0.55);
    else context.fillRect(x + width / 2 - notch, y - height / 4, notch, height / 2);
    return;
  }
  const [left, top] = [x - width / 2, y - height / 2];
  if (height < 4 || width < 6) {
    const thin = name === "unscheduled" || name === "skipped" || name === "cancelled";
    context.fillRect(left, thin ? y - height / 4 : top, width, thin ? height / 2 : height);
    return;
  }
  if (name === "completed") context.fillRect(left, top, width, height);
  else if (name === "running") {
    context.beginPath();
    context.moveTo(left, top);
    context.lineTo(left + width - height / 2, top);
    context.lineTo(left + width, y);
    context.lineTo(left + width - height / 2, top + height);
    context.lineTo(left, top + height);
    context.fill();
  } else if (name === "skipped") context.fillRect(left, y - height / 6, width, height / 3);
  else if (name === "cancelled") {
    context.fillRect(left, top, width * 0.38, height);
    context.fillRect(left + width * 0.62, top, width * 0.38, height);
  } else {
    const colour = context.fillStyle;
    context.fillStyle = looks.ground;
    context.fillRect(left, top, width, height);
    context.fillStyle = colour;
    // Not begun: an outline; with a filled half when nothing is missing but a worker.
    const line = Math.max(1, height / 6);
    context.fillRect(left, top, width, line);
    context.fillRect(left, top + height - line, width, line);
    context.fillRect(left, top, line, height);
    context.fillRect(left + width - line, top, line, height);
    if (name === "pending") context.fillRect(left, top, width / 2, height);
  }
}

const BIN = 5;

/** For each column bars of as many tasks as stand there, and how many of these have each colour. */
export function paintBars(context: Context, { scene, view, shown }: Sight): void {
  const colours = shown.palette.length;
  const bin = Math.max(1, Math.round(BIN / view.ky));
  const bins = Math.ceil(scene.height / bin) + 1;
  const counts = new Uint32Array(bins * colours);
  const wide = Math.max(1.5, view.kx * 0.74);
  const first = Math.max(0, Math.floor(view.x) - 1);
  const last = Math.min(scene.columns - 1, Math.ceil(view.x + view.width / view.kx) + 1);
  for (let column = first; column <= last; column++) {
    counts.fill(0);
    for (let k = scene.columnStart[column]!; k < scene.columnStart[column + 1]!; k++) {
      const node = scene.byColumn[k]!;
      counts[Math.floor(scene.y[node]! / bin) * colours + shown.colour[node]!]!++;
    }
    const left = (column + 0.5 - view.x) * view.kx - wide / 2;
    for (let row = 0; row < bins; row++) {
      const top = (row * bin - view.y) * view.ky;
      const high = Math.max(1, bin * view.ky - 0.8);
      if (top + high < 0 || top > view.height) continue;
      let x = left;
      for (let colour = 0; colour < colours; colour++) {
        const count = counts[row * colours + colour]!;
        if (count === 0) continue;
        const part = Math.max(BAD.has(colour) ? 2 : 0.5, (wide * count) / bin);
        context.fillStyle = shown.palette[colour]!;
        context.fillRect(x, top, part, high);
        x += part;
      }
    }
  }
}
