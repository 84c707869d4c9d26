/** Messages that were set aside, as they could not be handled; put one back on its queue. */

import { useEffect } from "preact/hooks";
import type { VNode } from "preact";

import { Trouble } from "../rows/port.ts";
import { type Action, useAct } from "./act.ts";
import { count, many, milliseconds, shown as shownText } from "./format.ts";
import { html } from "./html.ts";
import { answered, Empty, Json, Time, useAsked } from "./parts.ts";
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

const setAside = async (): Promise<Message[]> => (await ask<{ messages: Message[] }>("GET", "/poison")).messages;

/** JSON on several lines, anything else as it is. */
function Body({ text }: { text: string }): VNode {
  try {
    return html`<${Json} value=${JSON.parse(text)} />`;
  } catch {
    return html`<pre class="json">${shownText(text)}</pre>`;
  }
}

function replay(key: string): Action<Message> {
  return {
    title: "Put a message back on its queue",
    verb: "Put it back",
    look: async () => {
      const found = (await setAside()).find((each) => each.key === key);
      if (!found) throw new Trouble("missing", "the message is not there any more");
      return found;
    },
    show: ({ queue, state, reason, failures, body }) => html`<div>
      <p>It goes to <b>${queue}</b> as it is, and is handled again. It is ${state} after ${many(failures, "failure")}:
        ${" "}${shownText(reason)}</p>
      <${Body} text=${body} /></div>`,
    fixed: ({ queue, state, failures, body }) => [queue, state, failures, body],
    act: () => ask("POST", `${path("poison", key)}:replay`),
    done: "It is back on its queue.",
  };
}

export function PoisonView(): VNode {
  const asked = useAsked(setAside, [source.value!.number]);
  const { propose, shown } = useAct(asked.again);
  useEffect(() => {
    document.title = "Poison – taskgraph";
  }, []);
  return html`<div class="page"><h1>Messages that were set aside</h1>
    ${shown}
    ${answered(asked, "the messages", (messages) =>
      messages.length === 0
        ? html`<${Empty}>None: all messages could be handled.</${Empty}>`
        : html`<p>${many(messages.length, "message")}</p><ul class="causes">${messages.map(
            (each) => html`<li key=${each.key}>
            <p><b>${each.state}</b> after ${many(each.failures, "failure")}, of ${each.queue}${each.setAside &&
              html`, <${Time} at=${milliseconds(each.setAside)} />`}: ${each.reason}</p>
            <details><summary>The message, ${count(each.body.length)} characters</summary><${Body}
              text=${each.body} /></details>
            <button type="button" class="small" onClick=${() => propose(replay(each.key))}>Put it back …</button>
          </li>`,
          )}</ul>`,
    )}
  </div>`;
}
