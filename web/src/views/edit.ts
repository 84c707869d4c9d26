/** A document that edits or extends a graph, written in the page: problems at their lines, then its plan. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { VNode } from "preact";

import { keyTitle, useKeys } from "../keys.ts";
import { task as readTask } from "../model/task.ts";
import { route, set } from "../route.ts";
import {
  documentOf,
  editExample,
  editOf,
  extensionExample,
  keep,
  notJson,
  type Problem,
  problemsOf,
} from "./document.ts";
import { type Of, taskAt } from "./graph.ts";
import { html } from "./html.ts";
import { answered, useAsked } from "./parts.ts";
import { Planned } from "./plan.ts";
import { changeOf } from "./planned.ts";
import { read } from "./source.ts";

const LINE_EM = 1.5;
const SAYS: Readonly<Record<string, string>> = {
  edit:
    "“update” has what is to be other, by label: task, requires, when, reruns, deadline, notBefore, maxRunTime, " +
    "pendingTimeout, retry, active, priority. “delete” and “deleteGroups” take tasks and groups away.",
  extend: "“tasks” has the tasks to add, as a graph has them; they may require tasks and groups of the graph.",
};

/** A field for many lines, with their numbers and a mark at those with a problem. */
function Lines(props: {
  title: string;
  value: string;
  put: (value: string) => void;
  bad: readonly number[];
  at: { line: number };
}): VNode {
  const { title, value, put, bad, at } = props;
  const field = useRef<HTMLTextAreaElement>(null);
  const [top, setTop] = useState(0);
  const lines = value.split("\n");
  useEffect(() => {
    const { current } = field;
    if (!at.line || !current) return;
    const start = lines.slice(0, at.line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    current.focus();
    current.setSelectionRange(start, start + (lines[at.line - 1] ?? "").length);
    current.scrollTop = (current.scrollHeight / lines.length) * Math.max(0, at.line - 4);
  }, [at]);
  return html`<div class="writing">
    <div class="numbers" aria-hidden="true"><div style=${{ transform: `translateY(${-top}px)` }}>
      ${lines.map((_, place) => `${place + 1}\n`).join("")}
      ${bad.map((line) => html`<b key=${line} style=${{ top: `${(line - 1) * LINE_EM}em` }}>! ${line}</b>`)}
    </div></div>
    <textarea ref=${field} aria-label=${title} aria-invalid=${bad.length > 0 ? "true" : undefined} spellcheck=${false}
      wrap="off" autocapitalize="off" value=${value} aria-describedby="problems"
      rows=${Math.max(8, Math.min(24, lines.length + 1))}
      onScroll=${(event: Event) => setTop((event.currentTarget as HTMLTextAreaElement).scrollTop)}
      onInput=${(event: Event) => put((event.currentTarget as HTMLTextAreaElement).value)}></textarea>
  </div>`;
}

function Problems({ of, show }: { of: readonly Problem[]; show: (line: number) => void }): VNode | null {
  if (of.length === 0) return null;
  return html`<div id="problems" role="alert"><ul class="causes">
    ${of.map((each) => html`<li key=${`${each.pointer} ${each.message}`}>
      ${each.line > 0 && html`<button type="button" class="small" onClick=${() => show(each.line)}>Line ${each.line}
        </button> `}
      ${each.pointer && html`<code>${each.pointer}</code> `}${each.message}
      ${each.remedy && html`<br /><small>${each.remedy}</small>`}
    </li>`)}
  </ul></div>`;
}

function Writing({ id, kind, first }: { id: string; kind: string; first: string }): VNode {
  const { query } = route.value;
  const planned = documentOf(id, query);
  const [draft, setDraft] = useState(planned || first);
  const [trouble, setTrouble] = useState<unknown>(undefined);
  const [broken, setBroken] = useState<Problem | null>(null);
  const [at, setAt] = useState({ line: 0 });
  const isPlanned = planned !== "" && draft === planned;
  const problems = broken ? [broken] : isPlanned ? problemsOf(trouble, planned) : [];
  const plan = (): void => {
    const wrong = notJson(draft);
    setBroken(wrong);
    if (wrong) setAt({ line: wrong.line });
    else set(keep(id, kind, draft));
  };
  const put = (value: string): void => {
    setDraft(value);
    setBroken(null);
  };
  useKeys({ plan });
  const change = isPlanned ? changeOf(query, planned) : null;
  const bad = [...new Set(problems.map((each) => each.line).filter(Boolean))];
  return html`<div>
    <p><small>${SAYS[kind]}</small></p>
    <${Lines} title=${kind === "edit" ? "The edit, as JSON" : "The extension, as JSON"} value=${draft} put=${put}
      bad=${bad} at=${at} />
    <${Problems} of=${problems} show=${(line: number) => setAt({ line })} />
    <p class="actions">
      <button type="button" class=${isPlanned ? "" : "primary"} title=${keyTitle("plan")}
        onClick=${plan}>Plan it</button>
      ${query.get("kept") === "1" && isPlanned && html`<small>This document is too long for an address: this tab keeps
        it, and a link to this page is without it.</small>`}
      ${planned !== "" && !isPlanned && html`<small>The document is another one than was planned.</small>`}
    </p>
    ${change && html`<${Planned} id=${id} change=${change} failed=${setTrouble} />`}
  </div>`;
}

export function Editing({ open, graph }: Of): VNode {
  const { query } = route.value;
  const kind = query.get("change") === "extend" ? "extend" : "edit";
  const label = query.get("task") ?? "";
  const first = async (): Promise<string> => {
    if (kind === "extend") return extensionExample(graph);
    const place = label ? taskAt(open, label) : -1;
    if (place < 0) return editExample(graph);
    return editOf(graph, await read((rows) => readTask(rows, graph, place)));
  };
  const name = `${open.id} ${kind} ${label}`;
  const asked = useAsked(first, [name]);
  return html`<div>${answered(
    asked,
    "the task as it is",
    (found) => html`<${Writing} key=${name} id=${open.id} kind=${kind} first=${found} />`,
  )}</div>`;
}
