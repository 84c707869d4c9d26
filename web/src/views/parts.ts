/** Small parts of which views are made. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { VNode } from "preact";

import { lookOf, TASK_STATES } from "../model/states.ts";
import { loading } from "../python.ts";
import { Trouble } from "../rows/port.ts";
import { visible } from "../rows/waiting.ts";
import { count, many, now, timeMode, timeText, timeTitle } from "./format.ts";
import { type Content, html } from "./html.ts";

export function State({ state, brief }: { state: string; brief?: boolean }): VNode {
  const { name, mark, colour } = lookOf(state);
  return html`<span class="state" data-colour=${colour.slice(2)} title=${name}>
    <span class="mark" aria-hidden="true">${mark}</span>${
      brief ? html`<span class="unseen">${name}</span>` : html`<span>${name}</span>`
    }
  </span>`;
}

export function Time({ at, mode }: { at: number; mode?: "local" | "utc" | "relative" }): VNode {
  if (!Number.isFinite(at)) return html`<span class="none">–</span>`;
  const how = mode ?? timeMode.value;
  if (how === "relative") void now.value;
  return html`<time datetime=${new Date(at).toISOString()} title=${timeTitle(at)}>${timeText(at, how)}</time>`;
}

export type Counts = readonly number[];

function inWords(counts: Counts): string {
  const parts = counts.map((each, code) => (each ? `${count(each)} ${TASK_STATES[code]!.name}` : ""));
  return parts.filter(Boolean).join(", ") || "no tasks";
}

/** From left to right as tasks go: done, failed, under way, waiting. */
const BAR_ORDER = [3, 7, 4, 5, 6, 2, 1, 0] as const;

/** Tasks by state as a bar; each state has a pattern of its own. */
export function Bar({ counts, large }: { counts: Counts; large?: boolean }): VNode {
  const parts = BAR_ORDER.filter((code) => (counts[code] ?? 0) > 0);
  return html`<div class=${large ? "bar large" : "bar"} role="img" aria-label=${inWords(counts)}
    title=${inWords(counts)}>
    ${parts.map(
      (code) =>
        html`<span key=${code} data-state=${TASK_STATES[code]!.name} style=${{ flexGrow: counts[code] }}></span>`,
    )}
  </div>`;
}

export function Loading({ what, read }: { what: string; read?: number }): VNode {
  return html`<p class="loading" role="status">
    ${loading.value ? html`${loading.value}<br />` : ""}Reading ${what}${read ? `: ${many(read, "row")} so far` : ""} …
  </p>`;
}

/** That edges are missing from what is shown; nothing where all are there. */
export function LeftOut({ edges }: { edges: number }): VNode | null {
  if (edges === 0) return null;
  return html`<p class="strip"><span class="mark" aria-hidden="true">!</span> ${many(edges, "requirement")} between
    groups ${edges === 1 ? "is" : "are"} left out here, as they are too many: the tasks are all there.</p>`;
}

export function Empty({ children }: { children?: Content }): VNode {
  return html`<p class="empty">${children}</p>`;
}

export function TroubleBox({ trouble, again }: { trouble: unknown; again?: (() => void) | undefined }): VNode {
  const remedy = trouble instanceof Trouble ? trouble.remedy : "";
  return html`<div class="trouble" role="alert">
    <p><span class="mark" aria-hidden="true">!</span>
      ${" "}${trouble instanceof Error ? trouble.message : String(trouble)}
      </p>
    ${remedy && html`<p>${remedy}</p>`}
    ${again && html`<button type="button" onClick=${again}>Try again</button>`}
  </div>`;
}

interface Answer<T> {
  readonly value?: T;
  readonly trouble?: unknown;
  readonly busy: boolean;
}

export interface Asked<T> {
  readonly value: T | undefined;
  readonly trouble: unknown;
  readonly busy: boolean;
  readonly again: () => void;
}

/**
 * What a question is answered with: asked again when one of `on` is another one, and every so many seconds while the
 * page is seen. The old answer stays until the new one is there, if the first of `on`, what it is about, is the same.
 */
export function useAsked<T>(question: () => Promise<T>, on: readonly unknown[], seconds = 0): Asked<T> {
  const [round, setRound] = useState(0);
  const [answer, setAnswer] = useState<Answer<T>>({ busy: true });
  const about = useRef(on[0]);
  useEffect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const same = Object.is(about.current, on[0]);
    about.current = on[0];
    setAnswer((old) => (same ? { ...old, busy: true } : { busy: true }));
    const later = (): void => {
      if (seconds) timer = setTimeout(ask, seconds * 1000);
    };
    const take = (change: (old: Answer<T>) => Answer<T>): void => {
      if (stop.signal.aborted) return;
      setAnswer(change);
      later();
    };
    const ask = (): void => {
      visible(stop.signal)
        .then(question)
        .then(
          (value) => take(() => ({ value, busy: false })),
          (trouble: unknown) => take((old) => ({ ...old, trouble, busy: false })),
        );
    };
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [...on, round]);
  const again = (): void => setRound((old) => old + 1);
  const present = Object.is(about.current, on[0]) ? answer : { value: undefined, trouble: undefined, busy: true };
  return { value: present.value, trouble: present.trouble, busy: present.busy, again };
}

/** What was asked for, or that it is being read, or why it cannot be. */
export function answered<T>(asked: Asked<T>, what: string, show: (value: T) => Content): Content {
  if (asked.value !== undefined) {
    return asked.trouble
      ? [html`<${TroubleBox} trouble=${asked.trouble} again=${asked.again} />`, show(asked.value)]
      : show(asked.value);
  }
  if (asked.trouble && !asked.busy) return html`<${TroubleBox} trouble=${asked.trouble} again=${asked.again} />`;
  return html`<${Loading} what=${what} />`;
}

export function CopyButton({ text, label }: { text: string | (() => string); label?: string }): VNode {
  const [done, setDone] = useState(false);
  const copy = (): void => {
    void navigator.clipboard.writeText(typeof text === "string" ? text : text()).then(() => {
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    });
  };
  return html`<button type="button" class="small" onClick=${copy}>${done ? "Copied" : (label ?? "Copy")}</button>`;
}

/** JSON of others, as text. */
export function Json({ value }: { value: unknown }): VNode {
  return html`<pre class="json">${JSON.stringify(value, null, 2)}</pre>`;
}

export function Facts({ of }: { of: readonly (readonly [string, Content])[] }): VNode {
  const rows = of.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return html`<dl class="facts">${rows.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
    </dl>`;
}
