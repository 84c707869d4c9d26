/** A dialog above the page: by the element of the browser, which keeps the focus inside. */

import { useLayoutEffect, useRef } from "preact/hooks";
import type { VNode } from "preact";

import { useWall } from "../keys.ts";
import { type Content, html } from "./html.ts";

export function Dialog({ label, close, children }: { label: string; close: () => void; children?: Content }): VNode {
  const dialog = useRef<HTMLDialogElement>(null);
  useWall();
  useLayoutEffect(() => {
    const { current } = dialog;
    current!.showModal();
    return () => current!.close(); // gives the focus back
  }, []);
  const press = (event: Event): void => {
    if (event.target === dialog.current) close(); // the ground behind it
  };
  return html`<dialog ref=${dialog} aria-label=${label} onClose=${close} onClick=${press}>
    <div class="dialog">${children}</div>
  </dialog>`;
}
