/** A graph at a glance: counts, what blocks it, limits, parameters, results. */

import { useRef, useState } from "preact/hooks";
import type { VNode } from "preact";

import { object, text, texts, time, whole } from "../model/columns.ts";
import { standings } from "../model/standings.ts";
import { FAILED_CODES, TASK_STATES } from "../model/states.ts";
import { href } from "../route.ts";
import { count, duration, now } from "./format.ts";
import { isThere, type Of, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { lazily } from "./lazy.ts";
import { answered, Empty, Facts, Json, State, Time, useAsked } from "./parts.ts";
import { rest } from "./picked.ts";
import { Remedy } from "./remedy.ts";
import { ask, judges, path, read, source } from "./source.ts";
import { countsOf, endOf, isLive, stateOf } from "./store.ts";

interface Cause {
  readonly text: string;
  readonly remedy: string;
}

const FAILURES_SHOWN = 8;
const SMALL_TASKS = 5_000;
const WHY_SECONDS = 30;
const LIMITS_SECONDS = 5;
const OVER = ["finished", "cancelled", "deleted"];

const Ends = lazily(async () => (await import("./forecast.ts")).Ends);

function Counts({ open, graph }: Of): VNode {
  const counts = countsOf(graph);
  return html`<ul class="counts">
    ${TASK_STATES.map(
      ({ name }, code) => html`<li key=${name} class=${counts[code] ? "" : "zero"}>
        <a href=${href(["g", open.id, "tasks"], { state: name })}>
          <strong>${count(counts[code]!)}</strong> <${State} state=${name} />
        </a>
      </li>`,
    )}
  </ul>`;
}

/** A number that grows, at most every so many seconds: what is asked for by it costs the server much. */
function usePaced(event: number, seconds: number): number {
  const last = useRef({ event, at: now.peek() });
  if (event !== last.current.event && now.value - last.current.at >= seconds * 1000) {
    last.current = { event, at: now.peek() };
  }
  return last.current.event;
}

/** A part that takes all rows of a graph, or Python in this tab: of a large one, or until that is there, on demand. */
function Heavy({ of, title, view }: { of: Of; title: string; view: (props: Of) => VNode | null }): VNode | null {
  const tasks = of.graph.ids.length;
  const [wanted, setWanted] = useState(false);
  if (!source.value?.judge) return null;
  if (wanted || (judges() && tasks <= SMALL_TASKS)) return html`<${view} ...${of} />`;
  return html`<section class="card"><h2>${title}</h2>
    <button type="button" onClick=${() => setWanted(true)}>
      ${judges() ? `Look through all ${count(tasks)} tasks` : "Work it out in this tab"}</button></section>`;
}

function Blockers({ open, graph }: Of): VNode | null {
  const state = stateOf(graph.header);
  const over = OVER.includes(state);
  const asked = useAsked(
    async () => (over ? null : ask<{ causes: Cause[] }>("GET", path("graphs", open.id, "why"))),
    [open.id, over, state, usePaced(graph.event, WHY_SECONDS)],
  );
  if (over) return null;
  return html`<section class="card">
    <h2>${state === "blocked" ? "What blocks it" : "What it waits for"}</h2>
    ${answered(asked, "the causes", (found) =>
      found?.causes.length
        ? html`<ul class="causes">
            ${found.causes.map(
              ({ text: said, remedy }) => html`<li key=${said}>${said}<${Remedy} text=${remedy} /></li>`,
            )}
          </ul>`
        : html`<${Empty}>Nothing.</${Empty}>`,
    )}
  </section>`;
}

function Failures({ open, graph }: Of): VNode | null {
  const failed: number[] = [];
  graph.state.forEach((code, place) => FAILED_CODES.has(code) && failed.push(place));
  if (failed.length === 0) return null;
  return html`<section class="card">
    <h2>${count(failed.length)} failed</h2>
    <ul class="plain">
      ${failed.slice(0, FAILURES_SHOWN).map(
        (place) => html`<li key=${place}>
          <${State} state=${TASK_STATES[graph.state[place]!]!.name} brief />
          <a class="label" href=${taskHref(open.id, graph.labels[place]!)}>${graph.labels[place]!}</a>
          <a class="small" href=${taskHref(open.id, graph.labels[place]!, "log")}>log</a>
          <a class="small judged" href=${taskHref(open.id, graph.labels[place]!, "why")}>why</a>
        </li>`,
      )}
    </ul>
    <p>
      ${failed.length > FAILURES_SHOWN && html`<a
        href=${href(["g", open.id, "tasks"], { state: "failed" })}>All of them</a> · `}
      <a class="button judged"
        href=${href(["g", open.id, "plan"], { change: "rerun", failed: 1 })}>Rerun what failed …</a>
    </p>
  </section>`;
}

interface Limit {
  readonly group: string | null;
  readonly max: number;
  readonly inFlight: readonly string[];
}

function Limits({ open, graph }: Of): VNode | null {
  const any = texts(graph.header, "limits").length > 0 && judges();
  const asked = useAsked(
    async () => (any ? ask<{ limits: Limit[] }>("GET", path("graphs", open.id, "limits")) : { limits: [] }),
    [open.id, Boolean(any), usePaced(graph.event, LIMITS_SECONDS)],
  );
  if (!any) return null;
  return html`<section class="card">
    <h2>Limits</h2>
    ${answered(
      asked,
      "limits",
      ({ limits }) => html`<ul class="plain">
      ${limits.map(
        (each) => html`<li key=${each.group ?? ""}>
          ${each.group === null ? "The graph" : html`Group <b>${each.group}</b>`}: ${count(each.inFlight.length)} of
          ${" "}${count(each.max)} in flight${each.inFlight.length > 0 && `: ${each.inFlight.slice(0, 5).join(", ")}`}
          ${" "}<a class="small"
            href=${href(["g", open.id, "plan"], { change: "set-limit", group: each.group, max: each.max })}
            >change …</a>
        </li>`,
      )}
    </ul>`,
    )}
  </section>`;
}

interface Spending {
  readonly counted: boolean;
  readonly amount: number;
  readonly currency: string;
  readonly requests: Readonly<Record<string, number>>;
  readonly runSeconds: Readonly<Record<string, number>>;
  readonly budget: { readonly amount: number; readonly reached: string | null } | null;
  readonly prices: { readonly date: string };
}

const money = (amount: number): string => (amount >= 1 ? amount.toFixed(2) : amount.toPrecision(3));

const percent = (part: number): string => `${Math.round(100 * part)} %`;
const listed = (of: Readonly<Record<string, number>>, say: (value: number) => string): string =>
  Object.entries(of)
    .map(([name, value]) => `${name} ${say(value)}`)
    .join(", ");

function Cost({ open, graph }: Of): VNode | null {
  const asked = useAsked(
    () => ask<Spending>("GET", path("graphs", open.id, "cost")),
    [open.id, OVER.includes(stateOf(graph.header)), usePaced(graph.event, LIMITS_SECONDS)],
  );
  return html`<section class="card"><h2>Cost</h2>
    ${answered(asked, "what it has cost", ({ amount, currency, budget, counted, requests, runSeconds, prices }) =>
      counted
        ? html`<${Facts} of=${[
            ["So far", `${money(amount)} ${currency}`],
            ["Budget", budget && `${money(budget.amount)} ${currency}, ${percent(amount / budget.amount)} spent`],
            ["Runs", listed(runSeconds, (taken) => duration(taken * 1000))],
            ["Requests", listed(requests, count)],
            ["Prices of", prices.date],
          ]} />`
        : html`<${Empty}>An earlier version wrote it: nothing was counted.</${Empty}>`,
    )}
  </section>`;
}

/** How groups stand that need only some of their tasks. */
function Groups({ open, graph }: Of): VNode | null {
  const any = graph.header.columns.counting === true;
  const asked = useAsked(
    async () => (any ? read((rows) => standings(rows, open.id)) : []),
    [open.id, any, usePaced(graph.event, LIMITS_SECONDS)],
  );
  if (!any) return null;
  return html`<section class="card">
    <h2>Groups that need some</h2>
    ${answered(
      asked,
      "groups",
      (found) => html`<ul class="plain">
      ${found.map(
        (each) => html`<li key=${each.group}>
          Group <b>${each.group}</b>: ${count(each.ok)} ok, ${count(each.bad)} bad, needs ${count(each.needs)} of
          ${" "}${count(each.of)}${each.decided ? `: it has ${each.decided}` : ", open"}${
            each.decided && each.cancels ? ", the rest is cancelled" : ""
          }
        </li>`,
      )}
    </ul>`,
    )}
  </section>`;
}

function Results({ open, graph }: Of): VNode | null {
  const over = OVER.includes(stateOf(graph.header));
  const asked = useAsked(
    () => ask<Record<string, unknown>>("GET", path("graphs", open.id, "results")),
    [open.id, over, source.value!.number],
  );
  const none = Object.keys(asked.value ?? {}).length === 0;
  if (none && source.value!.api && graph.ids.length <= SMALL_TASKS) return null;
  return html`<section class="card"><h2>Results</h2>
    ${answered(asked, "results", (found) => {
      return none ? html`<${Empty}>None.</${Empty}>` : html`<${Json} value=${found} />`;
    })}
  </section>`;
}

function About({ open, graph }: Of): VNode {
  const { header } = graph;
  const created = time(header, "created");
  const ended = endOf(header);
  const tags = Object.entries(object(header, "tags"));
  const metadata = Object.entries(object(header, "metadata"));
  const held = texts(header, "held");
  const schedule = text(header, "schedule");
  const state = stateOf(header);
  const plain = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));
  return html`<section class="card">
    <h2>About it</h2>
    <${Facts}
      of=${[
        ["Created", html`<${Time} at=${created} />`],
        ["By", text(header, "by")],
        [
          Number.isFinite(ended) ? "Took" : "Runs since",
          duration((Number.isFinite(ended) ? ended : now.value) - created),
        ],
        ["Done at this pace in", state === "running" && duration(rest(graph, now.value))],
        ["Ended", Number.isFinite(ended) && html`<${Time} at=${ended} />`],
        ["Tasks, requirements", `${count(whole(header, "tasks"))}, ${count(whole(header, "edges"))}`],
        ["Schedule", schedule && html`<a href=${href(["schedules", schedule])}>${schedule}</a>`],
        [
          "Held back",
          held.join(", ") && `${held.join(", ")}${text(header, "pausedReason") && `: ${text(header, "pausedReason")}`}`,
        ],
        ["Reason", text(header, "reason")],
        ["Stands still", text(header, "stalledBecause")],
        ["Deadline", text(header, "deadline") && html`<${Time} at=${time(header, "deadline")} />`],
        ["Priority", text(header, "priority")],
        ["On failure", text(header, "failurePolicy")],
        ["Revision", whole(header, "revision") || ""],
        ...metadata.map(([name, value]) => [name, plain(value)] as const),
        [
          "Tags",
          tags.length > 0 &&
            html`<span class="tags">${tags.map(([name, value]) => html`<a key=${name} class="tag"
              href=${href([], { tag: `${name}=${plain(value)}` })}>${name}: ${plain(value)}</a>`)}</span>`,
        ],
      ]}
    />
    ${isThere("compare") && html`<p><a href=${href(["g", open.id, "compare"])}>Compare with another graph</a></p>`}
  </section>`;
}

function Actions({ open, graph }: Of): VNode | null {
  const state = stateOf(graph.header);
  const plan = (change: string, title: string, more = {}): VNode =>
    html`<a class="button judged" href=${href(["g", open.id, "plan"], { change, ...more })}>${title}</a>`;
  if (!isLive(graph.header)) return null;
  return html`<p class="actions">
    ${state === "paused" ? plan("resume", "Resume …") : plan("pause", "Pause …")}
    ${plan("set-limit", "Limit …")} ${plan("prioritize", "Priority …")} ${plan("cancel", "Cancel …")}
    ${plan("edit", "Edit …")} ${plan("extend", "Extend …")}
  </p>`;
}

export function Summary(of: Of): VNode {
  const { open, graph } = of;
  const params = object(graph.header, "params");
  return html`<div>
    <${Counts} open=${open} graph=${graph} />
    <${Actions} open=${open} graph=${graph} />
    <div class="cards">
      ${!OVER.includes(stateOf(graph.header)) && html`<${Heavy} of=${of} title="What it waits for" view=${Blockers} />`}
      ${isLive(graph.header) && html`<${Ends} ...${of} />`}
      <${Failures} open=${open} graph=${graph} />
      <${Groups} open=${open} graph=${graph} />
      <${Limits} open=${open} graph=${graph} />
      <${About} open=${open} graph=${graph} />
      <${Heavy} of=${of} title="Cost" view=${Cost} />
      ${Object.keys(params).length > 0 && html`<section class="card"><h2>Parameters</h2><${Json} value=${params} />
        </section>`}
      <${Heavy} of=${of} title="Results" view=${Results} />
    </div>
  </div>`;
}
