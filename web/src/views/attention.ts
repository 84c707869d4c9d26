/** The store at a glance: read for all screens that show it, and what of it needs attention. */

import type { VNode } from "preact";

import { overview, type Attention as Need, type Overview } from "../model/overview.ts";
import { href } from "../route.ts";
import { count, milliseconds } from "./format.ts";
import { html } from "./html.ts";
import { type Asked, type Counts, useAsked } from "./parts.ts";
import { ask, read, source } from "./source.ts";

const OVERVIEW_SECONDS = 150;
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
  readonly at: number;
}

export function useOverview(): Asked<Overview> {
  return useAsked(() => read((rows) => overview(rows, Date.now())), [source.value!.number], OVERVIEW_SECONDS);
}

/** Live graphs and queues as they are now; empty without an API, which alone counts these. */
export function useLook(): Asked<Look> {
  const look = async (): Promise<Look> => {
    if (!source.peek()!.api) return { graphs: [], queues: [], at: Number.NaN };
    const found = await ask<Look & { time: string }>("GET", "/overview?limit=50");
    return { graphs: found.graphs, queues: found.queues, at: milliseconds(found.time) };
  };
  return useAsked(look, [source.value!.number], LIVE_SECONDS);
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
