/** The channels of a graph's notices, and how far each has come. */

import { useState } from "preact/hooks";
import type { VNode } from "preact";

import { count, milliseconds } from "./format.ts";
import type { Of } from "./graph.ts";
import { html } from "./html.ts";
import { answered, Empty, Time, TroubleBox, useAsked } from "./parts.ts";
import { ask, path } from "./source.ts";

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

export function Notices({ open, graph }: Of): VNode {
  const asked = useAsked(
    () => ask<{ channels: Channel[] }>("GET", path("graphs", open.id, "notices")),
    [open.id, graph.event],
  );
  const [trouble, setTrouble] = useState<unknown>(null);
  const retry = (): void => {
    ask("POST", `${path("graphs", open.id)}/notices:retry`).then(asked.again, setTrouble);
  };
  return html`<section><h2>Notices</h2>
    ${trouble && html`<${TroubleBox} trouble=${trouble} />`}
    ${answered(asked, "the channels", ({ channels }) =>
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
          ${channels.some((each) => each.failures > 0 || each.state === "given-up") && html`<button type="button"
            onClick=${retry}>Try again at once</button>`}`,
    )}
  </section>`;
}
