/** Who works: workers and handlers, what they have in hand; drain one, or let it work again. */

import { useEffect } from "preact/hooks";
import type { VNode } from "preact";

import type { Worker } from "../model/overview.ts";
import { Trouble } from "../rows/port.ts";
import { type Action, queryOf, useAct } from "./act.ts";
import { useOverview } from "./attention.ts";
import { count, many, milliseconds, shown as shownText } from "./format.ts";
import { taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { answered, Empty, Time } from "./parts.ts";
import { ask, path, source } from "./source.ts";

const IN_HAND = 10;
const MARKS: Readonly<Record<string, string>> = { active: "●", draining: "◐", drained: "○", gone: "✗" };

function Slots({ of }: { of: Worker }): VNode {
  return html`<span class="slots" title=${`${of.busy} of ${of.slots} busy`}>
    <meter min="0" max=${Math.max(1, of.slots)} value=${of.busy} aria-label="Busy slots">
      </meter> ${count(of.busy)}/${count(of.slots)}
  </span>`;
}

interface Hand {
  readonly name: string;
  readonly state: string;
  readonly slots: number;
  readonly busy: number;
  readonly running: readonly { readonly graph: string; readonly label: string }[];
  readonly targets: readonly string[];
  readonly seen: string | null;
}

/** Workers as the API has them now, of one target alone where that is named. */
export async function hands(target = ""): Promise<readonly Hand[]> {
  const query = target && `?target=${encodeURIComponent(target)}`;
  return (await ask<{ workers: readonly Hand[] }>("GET", `/workers${query}`)).workers;
}

/** What workers have in hand, as far as they name it. */
export function InHand({ of }: { of: readonly Hand[] }): VNode {
  const named = of.flatMap((each) => each.running);
  const busy = of.reduce((sum, each) => sum + each.busy, 0);
  const more = busy - Math.min(named.length, IN_HAND);
  return html`<div><p>${busy > 0 ? `In hand: ${many(busy, "task")}.` : "Nothing is in hand."}</p>
    <ul class="plain">${named.slice(0, IN_HAND).map((one) => html`<li key=${`${one.graph} ${one.label}`}><a
      class="label" href=${taskHref(one.graph, one.label)}>${shownText(one.graph)}: ${shownText(one.label)}</a></li>`)}
      ${named.length > 0 && more > 0 && html`<li>and ${count(more)} more</li>`}</ul></div>`;
}

function draining(name: string, on: boolean): Action<Hand> {
  return {
    title: on ? `Drain worker ${name}` : `Let worker ${name} take work again`,
    verb: on ? "Drain" : "Take work again",
    look: async () => {
      const found = (await hands()).find((each) => each.name === name);
      if (!found) throw new Trouble("missing", `worker ${name} has ended`);
      return found;
    },
    show: (found) => html`<div><p>It is ${found.state}, serves ${found.targets.join(", ")}, and was last seen
      ${" "}<${Time} at=${milliseconds(found.seen)} />. ${on
      ? `It would finish what it has in hand, and take no new work: ${many(found.slots, "slot")} less.`
      : `${many(found.slots, "slot")} more.`}</p>
      <${InHand} of=${[found]} /></div>`,
    fixed: ({ state, running }) => [state, running],
    choices: on
      ? [
          { name: "now", title: "Hand back what it runs, instead of finishing it", kind: "check" },
          { name: "exit", title: "End it once it has nothing in hand", kind: "check" },
        ]
      : [],
    act: (chosen) => ask("POST", `${path("workers", name)}:${on ? "drain" : "undrain"}${queryOf(chosen)}`),
    done: on ? `${name} takes no new work.` : `${name} takes work again.`,
  };
}

export function Workers(): VNode {
  const { all: asked } = useOverview();
  const { propose, shown } = useAct(asked.again);
  useEffect(() => {
    document.title = "Workers – taskgraph";
  }, []);
  const line = (each: Worker): VNode => html`<tr key=${each.name}>
    <th scope="row">${each.name}<br /><small>${[each.host, each.version].filter(Boolean).join(", ")}</small></th>
    <td><span class="mark" aria-hidden="true">${MARKS[each.state] ?? "?"}</span> ${each.state}</td>
    <td>${each.kind || each.targets.join(", ")}${each.labels.length > 0 ? html`<br /><small>${each.labels.join(", ")}
      </small>` : ""}</td>
    <td>${!each.kind && html`<${Slots} of=${each} />`}</td>
    <td>${each.running.slice(0, 6).map((one) => html`<div key=${`${one.graph} ${one.label}`}><a class="label"
      href=${taskHref(one.graph, one.label)}>${one.graph}: ${one.label}</a></div>`)}</td>
    <td><${Time} at=${each.seen} /></td>
    <td>${
      !each.kind &&
      source.value!.api &&
      each.state !== "gone" &&
      html`<button type="button" class="small" onClick=${() => propose(draining(each.name, each.state === "active"))}>
        ${each.state === "active" ? "Drain …" : "Take work again …"}</button>`
    }</td>
  </tr>`;
  return html`<div class="page"><h1>Workers <button type="button" class="small"
    onClick=${asked.again}>Look again</button></h1>
    ${shown}
    ${answered(asked, "workers", ({ workers, handlers }) => {
      const all = [...workers, ...handlers];
      if (all.length === 0)
        return html`<${Empty}>Nothing works on this store: start <code>taskgraph serve --worker 4</code>.</${Empty}>`;
      return html`<div class="scroll"><table class="plain-table">
        <caption>${many(workers.length, "worker")}, ${many(handlers.length, "handler")}</caption>
        <thead><tr><th scope="col">Name</th><th scope="col">State</th><th scope="col">Serves</th><th
          scope="col">Slots</th><th scope="col">In hand</th><th scope="col">Seen</th><th scope="col"><span
          class="unseen">Actions</span></th></tr></thead>
        <tbody>${all.map(line)}</tbody></table></div>`;
    })}
  </div>`;
}
