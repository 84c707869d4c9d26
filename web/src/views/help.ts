/** All keys, by where they count. */

import type { VNode } from "preact";

import { type Key, KEYS } from "../keys.ts";
import { Dialog } from "./dialog.ts";
import { html } from "./html.ts";

const NAMES: Readonly<Record<string, string>> = {
  " ": "Space",
  ArrowDown: "↓",
  ArrowUp: "↑",
  ArrowLeft: "←",
  ArrowRight: "→",
};

export function Help({ close }: { close: () => void }): VNode {
  const all: readonly Key[] = Object.values(KEYS);
  const places = [...new Set(all.map((each) => each.where))];
  return html`<${Dialog} label="Keys" close=${close}>
    <h2>Keys <button type="button" class="small" onClick=${close}>Close</button></h2>
    <div class="keys">
      ${places.map(
        (where) => html`<section key=${where}>
        <h3>${where}</h3>
        <dl>${all
          .filter((each) => each.where === where)
          .map(
            (each) => html`<div key=${each.what}>
          <dt>${each.keys.map((name) => html`<kbd key=${name}>${NAMES[name] ?? name}</kbd> `)}</dt><dd>${each.what}</dd>
        </div>`,
          )}</dl>
      </section>`,
      )}
    </div>
  </${Dialog}>`;
}
