/** Schedules: when each fires, what became of its graphs; fire now, let it rest, let it fire again. */

import { useEffect } from "preact/hooks";
import type { VNode } from "preact";

import type { Schedule } from "../model/overview.ts";
import { go, href, route } from "../route.ts";
import { type Action, useAct } from "./act.ts";
import { useOverview } from "./attention.ts";
import { count, many, milliseconds } from "./format.ts";
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

const NEXT_SHOWN = 5;

/** As it stands in the ids of graphs. */
const momentOf = (time: number): string => new Date(time).toISOString().replaceAll(/[-:.]/g, "");

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

function Next({ of: { upcoming } }: { of: Detail }): VNode {
  if (upcoming.length === 0) return html`<p>It has no next time.</p>`;
  return html`<ul class="plain">${upcoming.slice(0, NEXT_SHOWN).map((each) => html`<li key=${each}><${Time}
    at=${milliseconds(each)} /> (<${Time} at=${milliseconds(each)} mode="relative" />)</li>`)}</ul>`;
}

type Change = Pick<Action<Detail>, "title" | "verb" | "show" | "act" | "done">;

/** A change of a schedule that is as it is shown: what it has fired so far too. */
function changing(name: string, change: Change): Action<Detail> {
  const fixed = ({ active, cron, every, at, next, fired, taskCount, overlap }: Detail): unknown =>
    [active, cron, every, at, next, fired, taskCount, overlap];
  return { ...change, look: () => ask<Detail>("GET", path("schedules", name)), fixed };
}

function firing(name: string): Action<Detail> {
  return changing(name, {
    title: `Fire schedule ${name} now`,
    verb: "Fire now",
    show: (found) => {
      const open = found.runs.filter(({ state }) => state && !["finished", "cancelled", "deleted"].includes(state));
      return html`<div><p>It would submit a graph of ${many(found.taskCount, "task")} as
        ${" "}<code>${name}-MOMENT-now</code>, where MOMENT is when it is asked for, in UTC, such as
        ${" "}${momentOf(Date.now())}.
        ${found.active ? " It goes on firing at its times:" : " It rests, and goes on resting."}</p>
        ${found.active && html`<${Next} of=${found} />`}
        ${open.length > 0 && html`<p>Of its graphs ${open.length === 1 ? "this one has" : "these have"} not ended, and
          another one is submitted all the same: ${open.slice(0, NEXT_SHOWN).map((each) => html`<a key=${each.graphId}
          href=${href(["g", each.graphId])}>${each.graphId}</a> `)}</p>`}</div>`;
    },
    act: () => ask("POST", `${path("schedules", name)}:run-now`),
    done: "Its graph is submitted.",
  });
}

function turning(name: string, off: boolean): Action<Detail> {
  return changing(name, {
    title: off ? `Let schedule ${name} rest` : `Let schedule ${name} fire again`,
    verb: off ? "Let it rest" : "Let it fire again",
    show: (found) => html`<div><p>${off ? "It would not fire at these times, nor after them; its graphs go on."
      : "It would fire at its times from now on."}</p><${Next} of=${found} /></div>`,
    act: () => ask("POST", `${path("schedules", name)}:${off ? "deactivate" : "activate"}`),
    done: off ? "It fires no more." : "It fires again.",
  });
}

function Shown({ name }: { name: string }): VNode {
  const asked = useAsked(() => ask<Detail>("GET", path("schedules", name)), [name, source.value!.number], 60);
  const { propose, shown } = useAct(asked.again);
  return html`<div class="page"><h1><a href=${href(["schedules"])}>Schedules</a> / ${name}</h1>
    ${shown}
    ${answered(
      asked,
      "the schedule",
      (found) => html`<div>
      <p class="actions">
        <button type="button" onClick=${() => propose(firing(name))}>Fire now …</button>
        <button type="button" onClick=${() => propose(turning(name, found.active))}>
          ${found.active ? "Let it rest …" : "Let it fire again …"}</button>
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
