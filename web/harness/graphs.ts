/** Graphs to draw: real ones by ?graph=NAME, made ones by ?layers=100x1000x3; with states as of one that runs. */

import { layout, links } from "../src/draw/layout.ts";
import type { Graph } from "../src/model/graph.ts";
import { CODE } from "../src/model/states.ts";
import { dice } from "../test/dice.ts";

export const asked = new URLSearchParams(location.search);

interface Plain {
  readonly labels: string[];
  readonly from: Uint32Array;
  readonly to: Uint32Array;
}

async function real(name: string): Promise<Plain> {
  const answer = await fetch(`/graphs/${name}`);
  const text = name.endsWith(".gz")
    ? await new Response(answer.body!.pipeThrough(new DecompressionStream("gzip"))).text()
    : await answer.text();
  const tasks: Record<string, { requires: string[] }> = JSON.parse(text).tasks;
  const labels = Object.keys(tasks);
  const place = new Map(labels.map((label, i) => [label, i]));
  const [from, to]: [number[], number[]] = [[], []];
  labels.forEach((label, i) => {
    for (const each of tasks[label]!.requires) {
      from.push(place.get(each)!);
      to.push(i);
    }
  });
  return { labels, from: Uint32Array.from(from), to: Uint32Array.from(to) };
}

function layers(levels: number, width: number, fan: number): Plain {
  const roll = dice();
  const count = levels * width;
  const [from, to] = [new Uint32Array((levels - 1) * width * fan), new Uint32Array((levels - 1) * width * fan)];
  for (let task = width, k = 0; task < count; task++) {
    for (let n = 0; n < fan; n++, k++) {
      const before = (Math.floor(task / width) - 1) * width;
      from[k] = before + ((task % width) + Math.floor((roll() ** 3 - 0.1) * width * 0.3 * n) + width) % width;
      to[k] = task;
    }
  }
  const labels = Array.from({ length: count }, (_, i) => `level-${Math.floor(i / width)}/task-${i % width}`);
  return { labels, from, to };
}

/** States as of a graph that has run for a while, with some failures. */
export function running({ labels, from, to }: Plain): Graph {
  const count = labels.length;
  const roll = dice(9);
  const requires = links(count, to, from);
  const { level, levels } = layout({ count, edges: { from, to }, group: new Int32Array(count).fill(-1) });
  const state = new Uint8Array(count);
  const never = (): Float64Array => new Float64Array(count).fill(NaN);
  const [started, ended, since] = [never(), never(), never()];
  const order = [...level.keys()].sort((a, b) => level[a]! - level[b]!);
  const run = new Uint16Array(count).fill(1);
  const held = new Uint8Array(count);
  const begin = Date.now() - 3_600_000;
  for (const task of order) {
    const all = [...requires.other.subarray(requires.start[task], requires.start[task + 1])];
    const done = all.every((each) => state[each] === CODE["completed"]);
    const late = level[task]! / levels + (roll() - 0.5) * 0.25;
    if (!done) {
      const skips = all.some((each) => state[each] === CODE["failed"]) && roll() < 0.3;
      state[task] = CODE[skips ? "skipped" : "unscheduled"]!;
      continue;
    }
    const kind = roll();
    const ended_ = kind < 1 - 20 / count ? "completed" : kind < 1 - 8 / count ? "failed" : "exception";
    state[task] = CODE[late > 0.7 ? "pending" : late > 0.62 ? "running" : ended_]!;
    if (roll() > 0.9) run[task] = 2;
    if (state[task] === CODE["pending"]) {
      since[task] = Date.now() - roll() * 100_000;
      held[task] = Number(roll() < 0.2);
      continue;
    }
    started[task] = begin + (level[task]! / levels) * 3_000_000 + roll() * 60_000;
    since[task] = started[task]! - roll() * 20_000;
    if (state[task] !== CODE["running"]) ended[task] = started[task]! + roll() ** 4 * 400_000;
  }
  const worker = Array.from(labels, (_, i) => (started[i]! > 0 ? `worker-${Math.floor(roll() * 24)}` : ""));
  const graph = {
    id: "harness", header: { key: "task-graph", columns: {} }, ids: labels.map((_, i) => `t${i}`), labels, state, run,
    target: labels.map((_, i) => ["cpu", "gpu", "large"][i % 3]!), worker, pendingSince: since, started, ended,
    resolved: ended, held, runs: new Map(), groups: [], group: new Int32Array(count).fill(-1), edges: { from, to },
    edgesLeftOut: 0, event: 1,
  };
  return graph as unknown as Graph;
}

export async function given(): Promise<Plain> {
  const [levels, width, fan] = (asked.get("layers") ?? "100x1000x3").split("x").map(Number);
  return asked.has("graph") ? real(asked.get("graph")!) : layers(levels!, width!, fan!);
}

/** Frames per second while panning for a time, by the longest and the mean gap between frames. */
export async function pan(drawing: { pan(dx: number, dy: number): void }, ms: number): Promise<object> {
  const end = performance.now() + ms;
  let [last, frames, longest] = [performance.now(), 0, 0];
  while (performance.now() < end) {
    const angle = (performance.now() / 700) % (2 * Math.PI);
    drawing.pan(Math.cos(angle) * 18, Math.sin(angle) * 12);
    const now = await new Promise<number>((done) => requestAnimationFrame(() => done(performance.now())));
    longest = Math.max(longest, now - last);
    [last, frames] = [now, frames + 1];
  }
  return { frames: Math.round((frames * 1000) / ms), longest: Math.round(longest) };
}
