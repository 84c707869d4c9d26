/** A change of a graph: first its plan, task by task, then just that under its digest. A stale plan is shown anew. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { VNode } from "preact";

import { keyTitle, useKeys } from "../keys.ts";
import { Trouble } from "../rows/port.ts";
import { pause, visible } from "../rows/waiting.ts";
import { here, route, set } from "../route.ts";
import { count, many } from "./format.ts";
import { type Of, taskHref } from "./graph.ts";
import { type Content, html } from "./html.ts";
import { lazily } from "./lazy.ts";
import { Empty, Loading, State, TroubleBox, useAsked } from "./parts.ts";
import { type Change, changed, changeOf, gone, isNothing, KINDS, labelsOf, type Plan, WRITTEN } from "./planned.ts";
import { ask, path } from "./source.ts";

const SHOWN = 200;
const WAIT_SECONDS = 0.3;
const WAIT_SECONDS_MAX = 5;
const NAMED = 5;

/** The first ones of a list, and how many more there are. */
function some(labels: readonly string[], all: number): string {
  return `${labels.slice(0, NAMED).join(", ")}${all > NAMED ? ` and ${count(all - NAMED)} more` : ""}`;
}

const graphPath = (id: string): string => path("graphs", id);

/** Ask for what a request has become until it is done. Throws `Trouble` where it was refused, and with `signal`. */
async function awaited(id: string, request: string, signal: AbortSignal): Promise<void> {
  for (let seconds = WAIT_SECONDS; ; seconds = Math.min(WAIT_SECONDS_MAX, seconds * 1.3)) {
    const { state, reason } = await ask<{ state: string; reason: string | null }>(
      "GET",
      path("graphs", id, "requests", request),
    );
    if (state === "refused") throw new Trouble("wrong", `The change was refused: ${reason ?? ""}`);
    if (state === "done") return;
    await pause(seconds, signal);
    await visible(signal);
  }
}

function Field({
  name,
  title,
  children,
}: {
  name: string;
  title: string;
  children?: (value: string, put: (event: Event) => void) => VNode;
}): VNode {
  const value = route.value.query.get(name) ?? "";
  const put = (event: Event): void => {
    const input = event.currentTarget as HTMLInputElement;
    set({ [name]: input.type === "checkbox" ? input.checked : input.value });
  };
  return html`<label class="field">${title} ${children ? children(value, put) : html`<input value=${value}
    onChange=${put} />`}</label>`;
}

const check = (value: string, put: (event: Event) => void): VNode =>
  html`<input type="checkbox" checked=${value === "1"} onChange=${put} />`;
const text = (value: string, put: (event: Event) => void): VNode => html`<input value=${value} onChange=${put} />`;

function choose(options: readonly string[], none: string) {
  return (value: string, put: (event: Event) => void): VNode => html`<select value=${value} onChange=${put}>
    ${none && html`<option value="">${none}</option>`}
    ${options.map((each) => html`<option key=${each} value=${each} selected=${each === value}>${each}</option>`)}
  </select>`;
}

function Form({ graph }: { graph: Of["graph"] }): VNode {
  const { query } = route.value;
  const kind = query.get("change") ?? "";
  const labels = labelsOf(query.get("labels") ?? "");
  const takes = KINDS[kind]?.takes ?? [];
  return html`<form class="filters" onSubmit=${(event: Event) => event.preventDefault()}>
    <${Field} name="change" title="Change">${choose(Object.keys(KINDS), "choose …")}</${Field}>
    ${
      labels.length > 0 &&
      takes.includes("labels") &&
      html`<span class="chosen">
      ${many(labels.length, "task")}: <b>${labels.slice(0, 3).join(", ")}${labels.length > 3 ? ", …" : ""}</b>
      <a class="button small" href=${here({ labels: null })}>None of them</a>
    </span>`
    }
    ${takes.includes("group") && labels.length === 0 && graph.groups.length > 0 && html`<${Field} name="group"
      title="Group">${choose(graph.groups, kind === "rerun" ? "none" : "all of the graph")}</${Field}>`}
    ${takes.includes("failed") && labels.length === 0 && !query.get("group") && html`<${Field} name="failed"
      title="All that failed">${check}</${Field}>`}
    ${takes.includes("all") && labels.length === 0 && !query.get("group") && html`<${Field} name="all"
      title="All that ended">${check}</${Field}>`}
    ${takes.includes("downstream") && html`<${Field} name="downstream" title="And what ran after them">${check}
      </${Field}>`}
    ${takes.includes("terminate") && html`<${Field} name="terminate" title="Stop at once what runs">${check}
      </${Field}>`}
    ${takes.includes("max") && html`<${Field} name="max" title="In flight at most (0: any number)">${text}</${Field}>`}
    ${takes.includes("budget") && !query.get("group") && html`<${Field} name="budget" title="Budget from now on">${text}
      </${Field}>`}
    ${takes.includes("priority") && html`<${Field} name="priority" title="Priority">
      ${choose(["highest", "high", "normal", "low", "lowest"], "choose …")}</${Field}>`}
    ${takes.includes("reason") && html`<${Field} name="reason" title="Reason, for the journal">${text}</${Field}>`}
  </form>`;
}

const value = (one: unknown): string => (typeof one === "string" ? one || "“”" : JSON.stringify(one ?? null));

function PlanOf({ id, plan, marks }: { id: string; plan: Plan; marks: ReadonlyMap<string, string> }): VNode {
  return html`<div>
    ${Object.entries(plan.graph).map(([name, { before, after }]) => html`<p key=${name}>The graph: ${name} <b>
      ${value(before)}</b> → <b>${value(after)}</b></p>`)}
    ${plan.limits.map((each) => html`<p key=${each.group ?? ""}>Limit of ${each.group ?? "the graph"}: <b>
      ${value(each.before)}</b> → <b>${value(each.after)}</b></p>`)}
    ${plan.refused.map((each) => html`<p key=${each} class="trouble">${each}</p>`)}
    ${isNothing(plan) && html`<${Empty}>Nothing would change.</${Empty}>`}
    ${
      plan.tasks.length > 0 &&
      html`<div class="scroll"><table class="plain-table">
      <caption>${many(plan.taskCount, "task")} would change${plan.taskCount > SHOWN ? `; the first ${SHOWN}` : ""}
        </caption>
      <thead><tr><th scope="col">Task</th><th scope="col">Is</th><th scope="col">Becomes</th><th scope="col">Run</th>
        <th scope="col">Columns</th></tr></thead>
      <tbody>${plan.tasks.slice(0, SHOWN).map(
        (each) => html`<tr key=${each.taskId} class=${marks.get(each.taskId) ?? ""}>
        <th scope="row"><a class="label" href=${taskHref(id, each.label)}>${each.label}</a>
          ${marks.has(each.taskId) &&
          html` <small>${marks.get(each.taskId)}</small>`}</th>
        <td>${each.from ? html`<${State} state=${each.from} />` : "–"}</td>
        <td>${each.to ? html`<${State} state=${each.to} />` : "taken away"}</td>
        <td>${each.run === each.toRun ? each.run : `${each.run} → ${each.toRun}`}</td>
        <td>${Object.entries(each.columns).map(([name, { before, after }]) => html`<div key=${name}>
          ${name}: ${value(before)} → ${value(after)}</div>`)}</td>
      </tr>`,
      )}</tbody>
    </table></div>`
    }
    ${plan.readyCount > 0 &&
      html`<p>Sent at once: ${some(plan.ready, plan.readyCount)}</p>`}
    ${plan.held > 0 && html`<p>${many(plan.held, "task")} held back.</p>`}
    <p><small>Revision ${plan.revision}, after event ${plan.event}. <code>${plan.plan}</code></small></p>
  </div>`;
}

interface Applying {
  readonly state: "" | "busy" | "done" | "asked";
  readonly trouble: unknown;
}

interface PlannedProps {
  readonly id: string;
  readonly change: Change;
  /** Is called with what went wrong with the planning, undefined for nothing, and shows problems of the document. */
  readonly failed?: (trouble: unknown) => void;
}

export function Planned({ id, change, failed }: PlannedProps): VNode {
  const text = JSON.stringify(change);
  const asked = useAsked(() => ask<Plan>("POST", `${graphPath(id)}/changes?dryRun=1`, change), [`${id} ${text}`]);
  const [applying, setApplying] = useState<Applying>({ state: "", trouble: null });
  const [stale, setStale] = useState<{ old: Plan; plan: Plan } | null>(null);
  const left = useRef(new AbortController());
  useEffect(() => {
    setStale(null);
    setApplying({ state: "", trouble: null });
    const stop = (left.current = new AbortController());
    return () => stop.abort();
  }, [id, text]);
  useEffect(() => failed?.(asked.trouble), [asked.trouble]);
  const plan = stale?.plan ?? asked.value;
  const missing = stale ? gone(stale.old, stale.plan) : [];
  const marks = stale ? changed(stale.old, stale.plan) : new Map<string, string>();
  const apply = async (): Promise<void> => {
    if (!plan || isNothing(plan) || applying.state) return;
    setApplying({ state: "busy", trouble: null });
    const { signal } = left.current;
    try {
      const found = await ask<{ request: string }>(
        "POST",
        `${graphPath(id)}/changes?plan=${encodeURIComponent(plan.plan)}`,
        change,
      );
      setApplying({ state: "asked", trouble: null });
      await awaited(id, found.request, signal);
      setApplying({ state: "done", trouble: null });
    } catch (trouble) {
      if (signal.aborted) return;
      const fresh = trouble instanceof Trouble ? (trouble.problem.plan as Plan | undefined) : undefined;
      if (fresh) setStale({ old: plan, plan: fresh });
      setApplying({ state: "", trouble: fresh ? null : trouble });
    }
  };
  useKeys({ apply: () => void apply() });
  if (asked.trouble && !asked.value) {
    if (failed && asked.trouble instanceof Trouble && asked.trouble.problem.problems) return html`<div></div>`;
    return html`<${TroubleBox} trouble=${asked.trouble} again=${asked.again} />`;
  }
  if (!plan) return html`<${Loading} what="the plan" />`;
  if (applying.state === "done" || applying.state === "asked") {
    return html`<p class="done" role="status"><span class="mark" aria-hidden="true">✓</span>
      ${
        applying.state === "done"
          ? "It is done."
          : "It was asked for. A handler takes it up when it comes by: mostly within 30 seconds, where one runs."
      }</p>`;
  }
  return html`<div>
    ${
      stale &&
      html`<div class="trouble" role="alert"><p><b>The graph has moved since this was planned, so nothing was done.</b>
      This is the plan as it is now${marks.size > 0 && `; new or other in it: ${many(marks.size, "task")}`}.</p>
      ${
        missing.length > 0 &&
        html`<p>No more in it: ${missing
          .slice(0, 5)
          .map((each) => each.label)
          .join(", ")}${missing.length > 5 ? ` and ${count(missing.length - 5)} more` : ""}.</p>`
      }</div>`
    }
    ${applying.trouble && html`<${TroubleBox} trouble=${applying.trouble} />`}
    <${PlanOf} id=${id} plan=${plan} marks=${marks} />
    <p class="actions">
      <button type="button" class="primary" disabled=${applying.state === "busy" || isNothing(plan)}
        title=${keyTitle("apply")} onClick=${() => void apply()}>
        ${applying.state === "busy" ? "Applying …" : "Apply just this"}
      </button>
      <button type="button" onClick=${() => (setStale(null), asked.again())}>Plan again</button>
    </p>
  </div>`;
}

const Editing = lazily(async () => (await import("./edit.ts")).Editing);

export function PlanView({ open, graph }: Of): VNode {
  const { query } = route.value;
  const change = changeOf(query);
  let content: Content;
  if (WRITTEN[query.get("change") ?? ""]) content = html`<${Editing} open=${open} graph=${graph} />`;
  else if (change) content = html`<${Planned} id=${open.id} change=${change} />`;
  else {
    const words = "Choose a change. What it would do is shown first, and written when you apply it.";
    content = html`<${Empty}>${words}</${Empty}>`;
  }
  return html`<section>
    <h2>Change the graph</h2>
    <${Form} graph=${graph} />
    ${content}
  </section>`;
}
