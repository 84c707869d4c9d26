/** The store at a glance: read for all screens that show it, and what of it needs attention. */

import { useRef } from "preact/hooks";
import type { VNode } from "preact";

import { overview, type Attention as Need, type Overview } from "../model/overview.ts";
import { href } from "../route.ts";
import { count } from "./format.ts";
import { html } from "./html.ts";
import { type Asked, type Counts, useAsked } from "./parts.ts";
import { ask, read, source } from "./source.ts";

const OVERVIEW_SECONDS = 300;
const LIVE_SECONDS = 20;
const SHOWN = 8;

/** What the API says of a live graph. */
export interface LiveGraph {
  readonly graphId: string;
  readonly state: string;
  readonly taskCount: number;
  readonly completed: number;
  readonly failed: number;
  readonly running: number;
  readonly ready: number;
}

export interface Queue {
  readonly queue: string;
  readonly target: string;
  readonly messages: number;
  readonly oldestSeconds: number | null;
}

export interface Look {
  readonly graphs: readonly LiveGraph[];
  readonly queues: readonly Queue[];
  readonly workers: readonly { readonly name: string; readonly state: string; readonly busy: number }[];
}

/** Live graphs and queues as they are now; empty without an API, which alone counts these. */
export function useLook(): Asked<Look> {
  const look = async (): Promise<Look> => {
    if (!source.peek()!.api) return { graphs: [], queues: [], workers: [] };
    return ask<Look>("GET", "/overview?limit=50");
  };
  return useAsked(look, [source.value!.number], LIVE_SECONDS);
}

/** By what one look differs from another, so that the rest is read again only where something has changed. */
function markOf({ graphs, workers }: Look): string {
  const states = graphs.map((each) => `${each.graphId} ${each.state}`);
  return [...states, ...workers.map((each) => `${each.name} ${each.state} ${each.busy}`)].join("\n");
}

/** The store at a glance, by its rows, and the look of the API that says when these are to be read again. */
export function useOverview(): { readonly all: Asked<Overview>; readonly look: Asked<Look>; readonly mark: string } {
  const look = useLook();
  const first = useRef<string>();
  const found = look.value && markOf(look.value);
  first.current ??= found;
  const mark = found === undefined || found === first.current ? "" : found;
  const { number, api } = source.value!;
  const seconds = api ? 0 : OVERVIEW_SECONDS;
  const all = useAsked(() => read((rows) => overview(rows, Date.now())), [number, mark], seconds);
  return { all, look, mark };
}

export function liveCounts(graph: LiveGraph): Counts {
  const waiting = graph.taskCount - graph.completed - graph.failed - graph.running - graph.ready;
  return [Math.max(0, waiting), graph.ready, graph.running, graph.completed, graph.failed, 0, 0, 0];
}

const PLACES: Readonly<Record<string, (about: string) => string>> = {
  blocked: (about) => href(["g", about]),
  stalled: (about) => href(["g", about]),
  poison: () => href(["poison"]),
  "target-paused": () => href(["queues"]),
  "worker-gone": () => href(["workers"]),
  "schedule-error": (about) => href(["schedules", about]),
  "notices-given-up": (about) => href(["g", about, "notices"]),
};

function Item({ need }: { need: Need }): VNode {
  const place = PLACES[need.kind];
  return html`<li><span class="mark" aria-hidden="true">!</span> ${place ? html`<a href=${place(need.about)}>
    ${need.words}</a>` : need.words}</li>`;
}

/** What needs attention; nothing where nothing does. */
export function Attention({ overview: asked }: { overview: Asked<Overview> }): VNode | null {
  const needs = asked.value?.attention ?? [];
  if (needs.length === 0) return null;
  return html`<section class="attention" aria-label="Needs attention">
    <h2>Needs attention</h2>
    <ul>
      ${needs.slice(0, SHOWN).map((each) => html`<${Item} key=${`${each.kind} ${each.about}`} need=${each} />`)}
      ${needs.length > SHOWN && html`<li>and ${count(needs.length - SHOWN)} more</li>`}
    </ul>
  </section>`;
}
