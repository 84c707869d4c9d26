/** Why a task does not run: the causes as a tree, each with what can be done about it. */

import { useRef } from "preact/hooks";
import type { VNode } from "preact";

import { useKeys } from "../keys.ts";
import { go, href, route } from "../route.ts";
import { count } from "./format.ts";
import { type Of, taskAt, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { answered, Empty, State, useAsked } from "./parts.ts";
import { Remedy } from "./remedy.ts";
import { ask, path } from "./source.ts";

interface Reason {
  readonly label: string;
  readonly taskId: string;
  readonly state: string;
  readonly depth: number;
  readonly text: string;
  readonly cause: boolean;
  readonly remedy: string;
}

interface Explanation {
  readonly label: string;
  readonly reasons: readonly Reason[];
  readonly omitted: number;
}

const SHOWN = 300;

function Line({ reason, id }: { reason: Reason; id: string }): VNode {
  return html`<li
    role="treeitem"
    aria-level=${reason.depth + 1}
    class=${reason.cause ? "reason cause" : "reason"}
    style=${{ "--depth": String(Math.min(reason.depth, 12)) }}
  >
    <${State} state=${reason.state} brief />
    <div>
      <a href=${taskHref(id, reason.label)} class="label">${reason.label}</a> ${reason.text}
      ${reason.cause && html` <a class="small" href=${taskHref(id, reason.label, "log")}>log</a>`}
      <${Remedy} text=${reason.remedy} />
    </div>
  </li>`;
}

export function Why({ open, graph }: Of): VNode {
  const name = route.value.path[3] ?? "";
  const place = taskAt(open, name);
  const task = place >= 0 ? graph.ids[place]! : name;
  const asked = useAsked(
    () => ask<Explanation>("GET", `${path("graphs", open.id, "tasks", task)}/why`),
    [`${open.id} ${task}`, graph.event],
  );
  const tree = useRef<HTMLUListElement>(null);
  const move = (by: 1 | -1) => () => {
    const links = [...(tree.current?.querySelectorAll<HTMLElement>(".reason a.label") ?? [])];
    const at = links.findIndex((each) => each.closest(".reason")?.contains(document.activeElement));
    links[at < 0 ? 0 : Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
  };
  useKeys({
    down: move(1),
    up: move(-1),
    toTask: () => go(taskHref(open.id, name)),
    log: () => go(taskHref(open.id, name, "log")),
  });
  return html`<section>
    <h2>Why <a class="label" href=${taskHref(open.id, name)}>${name}</a> does not run</h2>
    ${answered(asked, "the causes", (found) => {
      if (found.reasons.length === 0) return html`<${Empty}>Nothing holds it back.</${Empty}>`;
      const omitted = found.omitted + Math.max(0, found.reasons.length - SHOWN);
      return html`<ul role="tree" aria-label="Causes" class="reasons" ref=${tree}>
          ${found.reasons.slice(0, SHOWN).map((each) => html`<${Line} key=${each.taskId} reason=${each}
            id=${open.id} />`)}
        </ul>
        ${omitted > 0 && html`<p>And ${count(omitted)} more.</p>`}
        <p><a href=${href(["g", open.id, "dag"], { focus: name, depth: 2 })}>Show it among its neighbours</a></p>`;
    })}
  </section>`;
}
