/** The list beside a drawing: the same tasks as a tree, for keyboards and screen readers; groups fold in both. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { VNode } from "preact";

import type { Groups } from "../draw/groups.ts";
import type { Graph } from "../model/graph.ts";
import { TASK_STATES } from "../model/states.ts";
import { count } from "./format.ts";
import { html } from "./html.ts";
import { useVirtual } from "./list.ts";
import { State } from "./parts.ts";

interface TreeProps {
  graph: Graph;
  groups: Groups;
  fold: ReadonlySet<string>;
  /** The tasks that are listed, in their order. */
  places: readonly number[];
  selected: number;
  select: (place: number) => void;
  open: (place: number) => void;
  turn: (group: string) => void;
}

interface Item {
  readonly place: number;
  readonly group: string;
  readonly level: 1 | 2;
  readonly size: number;
}

const ROW = 26;

/** Groups with their tasks, then the tasks of no group. */
function itemsOf({ groups, fold, places }: Pick<TreeProps, "groups" | "fold" | "places">): Item[] {
  const members = new Map<number, number[]>();
  for (const place of places) {
    const own = groups.of[place]!;
    const known = members.get(own);
    if (known) known.push(place);
    else members.set(own, [place]);
  }
  const items: Item[] = [];
  const named = [...members].filter(([own]) => own >= 0).sort(([a], [b]) => a - b);
  for (const [own, all] of named) {
    const group = groups.names[own]!;
    items.push({ place: -1, group, level: 1, size: all.length });
    if (!fold.has(group)) items.push(...all.map((place) => ({ place, group, level: 2, size: 0 }) as const));
  }
  for (const place of members.get(-1) ?? []) items.push({ place, group: "", level: 1, size: 0 });
  return items;
}

const idOf = (item: Item | undefined): string | undefined =>
  item && (item.place < 0 ? `tree-group-${item.group}` : `tree-${item.place}`);

export function Tree(props: TreeProps): VNode {
  const { graph, groups, fold, places, selected, select, open, turn } = props;
  const items = useMemo(() => itemsOf({ groups, fold, places }), [groups, fold, places]);
  const [at, setAt] = useState(0);
  const { scroller, virtual } = useVirtual(items.length, ROW);
  const present = Math.min(at, items.length - 1);
  useEffect(() => {
    const found = items.findIndex((each) => each.place === selected);
    if (selected < 0 || found < 0 || items[present]?.place === selected) return;
    setAt(found);
    virtual.scrollToIndex(found);
  }, [selected]);
  const to = (next: number): void => {
    const place = Math.max(0, Math.min(items.length - 1, next));
    setAt(place);
    virtual.scrollToIndex(place);
    if (items[place] && items[place].place >= 0) select(items[place].place);
  };
  const turnAt = (item: Item, unfold: boolean): void => {
    if (item.place < 0 && fold.has(item.group) === unfold) turn(item.group);
    else if (!unfold && item.level === 2) to(items.findIndex((each) => each.place < 0 && each.group === item.group));
  };
  const press = (event: KeyboardEvent): void => {
    const item = items[present];
    if (!item) return;
    const acts: Record<string, () => void> = {
      ArrowDown: () => to(present + 1),
      ArrowUp: () => to(present - 1),
      Home: () => to(0),
      End: () => to(items.length - 1),
      ArrowRight: () => turnAt(item, true),
      ArrowLeft: () => turnAt(item, false),
      Enter: () => (item.place < 0 ? turn(item.group) : open(item.place)),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    acts[event.key]!();
  };
  const row = (index: number, start: number): VNode => {
    const item = items[index]!;
    const isGroup = item.place < 0;
    const choose = (): void => {
      setAt(index);
      if (isGroup) turn(item.group);
      else select(item.place);
    };
    return html`<div
      role="treeitem"
      key=${idOf(item)}
      id=${idOf(item)}
      class=${index === present ? "present" : ""}
      aria-level=${item.level}
      aria-selected=${String(!isGroup && item.place === selected)}
      aria-expanded=${isGroup ? String(!fold.has(item.group)) : undefined}
      style=${{ transform: `translateY(${start}px)`, height: `${ROW}px`, "--depth": String(item.level - 1) }}
      onClick=${choose}
      onDblClick=${() => !isGroup && open(item.place)}
    >
      ${isGroup
        ? html`<b>${fold.has(item.group) ? "▸" : "▾"} ${item.group}</b> <small>${count(item.size)}</small>`
        : html`<${State} state=${TASK_STATES[graph.state[item.place]!]!.name} brief />
            ${" "}<span class="label" title=${graph.labels[item.place]}>${graph.labels[item.place]!}</span>`}
    </div>`;
  };
  return html`<div
    role="tree"
    aria-label="Tasks"
    tabindex="0"
    ref=${scroller}
    onKeyDown=${press}
    aria-activedescendant=${idOf(items[present])}
  >
    <div role="presentation" class="rows" style=${{ height: `${virtual.getTotalSize()}px` }}>
      ${virtual.getVirtualItems().map((each) => row(each.index, each.start))}
    </div>
  </div>`;
}
