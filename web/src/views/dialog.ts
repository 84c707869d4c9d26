/** A dialog above the page: by the element of the browser, which keeps the focus inside. */

import { useEffect, useRef } from "preact/hooks";
import type { VNode } from "preact";

import { type Content, html } from "./html.ts";

export function Dialog({ label, close, children }: { label: string; close: () => void; children?: Content }): VNode {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
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
