/** Schedules: when each fires, what became of its graphs; fire now, let it rest, let it fire again. */

import { useEffect } from "preact/hooks";
import type { VNode } from "preact";

import type { Schedule } from "../model/overview.ts";
import { go, href, route } from "../route.ts";
import { useAct } from "./act.ts";
import { useOverview } from "./attention.ts";
import { count, milliseconds } from "./format.ts";
import { html } from "./html.ts";
import { answered, Empty, Facts, State, Time, useAsked } from "./parts.ts";
import { Remedy } from "./remedy.ts";
import { ask, path, source } from "./source.ts";

interface Detail {
  readonly name: string;
  readonly active: boolean;
  readonly cron: string | null;
  readonly timezone: string | null;
  readonly every: number | null;
  readonly at: string | null;
  readonly catchUp: string;
  readonly overlap: string;
  readonly next: string | null;
  readonly waiting: readonly string[];
  readonly lastFired: string | null;
  readonly fired: number;
  readonly skipped: number;
  readonly error: string | null;
  readonly taskCount: number;
  readonly by: string | null;
  readonly upcoming: readonly string[];
  readonly runs: readonly {
    graphId: string;
    for: string | null;
    fired: string | null;
    manual: boolean;
    state: string | null;
  }[];
  readonly troubles: readonly { text: string; remedy: string }[];
}

const when = (each: Detail): string =>
  each.cron ? `${each.cron} (${each.timezone ?? "UTC"})` : each.every ? `every ${each.every} s` : (each.at ?? "");

function Runs({ name, runs }: { name: string; runs: Detail["runs"] }): VNode {
  if (runs.length === 0) return html`<${Empty}>It has not fired yet.</${Empty}>`;
  return html`<div class="scroll"><table class="plain-table">
    <thead><tr><th scope="col">Graph</th><th scope="col">State</th><th scope="col">For</th><th scope="col">Fired</th>
      <th scope="col"><span class="unseen">Compare</span></th></tr></thead>
    <tbody>${runs.map(
      (each, place) => html`<tr key=${each.graphId}>
      <th scope="row"><a href=${href(["g", each.graphId])}>${each.graphId}</a></th>
      <td>${each.state ? html`<${State} state=${each.state} />` : "gone"}</td>
      <td><${Time} at=${milliseconds(each.for)} /></td>
      <td><${Time} at=${milliseconds(each.fired)} />${each.manual && " by hand"}</td>
      <td>${runs[place + 1] && html`<a
        href=${href(["compare"], { a: runs[place + 1]!.graphId, b: each.graphId })}>with the one before</a>`}</td>
    </tr>`,
    )}</tbody></table></div>
    <p><a href=${href([], { schedule: name })}>All graphs of this schedule</a></p>`;
}

function Shown({ name }: { name: string }): VNode {
  const asked = useAsked(() => ask<Detail>("GET", path("schedules", name)), [name, source.value!.number], 60);
  const { run, shown, busy } = useAct(asked.again);
  const post = (verb: string, done: string) => () => run(() => ask("POST", `${path("schedules", name)}:${verb}`), done);
  return html`<div class="page"><h1><a href=${href(["schedules"])}>Schedules</a> / ${name}</h1>
    ${shown}
    ${answered(
      asked,
      "the schedule",
      (found) => html`<div>
      <p class="actions">
        <button type="button" disabled=${busy} onClick=${post("run-now", "Its graph is submitted.")}>Fire now</button>
        ${
          found.active
            ? html`<button type="button" disabled=${busy}
              onClick=${post("deactivate", "It fires no more.")}>Let it rest</button>`
            : html`<button type="button" disabled=${busy}
              onClick=${post("activate", "It fires again.")}>Let it fire again</button>`
        }
      </p>
      <div class="cards">
        ${found.troubles.length > 0 && html`<section class="card"><h2>Why it does not fire</h2><ul class="causes">
          ${found.troubles.map((each) => html`<li key=${each.text}>${each.text}<${Remedy} text=${each.remedy} />
          </li>`)}</ul></section>`}
        <section class="card"><h2>About it</h2><${Facts} of=${[
          ["Fires", found.active ? "yes" : "no"],
          ["When", when(found)],
          ["Next", found.next && html`<${Time} at=${milliseconds(found.next)} />`],
          ["Last", found.lastFired && html`<${Time} at=${milliseconds(found.lastFired)} />`],
          ["Fired, skipped", `${count(found.fired)}, ${count(found.skipped)}`],
          ["Missed times", found.catchUp],
          ["While one runs", found.overlap],
          ["Waiting", found.waiting.length || ""],
          ["Tasks", count(found.taskCount)],
          ["Error", found.error],
          ["By", found.by],
        ]} /></section>
        <section class="card"><h2>Next times</h2><ul class="plain">${found.upcoming.map((each) => html`<li
          key=${each}><${Time} at=${milliseconds(each)} /> (<${Time} at=${milliseconds(each)}
          mode="relative" />)</li>`)}</ul></section>
        <section class="card wide-card"><h2>Its graphs</h2><${Runs} name=${name} runs=${found.runs} /></section>
      </div>
    </div>`,
    )}
  </div>`;
}

function All(): VNode {
  const { all: asked } = useOverview();
  const line = (each: Schedule): VNode => html`<tr key=${each.name} onClick=${() => go(href(["schedules", each.name]))}>
    <th scope="row"><a href=${href(["schedules", each.name])}>${each.name}</a></th>
    <td>${each.active ? "▶ fires" : "‖ rests"}</td>
    <td>${each.when} ${each.timezone && `(${each.timezone})`}</td>
    <td><${Time} at=${each.next} /></td>
    <td><${Time} at=${each.lastFired} /></td>
    <td>${each.error}</td>
  </tr>`;
  return html`<div class="page"><h1>Schedules</h1>
    ${answered(asked, "schedules", ({ schedules }) =>
      schedules.length === 0
        ? html`<${Empty}>There are none: see <code>taskgraph schedule create --help</code>.</${Empty}>`
        : html`<div class="scroll"><table class="plain-table">
            <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col">When</th><th
              scope="col">Next</th><th scope="col">Last</th><th scope="col">Error</th></tr></thead>
            <tbody>${schedules.map(line)}</tbody></table></div>`,
    )}
  </div>`;
}

export function Schedules(): VNode {
  const name = route.value.path[1];
  useEffect(() => {
    document.title = `${name ?? "Schedules"} – taskgraph`;
  }, [name]);
  return name ? html`<${Shown} name=${name} />` : html`<${All} />`;
}
