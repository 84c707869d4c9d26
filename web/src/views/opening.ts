/** Where nothing is open yet: what the page can show, and how it is opened. */

import type { VNode } from "preact";

import { broken, isReport } from "./file.ts";
import { html } from "./html.ts";
import { Loading } from "./parts.ts";

export function Opening(): VNode {
  if (isReport() && !broken.value) return html`<${Loading} what="the report" />`;
  return html`<section class="page card">
    <h1>Nothing is open yet</h1>
    <p>This page shows graphs straight from where they lie. No server stands behind it.</p>
    <ul>
      <li>Open it by a link: <code>taskgraph grant ID --read --link</code> prints one for a graph.</li>
      <li>Or drop an archive here, or choose one above: <code>taskgraph archive ID</code> writes it.</li>
    </ul>
  </section>`;
}
