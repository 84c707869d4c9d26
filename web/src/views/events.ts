/** The journal of a graph: what happened, in order, the newest last; it grows while the graph runs. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { VNode } from "preact";

import { moment } from "../model/columns.ts";
import { type Event, events as readEvents } from "../model/journal.ts";
import { route, go, href } from "../route.ts";
import { many } from "./format.ts";
import { type Of, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { type Column, Table } from "./list.ts";
import { CopyButton, Empty, Loading, Time, TroubleBox } from "./parts.ts";
import { matcher } from "./picked.ts";
import { noted, source } from "./source.ts";
import { SearchField } from "./tasks.ts";

const COLUMNS: readonly Column[] = [
  { name: "number", title: "No.", width: "5rem" },
  { name: "time", title: "Time", width: "12.5rem", minor: true },
  { name: "kind", title: "What", width: "minmax(9rem, 1fr)" },
  { name: "label", title: "Task", width: "minmax(9rem, 2fr)" },
  { name: "more", title: "More", width: "minmax(9rem, 3fr)", minor: true },
];

export interface Journal {
  readonly events: readonly Event[];
  readonly trouble: unknown;
  readonly whole: boolean;
}

/** All events of a graph up to that number, read on where it grows. */
export function useJournal(id: string, last: number): Journal {
  const [journal, setJournal] = useState<Journal & { id: string; last: number }>({
    id: "",
    last: 0,
    events: [],
    trouble: null,
    whole: false,
  });
  const { number } = source.value!;
  useEffect(() => {
    let over = false;
    const known = journal.id === `${id} ${number}` ? journal : { last: 0, events: [] };
    if (known.last >= last && known.last > 0) return undefined;
    readEvents(source.peek()!.rows, id, known.last + 1, last).then(
      (found) =>
        over ||
        setJournal({ id: `${id} ${number}`, last, events: [...known.events, ...found], trouble: null, whole: true }),
      (trouble: unknown) => over || setJournal((old) => ({ ...old, trouble: noted(trouble) })),
    );
    return () => {
      over = true;
    };
  }, [id, last, number]);
  return journal;
}

const NAMED = new Set(["task", "label", "event", "changed"]);

/** The fields of an event in words, without those that have columns of their own. */
export function more(event: Event): string {
  const parts = Object.entries(event.fields).filter(
    ([name, value]) => !NAMED.has(name) && value !== null && value !== "",
  );
  return parts
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

function asJson({ sequence, time, kind, fields }: Event): string {
  return JSON.stringify({ sequence, time, event: kind, ...fields });
}

export function Journal({ open, graph }: Of): VNode {
  const { events, trouble, whole } = useJournal(open.id, graph.event);
  const { query } = route.value;
  const typed = query.get("q") ?? "";
  const rows = useMemo(() => {
    const fits = matcher(typed);
    const newest = query.get("sort") !== "number";
    const found = events.filter((each) => fits(`${each.kind} ${String(each.fields.label ?? "")} ${more(each)}`));
    return newest ? found.reverse() : found;
  }, [events, typed, query.get("sort")]);
  const cells = (place: number): VNode[] => {
    const event = rows[place]!;
    const label = typeof event.fields.label === "string" ? event.fields.label : "";
    return [
      html`<a href=${href(["g", open.id, "at", event.sequence])} title="The graph as it was after it">
        ${event.sequence}.${event.part}</a>`,
      html`<${Time} at=${moment(event.time)} />`,
      html`<span>${event.kind}</span>`,
      html`<span>${label && html`<a class="label" href=${taskHref(open.id, label)}>${label}</a>`}</span>`,
      html`<span title=${more(event)}>${more(event)}</span>`,
    ];
  };
  return html`<section class="fill">
    <div class="filters">
      <${SearchField} title="Search" />
      <span role="status">${many(rows.length, "event")}</span>
      <${CopyButton}
        text=${() => rows.map(asJson).join("\n")}
        label="Copy as JSON lines" />
    </div>
    ${trouble && html`<${TroubleBox} trouble=${trouble} />`}
    ${!whole && !trouble && html`<${Loading} what="the journal" />`}
    ${whole && rows.length === 0 && html`<${Empty}>No event is like that.</${Empty}>`}
    ${
      rows.length > 0 &&
      html`<${Table} label="Journal" columns=${COLUMNS} count=${rows.length} cells=${cells}
      onOpen=${(place: number) => go(href(["g", open.id, "at", rows[place]!.sequence]))} />`
    }
  </section>`;
}
