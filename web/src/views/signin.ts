/** Asks for a token where the server wants one. It stays in this tab, and goes to no other address. */

import { useRef } from "preact/hooks";
import type { VNode } from "preact";

import { html } from "./html.ts";
import { signIn, source, wanted } from "./source.ts";

export function SignIn(): VNode {
  const field = useRef<HTMLInputElement>(null);
  const submit = (event: Event): void => {
    event.preventDefault();
    const token = field.current!.value.trim();
    if (token) signIn(token);
  };
  return html`<form class="sign-in card" onSubmit=${submit}>
    <h1>A token for ${source.value?.rows.name}</h1>
    <p role="alert">${wanted.value}</p>
    <label class="field">Token <input ref=${field} type="password" autocomplete="off" spellcheck=${false} required
      size="40" /></label>
    <p><button type="submit">Open</button></p>
    <p><small>
      An admin makes one by <code>taskgraph token create NAME --role reader</code>.
      This tab keeps it until it is closed.
    </small></p>
  </form>`;
}
