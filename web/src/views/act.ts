/** Something that the API is asked to do at once, and what became of it. */

import { useState } from "preact/hooks";

import { type Content, html } from "./html.ts";
import { TroubleBox } from "./parts.ts";

export function useAct(after: () => void): {
  run: (act: () => Promise<unknown>, done: string) => void;
  busy: boolean;
  shown: Content;
} {
  const [state, setState] = useState<{ busy: boolean; done: string; trouble: unknown }>({
    busy: false,
    done: "",
    trouble: null,
  });
  const run = (act: () => Promise<unknown>, done: string): void => {
    setState({ busy: true, done: "", trouble: null });
    act().then(
      () => {
        setState({ busy: false, done, trouble: null });
        after();
      },
      (trouble: unknown) => setState({ busy: false, done: "", trouble }),
    );
  };
  const shown = state.trouble
    ? html`<${TroubleBox} trouble=${state.trouble} />`
    : state.done &&
      html`<p class="done" role="status"><span class="mark" aria-hidden="true">✓</span> ${state.done}</p>`;
  return { run, busy: state.busy, shown };
}
