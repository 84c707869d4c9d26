/**
 * Something that the API is asked to do: what it would change is shown in a dialog, and it is done if that is still so.
 * Routes of such actions take no `If-Match`, so the page reads again just before it asks.
 */

import { useState } from "preact/hooks";
import type { VNode } from "preact";

import { keyTitle, useKeys } from "../keys.ts";
import { Dialog } from "./dialog.ts";
import { shown as inOneLine } from "./format.ts";
import { type Content, html } from "./html.ts";
import { answered, TroubleBox, useAsked } from "./parts.ts";

/** A field of the dialog; a ticked `check` has the value "1". */
export interface Choice {
  readonly name: string;
  readonly title: string;
  readonly kind: "check" | "text" | "number";
  readonly first?: string;
}

export type Chosen = Readonly<Record<string, string>>;

export interface Action<T> {
  /** What it does, and to what: also says which dialog this is. */
  readonly title: string;
  /** On the button that does it. */
  readonly verb: string;
  readonly look: () => Promise<T>;
  readonly show: (found: T) => Content;
  /** What of it must be the same when it is done. */
  readonly fixed: (found: T) => unknown;
  readonly choices?: readonly Choice[];
  readonly act: (chosen: Chosen) => Promise<unknown>;
  readonly done: string;
}

/** The reason for the journal, or the row: many actions take one. */
export const REASON: Choice = { name: "reason", title: "Reason", kind: "text" };

/** What was chosen as a query; nothing where nothing was. */
export function queryOf(chosen: Chosen): string {
  const query = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value)).toString();
  return query && `?${query}`;
}

interface State {
  readonly busy: boolean;
  readonly trouble: unknown;
  /** What was found where it was another thing than was shown. */
  readonly moved?: unknown;
}

function Proposal({ action, close, done }: { action: Action<unknown>; close: () => void; done: () => void }): VNode {
  const asked = useAsked(action.look, [action.title]);
  const [state, setState] = useState<State>({ busy: false, trouble: null });
  const firsts = (action.choices ?? []).map(({ name, first = "" }) => [name, first] as const);
  const [chosen, setChosen] = useState<Chosen>(Object.fromEntries(firsts));
  const found = state.moved ?? asked.value;
  const apply = async (): Promise<void> => {
    if (found === undefined || state.busy) return;
    setState({ ...state, busy: true, trouble: null });
    try {
      const now = await action.look();
      const same = JSON.stringify(action.fixed(now)) === JSON.stringify(action.fixed(found));
      if (!same) return setState({ busy: false, trouble: null, moved: now });
      await action.act(chosen);
      done();
    } catch (trouble) {
      setState((old) => ({ ...old, busy: false, trouble }));
    }
  };
  useKeys({ apply: () => void apply() });
  const put = (event: Event): void => {
    const field = event.currentTarget as HTMLInputElement;
    setChosen({ ...chosen, [field.name]: field.type === "checkbox" ? (field.checked ? "1" : "") : field.value });
  };
  return html`<${Dialog} label=${action.title} close=${close}>
    <h2>${inOneLine(action.title)}</h2>
    ${state.moved !== undefined && html`<p class="trouble" role="alert">It has changed since it was shown, so nothing
      was done. This is how it is now.</p>`}
    ${found === undefined ? answered(asked, "what it would change", () => "") : action.show(found)}
    ${(action.choices ?? []).map(({ name, title, kind }) => kind === "check" ? html`<p key=${name}><label
        class="check"><input type="checkbox" name=${name} checked=${chosen[name] === "1"} onChange=${put} /> ${title}
        </label></p>` : html`<p key=${name}><label class="field">${title} <input name=${name} type=${kind} min="0"
        value=${chosen[name]} onInput=${put} /></label></p>`)}
    ${state.trouble && html`<${TroubleBox} trouble=${state.trouble} />`}
    <p class="actions">
      <button type="button" class="primary" disabled=${found === undefined || state.busy} title=${keyTitle("apply")}
        onClick=${() => void apply()}>${action.verb}</button>
      <button type="button" onClick=${close}>Leave it</button>
    </p>
  </${Dialog}>`;
}

/** after: is called when something was done. shown: the dialog, and what was done last. */
export function useAct(after: () => void): { propose: <T>(action: Action<T>) => void; shown: Content } {
  const [action, setAction] = useState<Action<unknown> | null>(null);
  const [last, setLast] = useState("");
  const propose = <T>(given: Action<T>): void => {
    setLast("");
    setAction(given as unknown as Action<unknown>);
  };
  const done = (): void => {
    setLast(action!.done);
    setAction(null);
    after();
  };
  const shown = html`<div>
    ${last && html`<p class="done" role="status"><span class="mark" aria-hidden="true">✓</span> ${last}</p>`}
    ${action && html`<${Proposal} key=${action.title} action=${action} close=${() => setAction(null)} done=${done} />`}
  </div>`;
  return { propose, shown };
}
