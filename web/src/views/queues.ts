/** Targets and the queues of their work: paused, limited, how much waits; the change of each is for all graphs. */

import { useEffect, useState } from "preact/hooks";
import type { VNode } from "preact";

import type { Target } from "../model/overview.ts";
import { useAct } from "./act.ts";
import { type Queue, useOverview } from "./attention.ts";
import { count, duration } from "./format.ts";
import { html } from "./html.ts";
import { answered, Empty, Time } from "./parts.ts";
import { ask, path, source } from "./source.ts";

type Run = ReturnType<typeof useAct>["run"];

function Changes({ target, run }: { target: Target; run: Run }): VNode {
  const [most, setMost] = useState(String(target.limit || ""));
  const at = path("targets", target.name);
  const verb = target.paused ? "resume" : "pause";
  const turn = (): void =>
    run(() => ask("POST", `${at}:${verb}`), `${target.name} ${target.paused ? "goes on" : "is paused"}.`);
  const limit = (event: Event): void => {
    event.preventDefault();
    run(
      () => ask("POST", `${at}:limit?max=${Number(most) || 0}`),
      `${target.name}: ${Number(most) ? `${most} at a time` : "no limit"}.`,
    );
  };
  return html`<div class="actions">
    <button type="button" class="small" onClick=${turn}>${target.paused ? "Resume" : "Pause"}</button>
    <form class="inline" onSubmit=${limit}>
      <label>At a time <input type="number" min="0" max="1000" value=${most}
        onInput=${(event: Event) => setMost((event.currentTarget as HTMLInputElement).value)} /></label>
      <button type="submit" class="small">Set</button>
    </form>
  </div>`;
}

const NONE = {
  paused: false,
  limit: 0,
  permits: 0,
  reason: "",
  by: "",
  since: Number.NaN,
  workers: 0,
  slots: 0,
  busy: 0,
};

export function Queues(): VNode {
  const { all: asked, look } = useOverview();
  const again = (): void => {
    asked.again();
    look.again();
  };
  const { run, shown } = useAct(again);
  useEffect(() => {
    document.title = "Queues – taskgraph";
  }, []);
  const queues = new Map<string, Queue>(
    look.value?.queues.filter((each) => each.target).map((each) => [each.target, each]),
  );
  const events = look.value?.queues.find((each) => !each.target);
  const line = (each: Target): VNode => {
    const queue = queues.get(each.name);
    const oldest = queue?.oldestSeconds;
    return html`<tr key=${each.name}>
      <th scope="row">${each.name}</th>
      <td>${each.paused ? html`<span class="mark" aria-hidden="true">‖</span> paused` : html`<span class="mark"
        aria-hidden="true">▶</span> open`}
        ${each.reason && html`<br /><small>${each.reason}${each.by && `, ${each.by}`}</small>`}
        ${Number.isFinite(each.since) && html`<br /><small>since <${Time} at=${each.since} /></small>`}</td>
      <td>${each.limit > 0 ? `${count(each.permits)} of ${count(each.limit)}` : "none"}</td>
      <td>${each.workers > 0 ? `${count(each.workers)} with ${count(each.slots)} slots, ${count(each.busy)} busy`
        : html`<b>none</b>`}</td>
      <td>${queue ? `about ${count(queue.messages)}` : ""}${typeof oldest === "number" ? html`<br />
        <small>oldest ${duration(oldest * 1000)}</small>` : ""}</td>
      <td>${source.value!.api && html`<${Changes} key=${`${each.limit}`} target=${each} run=${run} />`}</td>
    </tr>`;
  };
  return html`<div class="page"><h1>Targets and queues <button type="button" class="small"
    onClick=${again}>Look again</button></h1>
    ${shown}
    ${answered(asked, "targets", ({ targets }) => {
      const named = new Set(targets.map((each) => each.name));
      const others = [...queues.keys()].filter((name) => !named.has(name)).map((name) => ({ ...NONE, name }));
      const all = [...targets, ...others];
      if (all.length === 0) return html`<${Empty}>No target has workers, messages, a limit or a pause.</${Empty}>`;
      return html`<div class="scroll"><table class="plain-table">
        <thead><tr><th scope="col">Target</th><th scope="col">State</th><th scope="col">Limit</th><th
          scope="col">Workers</th><th scope="col">Messages</th><th scope="col"><span class="unseen">Changes</span>
          </th></tr></thead>
        <tbody>${all.map(line)}</tbody></table></div>`;
    })}
    ${events && html`<p>Events to be handled: about ${count(events.messages)}.</p>`}
  </div>`;
}
