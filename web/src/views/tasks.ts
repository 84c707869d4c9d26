/** The tasks of a graph as a table of any length: filter, sort, select many, plan for these. */

import { useMemo, useState } from "preact/hooks";
import type { VNode } from "preact";

import { keyTitle, useKeys } from "../keys.ts";
import { TASK_STATES } from "../model/states.ts";
import { go, href, route, set } from "../route.ts";
import { cell, COLUMNS, columnsIn } from "./columns.ts";
import { count, many, now } from "./format.ts";
import { type Of, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { type Column, Table } from "./list.ts";
import { CopyButton, Empty } from "./parts.ts";
import { picked } from "./picked.ts";
import { Remembered } from "./remembered.ts";
import { addressOf, asCsv, asJson, type ColumnName, namesIn } from "./valued.ts";

const SELECT: Column = { name: "select", title: "Select", width: "2rem", unseen: true };
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

/** Which columns the table has: all but the label can be left out. */
function Columns({ chosen }: { chosen: readonly ColumnName[] }): VNode {
  const turn = (name: string): void => {
    const changed = new Set<string>(chosen);
    if (!changed.delete(name)) changed.add(name);
    set({ columns: addressOf(changed) });
  };
  const others = Object.entries(COLUMNS).filter(([name]) => name !== "label");
  const leave = (event: FocusEvent): void => {
    const menu = event.currentTarget as HTMLDetailsElement;
    if (event.relatedTarget && !menu.contains(event.relatedTarget as Node)) menu.open = false;
  };
  const press = (event: KeyboardEvent): void => {
    const menu = event.currentTarget as HTMLDetailsElement;
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary")!.focus();
  };
  return html`<details class="menu" onFocusOut=${leave} onKeyDown=${press}><summary>Columns</summary><div>
    ${others.map(([name, [title]]) => html`<label class="check" key=${name}><input type="checkbox"
      checked=${(chosen as readonly string[]).includes(name)} onChange=${() => turn(name)} /> ${title}</label>`)}
    <button type="button" class="small" onClick=${() => set({ columns: null })}>The usual ones</button>
  </div></details>`;
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
  const names = namesIn(query.get("columns") ?? "");
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
    const select = html`<input type="checkbox" aria-label=${`Select ${label}`} checked=${selection.has(label)}
      onClick=${() => toggle(label)} />`;
    return [select, ...names.map((each) => cell(each, graph, place))];
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
      <${Columns} chosen=${names} />
      <${CopyButton} text=${() => asCsv(graph, places, names, Date.now())} label="Copy as CSV" />
      <${CopyButton} text=${() => asJson(graph, places, names, Date.now())} label="Copy as JSON" />
    </div>
    ${labels.length > 0 && html`<${Selected} id=${open.id} labels=${labels} clear=${() => setSelection(new Set())} />`}
    ${
      places.length === 0
        ? html`<${Empty}>No task is like that.</${Empty}>`
        : html`<${Table}
          label="Tasks"
          columns=${[SELECT, ...columnsIn(query.get("columns") ?? "")]}
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
