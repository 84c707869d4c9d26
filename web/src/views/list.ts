/** A list or table of any length: only the rows in view are in the document. One row is the present one, by keys. */

import {
  elementScroll,
  observeElementOffset,
  observeElementRect,
  type VirtualItem,
  Virtualizer,
} from "@tanstack/virtual-core";
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import type { VNode } from "preact";

import { useKeys } from "../keys.ts";
import { html } from "./html.ts";

export interface Column {
  readonly name: string;
  readonly title: string;
  /** As in `grid-template-columns`. */
  readonly width: string;
  readonly sort?: boolean;
  /** Said by screen readers alone. */
  readonly unseen?: boolean;
  /** Left out on narrow screens. */
  readonly minor?: boolean;
}

interface TableProps {
  label: string;
  columns: readonly Column[];
  count: number;
  cells: (place: number) => readonly VNode[];
  sort?: string;
  onSort?: (name: string) => void;
  onOpen?: (place: number) => void;
  selected?: (place: number) => boolean;
  onSelect?: (place: number) => void;
  onSelectAll?: () => void;
  rowHeight?: number;
}

/** A virtualizer for a scrolling element; `redraw` is done for it. */
export function useVirtual(
  count: number,
  size: number,
  measured = false,
): {
  scroller: { current: HTMLDivElement | null };
  virtual: Virtualizer<HTMLDivElement, HTMLElement>;
} {
  const scroller = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((old: number, _: void) => old + 1, 0);
  const options = {
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => size,
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    overscan: 12,
    useAnimationFrameWithResizeObserver: measured,
    onChange: () => redraw(undefined),
  };
  const [virtual] = useState(() => new Virtualizer<HTMLDivElement, HTMLElement>(options));
  virtual.setOptions({ ...virtual.options, ...options });
  useLayoutEffect(() => virtual._didMount(), []);
  useLayoutEffect(() => virtual._willUpdate());
  return { scroller, virtual };
}

function Head({
  columns,
  sort,
  onSort,
  grid,
}: Pick<TableProps, "columns" | "sort" | "onSort"> & { grid: string }): VNode {
  const [by, direction] = [sort?.replace(/^-/, ""), sort?.startsWith("-") ? "descending" : "ascending"];
  return html`<div role="row" class="head" aria-rowindex="1" style=${{ gridTemplateColumns: grid }}>
    ${columns.map((each) => {
      const sorted = each.name === by ? direction : "none";
      const mark = sorted === "none" ? "" : sorted === "ascending" ? " ▲" : " ▼";
      const press = (): void => onSort?.(sorted === "ascending" ? `-${each.name}` : each.name);
      const sorts = each.sort && onSort;
      return html`<div role="columnheader" aria-sort=${sorts ? sorted : undefined} key=${each.name}>
        ${each.unseen && html`<span class="unseen">${each.title}</span>`}
        ${!each.unseen && !sorts && each.title}
        ${!each.unseen && sorts && html`<button type="button" onClick=${press}>${each.title}${mark}</button>`}
      </div>`;
    })}
  </div>`;
}

export function Table(props: TableProps): VNode {
  const { label, columns, count, cells, onOpen, selected, onSelect, onSelectAll } = props;
  const { scroller, virtual } = useVirtual(count, props.rowHeight ?? 32);
  const [present, setPresent] = useState(-1);
  const move = (by: number): void => {
    if (count === 0) return;
    const next = Math.max(0, Math.min(count - 1, present + by));
    setPresent(next);
    virtual.scrollToIndex(next);
  };
  const at = (act: ((place: number) => void) | undefined) => () => present >= 0 && present < count && act?.(present);
  useKeys({
    down: () => move(1),
    up: () => move(-1),
    ...(onOpen ? { open: at(onOpen) } : {}),
    ...(onSelect ? { select: at(onSelect) } : {}),
    ...(onSelectAll ? { selectAll: onSelectAll } : {}),
  });
  useEffect(() => setPresent((old) => Math.min(old, count - 1)), [count]);
  const narrow = matchMedia("(max-width: 700px)").matches;
  const seen = narrow ? columns.filter((each) => !each.minor) : columns;
  const grid = seen.map((each) => each.width).join(" ");
  const least = seen.reduce((sum, each) => sum + Number(/[\d.]+(?=rem)/.exec(each.width)?.[0] ?? 4), 0);
  const row = (item: VirtualItem): VNode => {
    const place = item.index;
    const style = { gridTemplateColumns: grid, transform: `translateY(${item.start}px)`, height: `${item.size}px` };
    const chosen = selected?.(place);
    const all = cells(place);
    return html`<div
      role="row"
      id=${`row-${place}`}
      key=${item.key}
      class=${place === present ? "row present" : "row"}
      style=${style}
      aria-rowindex=${place + 2}
      aria-selected=${selected ? String(chosen) : undefined}
      onClick=${() => setPresent(place)}
    >
      ${columns.map((each, cell) => (narrow && each.minor ? null : html`<div role="gridcell" class="cell"
        key=${each.name}>${all[cell]}</div>`))}
    </div>`;
  };
  return html`<div
    class="table"
    role="grid"
    aria-label=${label}
    aria-rowcount=${count + 1}
    aria-multiselectable=${selected ? "true" : undefined}
    aria-activedescendant=${present >= 0 ? `row-${present}` : undefined}
    tabindex="0"
    ref=${scroller}
  >
    <div role="presentation" class="within" style=${{ minWidth: `${least}rem` }}>
      <${Head} columns=${seen} sort=${props.sort} onSort=${props.onSort} grid=${grid} />
      <div role="rowgroup" class="rows" style=${{ height: `${virtual.getTotalSize()}px` }}>
        ${virtual.getVirtualItems().map(row)}
      </div>
    </div>
  </div>`;
}
