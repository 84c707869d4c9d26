/** What is wrong with the rows of a graph, or of all live ones. */

import { useEffect } from "preact/hooks";
import type { VNode } from "preact";

import { href } from "../route.ts";
import { type Action, useAct } from "./act.ts";
import { useLook } from "./attention.ts";
import { count, many } from "./format.ts";
import type { Of } from "./graph.ts";
import { type Content, html } from "./html.ts";
import { answered, Empty, State, useAsked } from "./parts.ts";
import { Remedy } from "./remedy.ts";
import { ask, path, source } from "./source.ts";

interface Finding {
  readonly code: string;
  readonly key: string;
  readonly label: string;
  readonly severity: string;
  readonly text: string;
  readonly effect: string;
  readonly remedy: string;
  readonly repairable: boolean;
}

interface Examined {
  readonly graphId: string;
  readonly state: string;
  readonly sound: boolean;
  readonly findings: readonly Finding[];
  readonly repaired: readonly Finding[];
  readonly unsettled: number;
  readonly why: readonly { text: string; remedy: string }[];
  readonly rows: number;
}

function Findings({ found }: { found: readonly Finding[] }): VNode {
  return html`<ul class="causes">${found.map(
    (each) => html`<li key=${`${each.key} ${each.code}`}>
    <b>${each.severity}</b> <code>${each.code}</code> ${each.label && html`<span class="label">${each.label}
      </span>: `}${each.text}
    ${each.effect && html`<p>${each.effect}</p>`}
    <${Remedy} text=${each.remedy} />
  </li>`,
  )}</ul>`;
}

function Verdict({ found }: { found: Examined }): Content {
  if (found.sound)
    return html`<p class="done"><span class="mark"
      aria-hidden="true">✓</span> Sound: ${many(found.rows, "row")} agree.</p>`;
  return html`<p><b>${many(found.findings.length, "finding")}</b> in ${many(found.rows, "row")}.</p>`;
}

function repair(id: string): Action<readonly Finding[]> {
  const look = async (): Promise<readonly Finding[]> => {
    const { findings } = await ask<Examined>("GET", path("graphs", id, "doctor"));
    return findings.filter((each) => each.repairable);
  };
  return {
    title: `Mend rows of ${id}`,
    verb: "Mend these",
    look,
    show: (found) => html`<div><p>${found.length > 0 ? "This can be mended for certain, and nothing else is written:"
      : "Nothing is left to be mended."}</p><${Findings} found=${found} /></div>`,
    fixed: (found) => found.map(({ code, key, text }) => [code, key, text]),
    act: () => ask("POST", `${path("graphs", id)}/doctor:repair`),
    done: "It was mended as far as that is certain.",
  };
}

export function Doctor({ open }: Of): VNode {
  const asked = useAsked(() => ask<Examined>("GET", path("graphs", open.id, "doctor")), [open.id]);
  const { propose, shown } = useAct(asked.again);
  return html`<section><h2>What is wrong with its rows <button type="button" class="small"
    onClick=${asked.again}>Look again</button></h2>
    ${shown}
    ${answered(
      asked,
      "all rows",
      (found) => html`<div>
      <${Verdict} found=${found} />
      <${Findings} found=${found.findings} />
      ${found.unsettled > 0 && html`<p>${count(found.unsettled)} may be on the way: look again.</p>`}
      ${source.value?.api && found.findings.some((each) => each.repairable) && html`<button type="button"
        onClick=${() => propose(repair(open.id))}>Mend …</button>`}
      <h3>Why it does not move</h3>
      <ul class="causes">${found.why.map((each) => html`<li key=${each.text}>${each.text}<${Remedy}
        text=${each.remedy} /></li>`)}</ul>
    </div>`,
    )}
  </section>`;
}

export function StoreDoctor(): VNode {
  const look = useLook();
  useEffect(() => {
    document.title = "Doctor – taskgraph";
  }, []);
  const ids = look.value?.graphs.map((each) => each.graphId) ?? [];
  const asked = useAsked(
    async () => Promise.all(ids.map((id) => ask<Examined>("GET", path("graphs", id, "doctor")))),
    [ids.join()],
  );
  return html`<div class="page"><h1>Doctor</h1>
    <p>The rows of ${many(ids.length, "live graph")}. <code>taskgraph doctor</code> looks at the store as well.</p>
    ${answered(asked, "all rows", (all) =>
      all.length === 0 && look.value
        ? html`<${Empty}>No graph is live.</${Empty}>`
        : html`<div class="cards">${all.map(
            (found) => html`<section class="card" key=${found.graphId}>
          <h2><a href=${href(["g", found.graphId, "doctor"])}>${found.graphId}</a> <${State} state=${found.state} />
            </h2>
          <${Verdict} found=${found} /><${Findings} found=${found.findings} />
        </section>`,
          )}</div>`,
    )}
  </div>`;
}
