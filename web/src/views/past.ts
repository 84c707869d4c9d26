/** A graph as it was after any event of its journal: a slider over the events, step by step or played. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { VNode } from "preact";

import { keyTitle, useKeys } from "../keys.ts";
import type { Graph } from "../model/graph.ts";
import type { Event as Fact } from "../model/journal.ts";
import { Past as Model } from "../model/past.ts";
import { TASK_STATES } from "../model/states.ts";
import { go, href, route } from "../route.ts";
import { type Drawn, useDag, useDrawn } from "./drawing.ts";
import { more, useJournal } from "./events.ts";
import { count, many } from "./format.ts";
import { type Of, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { Bar, Empty, Loading, State, Time, TroubleBox } from "./parts.ts";

const FRAMES_MS = 120;
const FRAMES = 150;
const LISTED = 60;
const HAPPENED = 20;

function Slider({
  id,
  at,
  last,
  play,
  setPlay,
}: {
  id: string;
  at: number;
  last: number;
  play: boolean;
  setPlay: (on: boolean) => void;
}): VNode {
  const to = (event: number): void => {
    setPlay(false);
    go(href(["g", id, "at", Math.max(0, Math.min(last, event))]), true);
  };
  useKeys({ back: () => to(at - 1), forth: () => to(at + 1), play: () => setPlay(!play) });
  return html`<div class="slider">
    <button type="button" onClick=${() => to(at - 1)} title=${keyTitle("back")}>◀ <span
      class="unseen">One event back</span></button>
    <button type="button" onClick=${() => setPlay(!play)} title=${keyTitle("play")}>${play ? "Stop" : "Play"}</button>
    <button type="button" onClick=${() => to(at + 1)} title=${keyTitle("forth")}>▶ <span
      class="unseen">One event on</span></button>
    <input type="range" min="0" max=${last} value=${at} aria-label="Event"
      aria-valuetext=${`after event ${at} of ${last}`}
      onInput=${(event: Event) => to(Number((event.currentTarget as HTMLInputElement).value))} />
    <output>after event ${count(at)} of ${count(last)}</output>
  </div>`;
}

/** Tasks that matter most at a moment: what failed, then what ran, then what was ready. */
function listed(state: Uint8Array): number[] {
  const found: number[] = [];
  for (const codes of [[4, 5, 6], [2], [1]]) {
    for (let place = 0; place < state.length && found.length < LISTED; place++)
      if (codes.includes(state[place]!)) found.push(place);
  }
  return found;
}

const NO_FOLD: ReadonlySet<string> = new Set();

function Picture({ graph, version, drawn }: { graph: Graph; version: number; drawn: Drawn }): VNode {
  const wish = { fold: NO_FOLD, hideCompleted: false, colour: "state", drawn, turn: () => undefined } as const;
  const { canvas, dag } = useDag(graph, version, wish);
  useKeys({
    fit: () => dag.current?.fit(),
    zoomIn: () => dag.current?.zoom(1.4),
    zoomOut: () => dag.current?.zoom(1 / 1.4),
  });
  return html`<div class="canvas"><canvas ref=${canvas} aria-hidden="true"></canvas></div>`;
}

function Happened({ id, events, at }: { id: string; events: readonly Fact[]; at: number }): VNode {
  const here = events.filter((each) => each.sequence === at);
  return html`<section><h2>What happened</h2>
    <ul class="plain">
      ${here.slice(0, HAPPENED).map(({ part, kind, fields, ...event }) => html`<li key=${part}>${kind}${" "}
        ${typeof fields.label === "string" &&
        html`<a class="label" href=${taskHref(id, fields.label)}>${fields.label}</a>`}
        ${" "}<small>${more({ part, kind, fields, ...event })}</small>
      </li>`)}
      ${here.length > HAPPENED && html`<li>and ${count(here.length - HAPPENED)} more</li>`}
    </ul>
    ${here.length === 0 && html`<${Empty}>The graph was written.</${Empty}>`}
  </section>`;
}

function Under({ graph, state }: { graph: Graph; state: Uint8Array }): VNode {
  const places = listed(state);
  return html`<section><h2>What had failed, ran or was ready</h2>
    <ul class="plain">${places.map((place) => html`<li key=${place}>
      <${State} state=${TASK_STATES[state[place]!]!.name} brief />
      ${" "}<a class="label" href=${taskHref(graph.id, graph.labels[place]!)}>${graph.labels[place]!}</a>
    </li>`)}</ul>
    ${places.length === 0 && html`<${Empty}>No task.</${Empty}>`}
    ${places.length === LISTED && html`<p>The first ${many(LISTED, "task")}.</p>`}
  </section>`;
}

export function Past({ open, graph }: Of): VNode {
  const journal = useJournal(open.id, graph.event);
  const last = graph.event;
  const named = Number(route.value.path[3] ?? last);
  const at = Number.isFinite(named) ? Math.max(0, Math.min(last, named)) : last;
  const [play, setPlay] = useState(false);
  const past = useMemo(() => (journal.whole ? new Model(graph, journal.events) : null), [journal.events, graph.edges]);
  const moment = useMemo(() => past?.at(at), [past, at]);
  useEffect(() => {
    if (!play) return undefined;
    const step = Math.max(1, Math.ceil(last / FRAMES));
    const timer = setTimeout(() => {
      const next = at >= last ? 0 : Math.min(last, at + step);
      go(href(["g", open.id, "at", next]), true);
      if (next === last) setPlay(false);
    }, FRAMES_MS);
    return () => clearTimeout(timer);
  }, [play, at, last]);
  const drawn = useDrawn(graph);
  const then = useMemo(() => ({ ...graph, state: moment?.state ?? graph.state }), [graph.edges, moment]);
  if (journal.trouble) return html`<${TroubleBox} trouble=${journal.trouble} />`;
  if (!moment) return html`<${Loading} what="the journal" />`;
  const counts = TASK_STATES.map(() => 0);
  for (const code of moment.state) counts[code]!++;
  return html`<section class="fill">
    <${Slider} id=${open.id} at=${at} last=${last} play=${play} setPlay=${setPlay} />
    <p class="then">
      <${Time} at=${moment.time} /> <${Bar} counts=${counts} large />
      ${counts.map((each, code) => each > 0 && html`<span key=${code}><b>${count(each)}</b>${" "}
        <${State} state=${TASK_STATES[code]!.name} /></span>`)}
    </p>
    <div class="drawing">
      <${Picture} graph=${then} version=${at} drawn=${drawn} />
      <div class="beside past"><${Happened} id=${open.id} events=${journal.events} at=${at} />
        <${Under} graph=${graph} state=${moment.state} /></div>
    </div>
  </section>`;
}
