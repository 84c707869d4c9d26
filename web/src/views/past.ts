/** A graph as it was after any event of its journal: a slider over the events, step by step or played. */

import { useEffect, useMemo, useState } from "preact/hooks";
import type { VNode } from "preact";

import { keyTitle, useKeys } from "../keys.ts";
import { Past as Model } from "../model/past.ts";
import { TASK_STATES } from "../model/states.ts";
import { go, href, route } from "../route.ts";
import { more, useJournal } from "./events.ts";
import { count, many, shown } from "./format.ts";
import { type Of, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { Bar, Empty, Loading, State, Time, TroubleBox } from "./parts.ts";

const FRAMES_MS = 120;
const FRAMES = 150;
const LISTED = 60;

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

/** Tasks that look most telling at a moment: what failed, then what ran, then what was ready. */
function listed(state: Uint8Array): number[] {
  const found: number[] = [];
  for (const codes of [[4, 5, 6], [2], [1]]) {
    for (let place = 0; place < state.length && found.length < LISTED; place++)
      if (codes.includes(state[place]!)) found.push(place);
  }
  return found;
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
  if (journal.trouble) return html`<${TroubleBox} trouble=${journal.trouble} />`;
  if (!moment) return html`<${Loading} what="the journal" />`;
  const counts = TASK_STATES.map(() => 0);
  for (const code of moment.state) counts[code]!++;
  const here = journal.events.filter((each) => each.sequence === at);
  const places = listed(moment.state);
  return html`<section>
    <h2>As it was</h2>
    <${Slider} id=${open.id} at=${at} last=${last} play=${play} setPlay=${setPlay} />
    <p><${Time} at=${moment.time} /></p>
    <${Bar} counts=${counts} large />
    <ul class="counts">${TASK_STATES.map(({ name }, code) => html`<li key=${name} class=${counts[code] ? "" : "zero"}>
      <strong>${count(counts[code]!)}</strong> <${State} state=${name} /></li>`)}</ul>
    <div class="cards">
      <section class="card"><h3>What happened</h3>
        <ul class="plain">${here.slice(0, 20).map((each) => html`<li key=${each.part}>
          ${each.kind} ${typeof each.fields.label === "string" && html`<a class="label"
          href=${taskHref(open.id, each.fields.label)}>${shown(each.fields.label)}</a>`}
          ${" "}<small>${more(each)}</small></li>`)}
          ${here.length > 20 && html`<li>and ${count(here.length - 20)} more</li>`}</ul>
        ${here.length === 0 && html`<${Empty}>The graph was written.</${Empty}>`}
      </section>
      <section class="card"><h3>What failed, ran or was ready</h3>
        <ul class="plain">${places.map((place) => html`<li key=${place}><${State}
          state=${TASK_STATES[moment.state[place]!]!.name} brief /> <a class="label"
          href=${taskHref(open.id, graph.labels[place]!)}>${shown(graph.labels[place]!)}</a></li>`)}</ul>
        ${places.length === 0 ? html`<${Empty}>No task.</${Empty}>` : places.length === LISTED &&
          html`<p>The first ${many(LISTED, "task")}.</p>`}
      </section>
    </div>
  </section>`;
}
