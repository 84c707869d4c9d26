/** Draws one graph full-screen, to look at and to measure; no part of the page. See graphs.ts for its address. */

import { Dag, type DagOptions } from "../src/draw/dag.ts";
import { asked, given, pan, running } from "./graphs.ts";

const graph = running(await given());
const canvas = document.querySelector("canvas")!;
const dag = new Dag(canvas, new Worker("worker.js", { type: "module" }));
const options: DagOptions = {
  fold: new Set((asked.get("fold") ?? "").split(",").filter(Boolean)),
  hideCompleted: asked.has("hide"),
  colour: (asked.get("colour") ?? "state") as "state",
  found: new Set([...graph.labels.keys()].filter((i) => graph.labels[i]!.includes(asked.get("found") ?? "\n"))),
  ...(asked.has("focus") ? { focus: Number(asked.get("focus")), depth: Number(asked.get("depth") ?? 2) } : {}),
  ...(asked.has("selected") ? { selected: Number(asked.get("selected")) } : {}),
};
dag.show(graph, options);
dag.chosen = (place) => console.log("chosen", place, place === undefined ? "" : graph.labels[place]);
dag.group = (name) => console.log("group", name);

/** How long it takes until other states are on the canvas, and what of that keeps the page busy. */
async function states(): Promise<object> {
  const state = graph.state.map((each, i) => (i % 50 ? each : 4));
  const begun = performance.now();
  dag.show({ ...graph, state }, options);
  const shown = performance.now();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return { shown: Math.round(shown - begun), painted: Math.round(performance.now() - begun) };
}

Object.assign(window, { dag, graph, states, options, begun: 1, pan: (ms: number) => pan(dag, ms) });
