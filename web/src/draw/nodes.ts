/** Tasks as boxes with labels: shape and letter of the state, how long it took, which run, what holds it. */

import type { Graph } from "../model/graph.ts";
import { TASK_STATES } from "../model/states.ts";
import { duration, type Looks } from "./looks.ts";
import { eachInView, type Context, type Sight } from "./marks.ts";

/** Texts cut to a width, by text and width: measuring is slow. */
const cuts = new Map<string, string>();

/** What begins alike differs by its end, so the middle goes. */
export function cut(context: Context, text: string, width: number): string {
  const key = `${Math.round(width)} ${context.font} ${text}`;
  const known = cuts.get(key);
  if (known !== undefined) return known;
  let found = text.length > 300 ? `${text.slice(0, 150)}…${text.slice(-149)}` : text;
  if (context.measureText(found).width > width) {
    const whole = [...found];
    let [low, high] = [0, whole.length];
    const keep = (count: number): string => {
      const end = Math.floor(count * 0.55);
      return `${whole.slice(0, count - end).join("")}…${end ? whole.slice(-end).join("") : ""}`;
    };
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (context.measureText(keep(middle)).width <= width) low = middle;
      else high = middle - 1;
    }
    found = low ? keep(low) : "";
  }
  if (cuts.size > 20_000) cuts.clear();
  cuts.set(key, found);
  return found;
}

/** Without what would change the order or the place of letters. */
export function plain(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g, "\u00b7");
}

export function paintNodes(context: Context, sight: Sight): void {
  const { scene, view, shown, mark } = sight;
  context.textBaseline = "middle";
  eachInView(scene, view, (node, x, y) => {
    const box = { x: x - mark.width / 2, y: y - mark.height / 2, ...mark };
    if (scene.start[node + 1]! - scene.start[node]! > 1) paintMany(context, sight, node, box);
    else paintOne(context, sight, node, box, shown.palette[shown.colour[node]!]!);
  });
}

/** The words of a label that differ from the labels above and below it. The rest may go where there is little room. */
export function gist(label: string, beside: readonly string[]): string {
  let [head, tail] = [label.length, label.length];
  for (const other of beside) {
    const most = Math.min(label.length, other.length);
    let same = 0;
    while (same < most && label[same] === other[same]) same++;
    head = Math.min(head, same);
    same = 0;
    while (same < most - head && label[label.length - 1 - same] === other[other.length - 1 - same]) same++;
    tail = Math.min(tail, same);
  }
  const word = /[\p{L}\p{N}]/u;
  while (head > 0 && word.test(label[head - 1]!)) head--;
  while (tail > 0 && word.test(label[label.length - tail]!)) tail--;
  return head + tail < label.length ? label.slice(head, label.length - tail) : label;
}

/** A label cut to a width: what it begins with, and what differs from its neighbours. */
function brief(context: Context, { scene, graph }: Sight, node: number, width: number): string {
  const label = graph.labels[scene.first[node]!]!;
  const whole = plain(label);
  if (whole.length < 60 && context.measureText(whole).width <= width) return whole;
  const beside = [scene.turn[node]! - 1, scene.turn[node]! + 1].map((k) => scene.byColumn[k] ?? node);
  const near = beside.filter((other) => other !== node && scene.x[other] === scene.x[node]);
  const piece = plain(gist(label, near.map((other) => graph.labels[scene.first[other]!]!)));
  if (piece.length >= whole.length) return cut(context, whole, width);
  const ways = whole.startsWith(piece) ? [`${piece}…`] : [`${whole.slice(0, 4)}…${piece}`, `…${piece}`];
  return ways.find((way) => context.measureText(way).width <= width) ?? cut(context, piece, width);
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

function frame(context: Context, { x, y, width, height }: Box, looks: Looks, line: string): void {
  context.beginPath();
  context.roundRect(x, y, width, height, Math.min(4, height / 4));
  context.fillStyle = looks.panel;
  context.fill();
  context.lineWidth = 1;
  context.strokeStyle = line;
  context.stroke();
}

function paintOne(context: Context, sight: Sight, node: number, box: Box, colour: string): void {
  const { graph, looks, now } = sight;
  const task = sight.scene.first[node]!;
  const { x, y, width, height } = box;
  const state = TASK_STATES[graph.state[task]!]!;
  const two = height >= 26;
  const size = Math.max(9, Math.min(12, height * (two ? 0.42 : 0.75)));
  const badge = Math.min(18, height);
  frame(context, box, looks, colour);
  context.beginPath();
  context.roundRect(x, y, badge, height, [Math.min(4, height / 4), 0, 0, Math.min(4, height / 4)]);
  context.fillStyle = colour;
  context.fill();
  context.fillStyle = looks.ground;
  context.textAlign = "center";
  context.font = `bold ${Math.round(Math.min(13, badge * 0.72))}px ${looks.font}`;
  context.fillText(state.mark, x + badge / 2, two ? y + height * 0.3 : y + height / 2 + 0.5);
  if (two) context.fillText(state.letter, x + badge / 2, y + height * 0.72);
  const facts = factsOf(graph, task, now);
  context.font = `${size}px ${looks.font}`;
  context.textAlign = "right";
  context.fillStyle = looks.quiet;
  let room = width - badge - 10;
  if (two) {
    context.textAlign = "left";
    context.font = `${size - 1}px ${looks.font}`;
    // The mark and the letter say the state; its name goes first where there is no room for both.
    const said = width < 160 && facts.length ? facts : [state.name, ...facts];
    context.fillText(cut(context, said.join(" · "), room), x + badge + 5, y + height * 0.73);
  } else if (width > 130 && facts.length) {
    const said = facts.join(" · ");
    const wide = context.measureText(said).width;
    if (wide < room * 0.45) {
      context.fillText(said, x + width - 4, y + height / 2 + 0.5);
      room -= wide + 6;
    }
  }
  context.textAlign = "left";
  context.font = `${size}px ${looks.font}`;
  context.fillStyle = looks.text;
  const line = two ? y + height * 0.32 : y + height / 2 + 0.5;
  if (graph.held[task]) room -= 8;
  context.fillText(brief(context, sight, node, room), x + badge + 5, line);
  if (graph.held[task]) paintLock(context, x + width - 2, y, looks);
}

function factsOf(graph: Graph, task: number, now: number): string[] {
  const facts: string[] = [];
  const took = duration((graph.ended[task] || now) - graph.started[task]!);
  if (took) facts.push(took);
  if (graph.run[task]! > 1) facts.push(`run ${graph.run[task]}`);
  if (graph.held[task]) facts.push("held");
  return facts;
}

/** A padlock on the corner of a box. */
function paintLock(context: Context, x: number, y: number, looks: Looks): void {
  context.fillStyle = looks.ground;
  context.beginPath();
  context.arc(x - 4, y + 2, 8, 0, 7);
  context.fill();
  context.fillStyle = looks.text;
  context.fillRect(x - 8, y + 1, 8, 6);
  context.strokeStyle = looks.text;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(x - 4, y + 1, 2.6, Math.PI, 0);
  context.stroke();
}

/** Groups between marks: as large as there is room, so that their names can be read. */
export function paintFolded(context: Context, sight: Sight): void {
  const { scene, view, mark } = sight;
  if (!scene.some) return;
  const width = Math.max(mark.width, Math.min(view.kx * 0.86, 150));
  const height = Math.max(mark.height, Math.min(view.ky * 0.86, 30));
  eachInView(scene, view, (node, x, y) => {
    if (scene.folded[node]! < 0) return;
    paintMany(context, sight, node, { x: x - width / 2 + 3, y: y - height / 2, width: width - 6, height });
  });
}

/** A group or a chain: its name, how many tasks, how many of each state. */
function paintMany(context: Context, { scene, graph, groups, looks }: Sight, node: number, box: Box): void {
  const members = scene.members.subarray(scene.start[node], scene.start[node + 1]);
  const folded = scene.folded[node]!;
  const name = folded >= 0 ? groups.names[folded]! : `${graph.labels[members[0]!]} …`;
  const counts = new Uint32Array(TASK_STATES.length);
  for (const task of members) counts[graph.state[task]!]!++;
  paintGroup(context, { ...box, x: box.x - 3, width: box.width + 6 }, name, counts, looks);
}

/** A box with a name, a count and a bar of states. */
export function paintGroup(context: Context, box: Box, name: string, counts: ArrayLike<number>, looks: Looks): void {
  const { x, y, width, height } = box;
  let all = 0;
  for (let i = 0; i < counts.length; i++) all += counts[i]!;
  context.fillStyle = looks.panel;
  context.strokeStyle = looks.quiet;
  context.lineWidth = 1;
  for (const shift of [3, 0]) {
    context.beginPath();
    context.roundRect(x + shift, y + shift, width, height, Math.min(4, height / 4));
    context.fill();
    context.stroke();
  }
  const bar = height >= 15 ? Math.max(4, height * 0.3) : height;
  const text = height - bar;
  if (text > 7 && width > 30) {
    const size = Math.max(8, Math.min(13, text * 0.75));
    context.textBaseline = "middle";
    context.font = `${Math.round(size)}px ${looks.font}`;
    context.textAlign = "right";
    context.fillStyle = looks.quiet;
    const count = width > 84 ? String(all) : "";
    const wide = context.measureText(count).width;
    context.fillText(count, x + width - 5, y + text / 2 + 0.5);
    context.textAlign = "left";
    context.fillStyle = looks.text;
    context.fillText(cut(context, plain(name), width - wide - (wide ? 16 : 6)), x + (wide ? 5 : 3), y + text / 2 + 0.5);
  }
  let left = x + 1;
  const room = width - 2;
  for (let state = 0; state < counts.length; state++) {
    if (!counts[state]) continue;
    const part = (room * counts[state]!) / all;
    context.fillStyle = looks.states[state]!;
    context.fillRect(left, y + height - bar, part, bar - 1);
    const { letter } = TASK_STATES[state]!;
    if (bar >= 9 && part > 12) {
      context.fillStyle = looks.ground;
      context.textAlign = "center";
      context.font = `bold ${Math.round(Math.min(11, bar * 0.85))}px ${looks.font}`;
      context.fillText(part > 40 ? `${letter} ${counts[state]}` : letter, left + part / 2, y + height - bar / 2);
    }
    left += part;
  }
}
