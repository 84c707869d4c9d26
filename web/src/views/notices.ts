/** The channels of a graph's notices, and how far each has come. */

import type { VNode } from "preact";

import { type Action, useAct } from "./act.ts";
import { count, many, milliseconds, shown as inOneLine } from "./format.ts";
import type { Of } from "./graph.ts";
import { html } from "./html.ts";
import { answered, Empty, Time, useAsked } from "./parts.ts";
import { ask, path, source } from "./source.ts";

interface Channel {
  readonly key: string;
  readonly channel: string;
  readonly state: string;
  readonly on: readonly string[];
  readonly ofTasks: boolean;
  readonly cursor: number;
  readonly delivered: number;
  readonly failures: number;
  readonly nextTry: string | null;
  readonly lastError: string;
}

const channelsOf = async (id: string): Promise<readonly Channel[]> =>
  (await ask<{ channels: Channel[] }>("GET", path("graphs", id, "notices"))).channels;

const waits = ({ failures, state }: Channel): boolean => failures > 0 || state === "given-up";

function retry(id: string): Action<readonly Channel[]> {
  return {
    title: `Try the notices of ${id} again`,
    verb: "Try again",
    look: async () => (await channelsOf(id)).filter(waits),
    show: (found) => html`<div><p>${found.length > 0 ? "These would be tried again, from where each has come to:"
      : "None waits any more."}</p><ul class="causes">${found.map((each) => html`<li key=${each.key}>
      <b>${each.channel}</b>, ${each.state} after ${many(each.failures, "failure")}${each.nextTry && html`, next try
      ${" "}<${Time} at=${milliseconds(each.nextTry)} />`}: ${inOneLine(each.lastError)}</li>`)}</ul></div>`,
    fixed: (found) => found.map(({ key, state, failures, cursor }) => [key, state, failures, cursor]),
    act: () => ask("POST", `${path("graphs", id)}/notices:retry`),
    done: "They are tried again.",
  };
}

export function Notices({ open, graph }: Of): VNode {
  const asked = useAsked(() => channelsOf(open.id), [open.id, graph.event]);
  const { propose, shown } = useAct(asked.again);
  return html`<section><h2>Notices</h2>
    ${shown}
    ${answered(asked, "the channels", (channels) =>
      channels.length === 0
        ? html`<${Empty}>The document of this graph names no channel (“notify”).</${Empty}>`
        : html`<div class="scroll"><table class="plain-table">
            <thead><tr><th scope="col">Channel</th><th scope="col">State</th><th scope="col">Of</th><th
              scope="col">Delivered</th><th scope="col">Failures in a row</th><th scope="col">Next try</th></tr></thead>
            <tbody>${channels.map(
              (each) => html`<tr key=${each.key}>
              <th scope="row">${each.channel}</th><td>${each.state}</td>
              <td>${[...each.on, each.ofTasks ? "tasks" : ""].filter(Boolean).join(", ")}</td>
              <td>${count(each.delivered)}, to event ${count(each.cursor)} of ${count(graph.event)}</td>
              <td>${each.failures > 0 ? `${count(each.failures)}: ${each.lastError}` : ""}</td>
              <td>${each.nextTry && html`<${Time} at=${milliseconds(each.nextTry)} />`}</td></tr>`,
            )}</tbody>
          </table></div>
          ${source.value?.api && channels.some(waits) && html`<button type="button"
            onClick=${() => propose(retry(open.id))}>Try again …</button>`}`,
    )}
  </section>`;
}
