/** Graphs for the tests of layouts: made ones, and the real ones of `../shared/graphs` where these are. */

import { existsSync, readFileSync, readdirSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import type { Shape } from "../src/draw/layout.ts";
import { dice } from "./dice.ts";

export const REAL = process.env["TASKGRAPH_GRAPHS"] ?? "../../shared/graphs";

export function shapeOf(count: number, pairs: readonly (readonly [number, number])[], group?: Int32Array): Shape {
  const from = Uint32Array.from(pairs, (pair) => pair[0]);
  const to = Uint32Array.from(pairs, (pair) => pair[1]);
  return { count, edges: { from, to }, group: group ?? new Int32Array(count).fill(-1) };
}

/** Levels of `width` tasks, each of which requires `fan` of the level before. */
export function layers(levels: number, width: number, fan: number): Shape {
  const [from, to]: [number[], number[]] = [[], []];
  const roll = dice();
  for (let task = width; task < levels * width; task++) {
    const before = (Math.floor(task / width) - 1) * width;
    const chosen = new Set<number>();
    while (chosen.size < fan) chosen.add(before + Math.floor(roll() * width));
    for (const each of chosen) {
      from.push(each);
      to.push(task);
    }
  }
  const edges = { from: Uint32Array.from(from), to: Uint32Array.from(to) };
  return { count: levels * width, edges, group: new Int32Array(levels * width).fill(-1) };
}

export interface Real {
  readonly name: string;
  readonly labels: readonly string[];
  readonly shape: Shape;
}

export function real(): Real[] {
  if (!existsSync(REAL)) return [];
  return readdirSync(REAL)
    .filter((name) => /\.json(\.gz)?$/.test(name))
    .map(readGraph);
}

export function readGraph(name: string): Real {
  const bytes = readFileSync(`${REAL}/${name}`);
  const tasks: Record<string, { requires: string[] }> = JSON.parse(
    (name.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString(),
  ).tasks;
  const labels = Object.keys(tasks);
  const place = new Map(labels.map((label, i) => [label, i]));
  const pairs = labels.flatMap((label, i) => tasks[label]!.requires.map((each) => [place.get(each)!, i] as const));
  return { name, labels, shape: shapeOf(labels.length, pairs, prefixes(labels)) };
}

function prefixes(labels: readonly string[]): Int32Array {
  const names = new Map<string, number>();
  return Int32Array.from(labels, (label) => {
    const name = /^[^/\-:[\d]+/.exec(label)?.[0] ?? "";
    if (!names.has(name)) names.set(name, names.size);
    return names.get(name)!;
  });
}
