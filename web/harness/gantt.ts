/** Draws the times of one graph full-screen, to look at and to measure. ?graph=NAME or ?layers=…; &by=worker */

import { Gantt } from "../src/draw/gantt.ts";
import { criticalPath, lanes, spans, type By } from "../src/model/times.ts";
import { asked, given, pan, running } from "./graphs.ts";

const graph = running(await given());
const canvas = document.querySelector("canvas")!;
const gantt = new Gantt(canvas);
const now = Date.now();
const all = spans(graph);
const options = {
  now, utc: asked.has("utc"), found: new Set<number>(),
  critical: new Set(criticalPath(graph).map((each) => each.task)),
  ...(asked.has("selected") ? { selected: Number(asked.get("selected")) } : {}),
};
gantt.show(graph, all, lanes(graph, all, (asked.get("by") ?? "worker") as By, now), options);
Object.assign(window, { gantt, graph, begun: 1, pan: (ms: number) => pan(gantt, ms) });
