/** All graphs, the newest first: what the address filters, and above it what needs attention. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { VNode } from "preact";

import { useKeys } from "../keys.ts";
import { graphs as listing, type Listed, type Wanted } from "../model/list.ts";
import { GRAPH_STATES } from "../model/states.ts";
import { go, href, route, set } from "../route.ts";
import { Attention, liveCounts, useOverview } from "./attention.ts";
import { count, duration, many, now } from "./format.ts";
import { html } from "./html.ts";
import { type Column, Table } from "./list.ts";
import { Bar, type Counts, Empty, Loading, State, Time, TroubleBox } from "./parts.ts";
import { Remembered } from "./remembered.ts";
import { noted, source } from "./source.ts";

const PAGE = 100;
const AGES: Readonly<Record<string, number>> = { hour: 3600, day: 86_400, week: 604_800, month: 2_592_000 };

const COLUMNS: readonly Column[] = [
  { name: "state", title: "State", width: "8rem" },
  { name: "id", title: "Graph", width: "minmax(10rem, 2fr)" },
  { name: "progress", title: "Tasks", width: "minmax(9rem, 1.5fr)" },
  { name: "created", title: "Created", width: "12.5rem", minor: true },
  { name: "took", title: "Took", width: "7rem", minor: true },
  { name: "schedule", title: "Schedule", width: "minmax(6rem, 1fr)", minor: true },
  { name: "tags", title: "Tags", width: "minmax(8rem, 1.5fr)", minor: true },
];

function wantedOf(query: URLSearchParams): Wanted {
  const age = AGES[query.get("age") ?? ""];
  const tags = query.getAll("tag").flatMap((each) => each.split(",").filter(Boolean));
  return {
    state: query.get("state") ?? "",
    match: query.get("q") ?? "",
    schedule: query.get("schedule") ?? "",
    ...(tags.length > 0 ? { tags } : {}),
    ...(age ? { since: Date.now() - age * 1000 } : {}),
  };
}

interface Read {
  readonly found: readonly Listed[];
  readonly more: boolean;
  readonly busy: boolean;
  readonly trouble: unknown;
}

/** So many graphs that fit the filter of the address; read again where a live one has changed. */
function useGraphs(query: string, wished: number, changed: unknown): Read {
  const [read, setRead] = useState<Read>({ found: [], more: false, busy: true, trouble: null });
  const { number } = source.value!;
  useEffect(() => {
    let over = false;
    setRead((old) => ({ ...old, busy: true }));
    const run = async (): Promise<void> => {
      const found: Listed[] = [];
      for await (const page of listing(source.peek()!.rows, wantedOf(new URLSearchParams(query)))) {
        found.push(...page);
        if (over) return;
        if (found.length > wished) break;
      }
      setRead({ found: found.slice(0, wished), more: found.length > wished, busy: false, trouble: null });
    };
    const timer = setTimeout(
      () => {
        run().catch((trouble: unknown) => over || setRead((old) => ({ ...old, busy: false, trouble: noted(trouble) })));
      },
      query ? 150 : 0,
    ); // a filter is being typed
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [query, wished, number, changed]);
  return read;
}

/** Tasks by state, as far as a list knows them: what is left counts as waiting. */
function countsOf(graph: Listed, live: Counts | undefined): Counts {
  if (live) return live;
  const over = graph.state === "finished";
  const done = over ? graph.tasks - graph.failed - graph.skipped : 0;
  return [graph.tasks - done - graph.failed - graph.skipped, 0, 0, done, graph.failed, 0, 0, graph.skipped];
}

function Tags({ tags }: { tags: Listed["tags"] }): VNode {
  return html`<span class="tags">${Object.entries(tags)
    .slice(0, 4)
    .map(([name, value]) => {
      const text = `${name}=${String(value)}`;
      return html`<a class="tag" key=${name} title=${text} href=${href([], { tag: text })}>${name}: ${String(value)}
        </a>`;
    })}</span>`;
}

function Filters({ shown }: { shown: string }): VNode {
  const { query } = route.value;
  useKeys({ search: () => document.getElementById("search-graphs")?.focus() });
  const field = (name: string) => ({
    value: query.get(name) ?? "",
    onChange: (event: Event) => set({ [name]: (event.currentTarget as HTMLSelectElement).value }),
  });
  const text = (name: string) => ({
    value: query.get(name) ?? "",
    onInput: (event: Event) => set({ [name]: (event.currentTarget as HTMLInputElement).value }),
  });
  const option = (name: string, value: string, title = value): VNode =>
    html`<option key=${value} value=${value} selected=${query.get(name) === value}>${title}</option>`;
  return html`<div class="filters">
    <label class="field search"><span>Search</span><input id="search-graphs" type="search"
      placeholder="id or name" ...${text("q")} /></label>
    <label class="field">State <select ...${field("state")}><option value="">all</option>
      ${GRAPH_STATES.map((each) => option("state", each.name))}</select></label>
    <label class="field">Created <select ...${field("age")}><option value="">at any time</option>
      ${Object.keys(AGES).map((each) => option("age", each, `in the last ${each}`))}</select></label>
    <label class="field">Tag <input size="12" placeholder="key=value" ...${text("tag")} /></label>
    <label class="field">Schedule <input size="10" ...${text("schedule")} /></label>
    ${[...query.keys()].length > 0 && html`<a class="button small" href=${href([])}>Clear</a>`}
    <${Remembered} screen="graphs" />
    <span role="status">${shown}</span>
  </div>`;
}

export function Graphs(): VNode {
  const query = route.value.query.toString();
  const [wished, setWished] = useState(PAGE);
  const { all, look, mark } = useOverview();
  const { found, more, busy, trouble } = useGraphs(query, wished, mark);
  const live = useMemo(() => new Map(look.value?.graphs.map((each) => [each.graphId, liveCounts(each)])), [look.value]);
  useEffect(() => {
    document.title = "Graphs – taskgraph";
  }, []);
  const cells = (place: number): VNode[] => {
    const graph = found[place]!;
    const counts = countsOf(graph, live.get(graph.id));
    const took = (Number.isFinite(graph.ended) ? graph.ended : now.value) - graph.created;
    const link = href(["g", graph.id]);
    return [
      html`<${State} state=${graph.state} />`,
      html`<span class="two"><a class="label" href=${link}>${graph.id}</a>${graph.name && html` <small>${graph.name}
        </small>`}</span>`,
      html`<span class="counted"><${Bar} counts=${counts} /> <small>${count(graph.tasks)}${graph.failed > 0
        ? html`, <b>${count(graph.failed)} failed</b>` : ""}</small></span>`,
      html`<${Time} at=${graph.created} />`,
      html`<span>${graph.state === "missing" ? "" : duration(took)}</span>`,
      html`<span>${graph.schedule && html`<a href=${href(["schedules", graph.schedule])}>${graph.schedule}</a>`}
        </span>`,
      html`<${Tags} tags=${graph.tags} />`,
    ];
  };
  const first = busy && found.length === 0;
  return html`<div class="wide page">
    <h1 class="unseen">Graphs</h1>
    <${Attention} overview=${all} />
    <${Filters} shown=${first ? "" : `${many(found.length, "graph")}${more ? " shown" : ""}`} />
    ${trouble && html`<${TroubleBox} trouble=${trouble} />`}
    ${first && html`<${Loading} what="graphs" />`}
    ${!busy && found.length === 0 && !trouble && html`<${Empty}>
      ${query ? "No graph is like that." : "There are no graphs yet: taskgraph submit FILE."}</${Empty}>`}
    ${
      found.length > 0 &&
      html`<${Table}
      label="Graphs" columns=${COLUMNS} count=${found.length} cells=${cells} rowHeight=${44}
      onOpen=${(place: number) => go(href(["g", found[place]!.id]))}
    />`
    }
    ${more && html`<p><button type="button" onClick=${() => setWished(wished + PAGE)}>Show more</button></p>`}
  </div>`;
}
