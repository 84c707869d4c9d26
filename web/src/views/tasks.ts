/** The tasks of a graph as a table of any length: filter, sort, select many, plan for these. */

import { useMemo, useState } from "preact/hooks";
import type { VNode } from "preact";

import { keyTitle, useKeys } from "../keys.ts";
import type { Graph } from "../model/graph.ts";
import { TASK_STATES } from "../model/states.ts";
import { go, href, route, set } from "../route.ts";
import { count, duration, many, now, shown } from "./format.ts";
import { type Of, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { type Column, Table } from "./list.ts";
import { CopyButton, Empty, State, Time } from "./parts.ts";
import { picked, ran, waited } from "./picked.ts";
import { Remembered } from "./remembered.ts";

const COLUMNS: readonly Column[] = [
  { name: "select", title: "Select", width: "2rem", unseen: true },
  { name: "state", title: "State", width: "9rem", sort: true },
  { name: "label", title: "Label", width: "minmax(9rem, 3fr)", sort: true },
  { name: "run", title: "Run", width: "3.5rem", sort: true, minor: true },
  { name: "group", title: "Group", width: "minmax(6rem, 1fr)", sort: true, minor: true },
  { name: "target", title: "Target", width: "minmax(5rem, 1fr)", sort: true, minor: true },
  { name: "worker", title: "Worker", width: "minmax(6rem, 1fr)", sort: true, minor: true },
  { name: "started", title: "Started", width: "12.5rem", sort: true, minor: true },
  { name: "waited", title: "Waited", width: "6rem", sort: true, minor: true },
  { name: "ran", title: "Ran", width: "6rem", sort: true },
];
const SELECTED_MAX = 1_000;

export function wantedOf(query: URLSearchParams): Parameters<typeof picked>[1] {
  return {
    text: query.get("q") ?? "",
    states: (query.get("state") ?? "").split(",").filter(Boolean),
    group: query.get("group") ?? "",
    target: query.get("target") ?? "",
    sort: query.get("sort") ?? "",
  };
}

function Choice({ name, title, options }: { name: string; title: string; options: readonly string[] }): VNode {
  const value = route.value.query.get(name) ?? "";
  const all = value && !options.includes(value) ? [value, ...options] : options;
  return html`<label class="field">${title}
    <select value=${value}
      onChange=${(event: Event) => set({ [name]: (event.currentTarget as HTMLSelectElement).value })}>
      <option value="">all</option>
      ${all.map((each) => html`<option key=${each} value=${each} selected=${each === value}>${each}</option>`)}
    </select>
  </label>`;
}

export function SearchField({ name = "q", title = "Search" }: { name?: string; title?: string }): VNode {
  const value = route.value.query.get(name) ?? "";
  useKeys({ search: () => document.getElementById(`search-${name}`)?.focus() });
  return html`<label class="field search"><span>${title}</span>
    <input
      id=${`search-${name}`}
      type="search"
      value=${value}
      placeholder="part of a label, or a pattern with *"
      title=${keyTitle("search")}
      onInput=${(event: Event) => set({ [name]: (event.currentTarget as HTMLInputElement).value })}
    />
  </label>`;
}

function asTable(graph: Graph, places: readonly number[], at: number): string {
  const cell = (text: string): string => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const line = (place: number): string =>
    [
      graph.labels[place]!,
      TASK_STATES[graph.state[place]!]!.name,
      String(graph.run[place]),
      graph.target[place]!,
      graph.worker[place]!,
      Number.isFinite(graph.started[place]!) ? new Date(graph.started[place]!).toISOString() : "",
      String(ran(graph, place, at) / 1000 || ""),
    ]
      .map(cell)
      .join(",");
  return ["label,state,run,target,worker,started,seconds", ...places.map(line)].join("\n");
}

function Selected({ id, labels, clear }: { id: string; labels: readonly string[]; clear: () => void }): VNode {
  const plan = (change: string): string => href(["g", id, "plan"], { change, labels: JSON.stringify(labels) });
  if (labels.length > SELECTED_MAX)
    return html`<p class="selection">
      ${count(labels.length)} selected: a plan takes ${count(SELECTED_MAX)} at most.</p>`;
  return html`<p class="selection" role="status">
    <strong>${many(labels.length, "task")} selected</strong>
    <a class="button judged" href=${plan("rerun")}>Rerun …</a>
    <a class="button judged" href=${plan("cancel")}>Cancel …</a>
    <a class="button judged" href=${plan("deactivate")}>Hold back …</a>
    <a class="button judged" href=${plan("activate")}>Let go …</a>
    <a class="button judged" href=${plan("prioritize")}>Priority …</a>
    <button type="button" class="small" onClick=${clear}>Select none</button>
  </p>`;
}

export function Tasks({ open, graph }: Of): VNode {
  const { query } = route.value;
  const wanted = wantedOf(query);
  const at = now.peek();
  const places = useMemo(() => picked(graph, wanted, at), [open.version, graph, query.toString()]);
  const [selection, setSelection] = useState<ReadonlySet<string>>(new Set());
  const labels = [...selection];
  const labelAt = (row: number): string => graph.labels[places[row]!]!;
  const toggle = (label: string): void => {
    const changed = new Set(selection);
    if (!changed.delete(label)) changed.add(label);
    setSelection(changed);
  };
  const all = (): void => {
    const listed = places.map((each) => graph.labels[each]!);
    setSelection(new Set(listed.every((each) => selection.has(each)) ? [] : listed));
  };
  const plan = (change: string) => () =>
    labels.length > 0 && go(href(["g", open.id, "plan"], { change, labels: JSON.stringify(labels) }));
  useKeys(labels.length > 0 ? { rerun: plan("rerun"), cancel: plan("cancel") } : {});
  const cells = (row: number): VNode[] => {
    const place = places[row]!;
    const label = graph.labels[place]!;
    return [
      html`<input type="checkbox" aria-label=${`Select ${label}`} checked=${selection.has(label)}
        onClick=${() => toggle(label)} />`,
      html`<${State} state=${TASK_STATES[graph.state[place]!]!.name} />`,
      html`<a class="label" title=${label} href=${taskHref(open.id, label)}>${shown(label)}</a>`,
      html`<span>${graph.run[place]}</span>`,
      html`<span>${graph.groups[graph.group[place]!] ?? ""}</span>`,
      html`<span>${graph.target[place]}</span>`,
      html`<span title=${graph.worker[place]}>${graph.worker[place]}</span>`,
      html`<${Time} at=${graph.started[place]!} />`,
      html`<span>${duration(waited(graph, place, now.value))}</span>`,
      html`<span>${duration(ran(graph, place, now.value))}</span>`,
    ];
  };
  const targets = useMemo(() => [...new Set(graph.target)].sort(), [graph]);
  return html`<section class="fill">
    <div class="filters">
      <${SearchField} />
      <${Choice} name="state" title="State" options=${TASK_STATES.map((each) => each.name)} />
      ${graph.groups.length > 0 && html`<${Choice} name="group" title="Group" options=${graph.groups} />`}
      ${targets.length > 1 && html`<${Choice} name="target" title="Target" options=${targets} />`}
      <${Remembered} screen="tasks" />
      <span role="status">${many(places.length, "task")}</span>
      <${CopyButton} text=${() => asTable(graph, places, at)} label="Copy as CSV" />
    </div>
    ${labels.length > 0 && html`<${Selected} id=${open.id} labels=${labels} clear=${() => setSelection(new Set())} />`}
    ${
      places.length === 0
        ? html`<${Empty}>No task is like that.</${Empty}>`
        : html`<${Table}
          label="Tasks"
          columns=${COLUMNS}
          count=${places.length}
          cells=${cells}
          sort=${wanted.sort || "state"}
          onSort=${(sort: string) => set({ sort })}
          onOpen=${(row: number) => go(taskHref(open.id, graph.labels[places[row]!]!))}
          selected=${(row: number) => selection.has(labelAt(row))}
          onSelect=${(row: number) => toggle(labelAt(row))}
          onSelectAll=${all}
        />`
    }
  </section>`;
}
