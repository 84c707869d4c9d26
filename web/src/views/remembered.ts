/** The last filter of a screen: offered where there is none, and never applied by itself. */

import { useEffect, useState } from "preact/hooks";
import type { VNode } from "preact";

import { here, route } from "../route.ts";
import { html } from "./html.ts";

const keyOf = (screen: string): string => `taskgraph-filter-${screen}`;

export function Remembered({ screen }: { screen: string }): VNode | null {
  const query = route.value.query.toString();
  const [last, setLast] = useState(() => localStorage.getItem(keyOf(screen)) ?? "");
  useEffect(() => {
    if (!query) return;
    localStorage.setItem(keyOf(screen), query);
    setLast(query);
  }, [query]);
  if (query || !last) return null;
  const values = Object.fromEntries(new URLSearchParams(last));
  const words = Object.entries(values).map(([name, value]) => `${name} ${value}`);
  return html`<a class="tag" href=${here(values)}>Again: ${words.join(", ")}</a>`;
}
