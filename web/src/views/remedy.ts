/** What the API advises to do: a button where the page can plan just that, otherwise the command to copy. */

import type { VNode } from "preact";

import { steps } from "./commands.ts";
import { html } from "./html.ts";
import { CopyButton } from "./parts.ts";

export function Remedy({ text }: { text: string }): VNode | null {
  if (!text) return null;
  return html`<div class="remedy">
    <p>${text}</p>
    ${steps(text).map((each) =>
      each.address
        ? html`<a class="button" key=${each.command} href=${each.address}>${each.title}</a>`
        : html`<${CopyButton} key=${each.command} text=${each.command} label=${`Copy “${each.command}”`} />`,
    )}
  </div>`;
}
