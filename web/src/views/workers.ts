/** Who works: workers and handlers, what they have in hand; drain one, or let it work again. */

import { useEffect } from "preact/hooks";
import type { VNode } from "preact";

import type { Worker } from "../model/overview.ts";
import { useAct } from "./act.ts";
import { useOverview } from "./attention.ts";
import { count, many } from "./format.ts";
import { taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { answered, Empty, Time } from "./parts.ts";
import { ask, path, source } from "./source.ts";

const MARKS: Readonly<Record<string, string>> = { active: "●", draining: "◐", drained: "○", gone: "✗" };

function Slots({ of }: { of: Worker }): VNode {
  return html`<span class="slots" title=${`${of.busy} of ${of.slots} busy`}>
    <meter min="0" max=${Math.max(1, of.slots)} value=${of.busy} aria-label="Busy slots">
      </meter> ${count(of.busy)}/${count(of.slots)}
  </span>`;
}

export function Workers(): VNode {
  const { all: asked } = useOverview();
  const { run, shown, busy } = useAct(asked.again);
  useEffect(() => {
    document.title = "Workers – taskgraph";
  }, []);
  const drain = (name: string, verb: string, done: string): void =>
    run(() => ask("POST", `${path("workers", name)}:${verb}`), `${name} ${done}`);
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
      (each.state === "active"
        ? html`<button type="button" class="small" disabled=${busy}
          onClick=${() => drain(each.name, "drain", "takes no new work.")}>Drain</button>`
        : html`<button type="button" class="small" disabled=${busy}
          onClick=${() => drain(each.name, "undrain", "takes work again.")}>Take work again</button>`)
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
