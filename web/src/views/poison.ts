/** Messages that were set aside, as they could not be handled; put one back on its queue. */

import { useEffect } from "preact/hooks";
import type { VNode } from "preact";

import { useAct } from "./act.ts";
import { count, many, milliseconds } from "./format.ts";
import { html } from "./html.ts";
import { answered, Empty, Time, useAsked } from "./parts.ts";
import { ask, path, source } from "./source.ts";

interface Message {
  readonly key: string;
  readonly queue: string;
  readonly body: string;
  readonly reason: string;
  readonly failures: number;
  readonly state: string;
  readonly setAside: string | null;
}

export function PoisonView(): VNode {
  const asked = useAsked(() => ask<{ messages: Message[] }>("GET", "/poison"), [source.value!.number]);
  const { run, shown, busy } = useAct(asked.again);
  useEffect(() => {
    document.title = "Poison – taskgraph";
  }, []);
  const replay = (key: string): void =>
    run(() => ask("POST", `${path("poison", key)}:replay`), "It is back on its queue.");
  return html`<div class="page"><h1>Messages that were set aside</h1>
    ${shown}
    ${answered(asked, "the messages", ({ messages }) =>
      messages.length === 0
        ? html`<${Empty}>None: all messages could be handled.</${Empty}>`
        : html`<p>${many(messages.length, "message")}</p><ul class="causes">${messages.map(
            (each) => html`<li key=${each.key}>
            <p><b>${each.state}</b> after ${many(each.failures, "failure")}, of ${each.queue}${each.setAside &&
              html`, <${Time} at=${milliseconds(each.setAside)} />`}: ${each.reason}</p>
            <details><summary>The message, ${count(each.body.length)} characters</summary><pre class="json">
              ${each.body}</pre></details>
            <button type="button" class="small" disabled=${busy}
              onClick=${() => replay(each.key)}>Put it back on its queue</button>
          </li>`,
          )}</ul>`,
    )}
  </div>`;
}
