/** The frame of a graph: what it is and how far, its tabs, and the view that is open. */

import { useEffect } from "preact/hooks";
import type { VNode } from "preact";

import { useKeys } from "../keys.ts";
import { object, time } from "../model/columns.ts";
import { FAILED_CODES, lookOf } from "../model/states.ts";
import { go, href, route } from "../route.ts";
import { Compared } from "./compare.ts";
import { Doctor } from "./doctor.ts";
import { Journal } from "./events.ts";
import { count, now, percent } from "./format.ts";
import { type Content, html } from "./html.ts";
import { lazily } from "./lazy.ts";
import { LogView } from "./log.ts";
import { Notices } from "./notices.ts";
import { Bar, Loading, State, Time, TroubleBox } from "./parts.ts";
import { PlanView } from "./plan.ts";
import { has, lacking, type Needs } from "./source.ts";
import { countsOf, endOf, type Open, stateOf, useGraph } from "./store.ts";
import { Summary } from "./summary.ts";
import { TaskView } from "./task.ts";
import { Tasks } from "./tasks.ts";
import { Why } from "./why.ts";

/** What each view of a graph gets. */
export interface Of {
  readonly open: Open;
  readonly graph: NonNullable<Open["graph"]>;
}

type View = (props: Of) => VNode;

const DagView = lazily(async () => (await import("./dag.ts")).DagView);
const Timeline = lazily(async () => (await import("./timeline.ts")).Timeline);
const WhatIf = lazily(async () => (await import("./whatif.ts")).WhatIf);
const Past = lazily(async () => (await import("./past.ts")).Past);

interface Tab {
  readonly name: string;
  readonly title: string;
  readonly view: View;
  readonly wide?: boolean;
  readonly needs?: Needs;
}

const TABS: readonly Tab[] = [
  { name: "", title: "Summary", view: Summary },
  { name: "dag", title: "Graph", view: DagView, wide: true },
  { name: "time", title: "Timeline", view: Timeline, wide: true },
  { name: "tasks", title: "Tasks", view: Tasks, wide: true },
  { name: "events", title: "Journal", view: Journal, wide: true },
  { name: "at", title: "As it was", view: Past, wide: true },
  { name: "plan", title: "Change", view: PlanView, needs: "judge" },
];
const MORE: readonly Tab[] = [
  { name: "forecast", title: "Forecast", view: WhatIf },
  { name: "doctor", title: "Doctor", view: Doctor, needs: "judge" },
  { name: "notices", title: "Notices", view: Notices, needs: "judge" },
  { name: "compare", title: "Compare", view: Compared, needs: "graphs" },
];

/** Whether the present source can fill the tab of this name. */
export function isThere(name: string): boolean {
  return has([...TABS, ...MORE].find((each) => each.name === name)?.needs);
}

function viewOf(path: readonly string[]): Pick<Tab, "view" | "needs"> & { wide: boolean } {
  const [, , name = "", , inner = ""] = path;
  if (name === "t") {
    const view = inner === "log" ? LogView : inner === "why" ? Why : TaskView;
    return { view, wide: inner === "log" };
  }
  const found = [...TABS, ...MORE].find((each) => each.name === name) ?? TABS[0]!;
  return { wide: false, ...found };
}

/** The task at this place of the address, by its label or taskId; -1 for none. */
export function taskAt(open: Open, name: string): number {
  if (!open.graph) return -1;
  const place = open.graph.labels.indexOf(name);
  return place >= 0 ? place : open.graph.ids.indexOf(name);
}

export function taskHref(id: string, label: string, ...more: string[]): string {
  return href(["g", id, "t", label, ...more]);
}

function showTitle(open: Open): void {
  const { graph, id } = open;
  if (!graph) {
    document.title = `${id} – taskgraph`;
    return;
  }
  const counts = countsOf(graph);
  const state = stateOf(graph.header);
  const done = percent(counts[3]! + counts[7]!, graph.ids.length);
  document.title = `${lookOf(state).mark} ${done} ${id} – taskgraph`;
}

function Header({ open, graph }: Of): VNode {
  const counts = countsOf(graph);
  const state = stateOf(graph.header);
  const ended = endOf(graph.header);
  const failed = [...FAILED_CODES].reduce((sum, code) => sum + counts[code]!, 0);
  const { name } = object(graph.header, "metadata");
  return html`<header class="graph-head">
    <h1><a href=${href(["g", open.id])}>${open.id}</a> <${State} state=${state} /></h1>
    ${typeof name === "string" && html`<p class="graph-name">${name}</p>`}
    <p class="graph-when">
      ${count(counts[3]! + counts[7]!)} of ${count(graph.ids.length)} done${failed > 0 && `, ${count(failed)} failed`};
      ${" "}created <${Time} at=${time(graph.header, "created")} />
      ${Number.isFinite(ended) && html`, ended <${Time} at=${ended} />`}
    </p>
    <${Bar} counts=${counts} large />
  </header>`;
}

function Tabs({ id, name }: { id: string; name: string }): VNode {
  return html`<nav class="tabs" aria-label="Views of the graph">
    ${[...TABS, ...MORE].filter((each) => isThere(each.name)).map((each) => {
      const present = name === each.name || (name === "t" && each.name === "tasks");
      return html`<a key=${each.name} href=${href(["g", id, each.name].filter(Boolean))}
        aria-current=${present ? "page" : undefined}>
        ${each.title}
      </a>`;
    })}
  </nav>`;
}

function useGraphKeys(id: string): void {
  const to = (place: number) => () => go(href(["g", id, TABS[place]!.name].filter(Boolean)));
  const plan =
    (change: string, more = {}) =>
    () =>
      go(href(["g", id, "plan"], { change, ...more }));
  useKeys({
    tab1: to(0),
    tab2: to(1),
    tab3: to(2),
    tab4: to(3),
    tab5: to(4),
    tab6: to(5),
    tab7: to(6),
    rerun: plan("rerun", { failed: 1 }),
    cancel: plan("cancel"),
    pause: () => plan(stateOfOpen() === "paused" ? "resume" : "pause")(),
  });
  const stateOfOpen = (): string => (latest?.graph ? stateOf(latest.graph.header) : "");
}

/** What keeps the page from following: small, and above each view. */
function Away({ open }: { open: Open }): VNode | null {
  const { trouble, away } = open;
  if (!trouble) return null;
  if (!away) return html`<${TroubleBox} trouble=${trouble} />`;
  const words = trouble instanceof Error ? trouble.message : String(trouble);
  const left = Math.max(0, Math.ceil((away.again - now.value) / 1000));
  return html`<p class="strip"><span class="mark" aria-hidden="true">!</span> <span role="status">Not reached since
    ${" "}<${Time} at=${away.since} />: ${words}</span>; ${left ? `tried again in ${left} s` : "trying again"}.
    What is shown is as it was then.</p>`;
}

let latest: Open | undefined;

export function GraphFrame(): VNode {
  const { path } = route.value;
  const id = path[1] ?? "";
  const open = useGraph(id);
  latest = open;
  useGraphKeys(id);
  useEffect(() => showTitle(open), [open]);
  const { view, wide, needs } = viewOf(path);
  const { graph } = open;
  let content: Content;
  if (graph && !has(needs)) content = html`<${TroubleBox} trouble=${lacking(needs)} />`;
  else if (graph) content = html`<${view} open=${open} graph=${graph} />`;
  else if (open.trouble) content = html`<${TroubleBox} trouble=${open.trouble} />`;
  else content = html`<${Loading} what=${`graph ${id}`} read=${open.read} />`;
  return html`<div class=${wide ? "graph wide" : "graph"}>
    ${graph ? html`<${Header} open=${open} graph=${graph} />` : html`<header class="graph-head"><h1>${id}</h1>
      </header>`}
    <${Tabs} id=${id} name=${path[2] ?? ""} />
    ${graph && html`<${Away} open=${open} />`}
    <div class="graph-view">${content}</div>
  </div>`;
}
