/** Views whose code is loaded when they are opened first. */

import { useEffect, useState } from "preact/hooks";
import type { VNode } from "preact";

import type { Of } from "./graph.ts";
import { html } from "./html.ts";
import { Loading, TroubleBox } from "./parts.ts";

type View = (props: Of) => VNode;

/** load: gives the view; asked once. */
export function lazily(load: () => Promise<View>): View {
  let found: View | undefined;
  return function Lazy(props: Of): VNode {
    const [, loaded] = useState(false);
    const [trouble, setTrouble] = useState<unknown>(null);
    useEffect(() => {
      if (found) return;
      load().then((view) => {
        found = view;
        loaded(true);
      }, setTrouble);
    }, []);
    if (found) return html`<${found} ...${props} />`;
    return trouble ? html`<${TroubleBox} trouble=${trouble} />` : html`<${Loading} what="this view" />`;
  };
}
