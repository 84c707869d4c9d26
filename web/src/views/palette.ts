/** Go anywhere: screens, graphs, and what the open graph has, by typing a part of its name. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { VNode } from "preact";

import { graphs as listing } from "../model/list.ts";
import { go, href, route } from "../route.ts";
import { screens } from "./app.ts";
import { Dialog } from "./dialog.ts";
import { chooseArchive } from "./file.ts";
import { nextTheme, nextTimeMode } from "./format.ts";
import { isThere, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { matcher } from "./picked.ts";
import { source } from "./source.ts";
import { open } from "./store.ts";

interface Entry {
  readonly kind: string;
  readonly title: string;
  readonly act: () => void;
}

const SHOWN = 12;
const VIEWS = ["", "dag", "time", "tasks", "events", "at", "plan", "forecast", "doctor", "notices", "compare"];

const to = (kind: string, title: string, address: string): Entry => ({ kind, title, act: () => go(address) });

function useGraphNames(): readonly string[] {
  const [names, setNames] = useState<readonly string[]>([]);
  useEffect(() => {
    const read = async (): Promise<void> => {
      const rows = source.peek()?.rows;
      if (!rows) return;
      for await (const page of listing(rows)) return setNames(page.map((each) => each.id));
    };
    void read().catch(() => undefined); // without the list the rest can be gone to
  }, []);
  return names;
}

function entriesOf(typed: string, names: readonly string[]): Entry[] {
  const id = route.value.path[0] === "g" ? route.value.path[1] : undefined;
  const fits = matcher(typed);
  const { graph } = open.value;
  const views = id
    ? VIEWS.filter(isThere).map((each) =>
        to("view", `${id}: ${each || "summary"}`, href(["g", id, each].filter(Boolean))),
      )
    : [];
  const fixed: Entry[] = [
    ...views,
    ...screens().map((each) => to("screen", each.title, href([each.name].filter(Boolean)))),
    { kind: "file", title: "Open an archive of a graph …", act: chooseArchive },
    { kind: "switch", title: "Times: local, UTC, relative", act: nextTimeMode },
    { kind: "switch", title: "Theme: of the system, light, dark", act: nextTheme },
    ...names.map((each) => to("graph", each, href(["g", each]))),
  ];
  const found = fixed.filter((each) => fits(each.title));
  if (typed && graph && id) {
    const tasks: Entry[] = [];
    for (const label of graph.labels) {
      if (tasks.length >= SHOWN) break;
      if (fits(label)) tasks.push(to("task", label, taskHref(id, label)));
    }
    found.splice(Math.min(4, found.length), 0, ...tasks);
  }
  if (typed.trim() && !names.includes(typed.trim())) found.push(to("graph", typed.trim(), href(["g", typed.trim()])));
  return found.slice(0, SHOWN);
}

export function Palette({ close }: { close: () => void }): VNode {
  const [typed, setTyped] = useState("");
  const [present, setPresent] = useState(0);
  const names = useGraphNames();
  const entries = useMemo(() => entriesOf(typed, names), [typed, names]);
  const act = (entry: Entry | undefined): void => {
    if (!entry) return;
    close();
    entry.act();
  };
  const press = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setPresent((present + step + entries.length) % Math.max(1, entries.length));
    else if (event.key === "Enter") act(entries[present]);
    else return;
    event.preventDefault();
  };
  const type = (event: Event): void => {
    setTyped((event.currentTarget as HTMLInputElement).value);
    setPresent(0);
  };
  return html`<${Dialog} label="Go to" close=${close}>
    <input class="palette" autofocus role="combobox" aria-expanded="true" aria-controls="palette" aria-label="Go to"
      aria-activedescendant=${`palette-${present}`} placeholder="a graph, a task, a screen" value=${typed}
        onInput=${type} onKeyDown=${press} />
    <ul id="palette" role="listbox" aria-label="Places">
      ${entries.map(
        (each, place) => html`<li key=${`${each.kind} ${each.title}`} id=${`palette-${place}`} role="option"
        aria-selected=${place === present} onClick=${() => act(each)}>
        <small>${each.kind}</small> <span class="label">${each.title}</span>
      </li>`,
      )}
    </ul>
  </${Dialog}>`;
}
