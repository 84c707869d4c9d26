/** When the rest of a graph ends, what holds it up, and what would help: asked for by hand, as it costs the server. */

import type { VNode } from "preact";

import { moment } from "../model/columns.ts";
import { type Forecast, seedsFor, type Waited } from "../model/forecast.ts";
import { href } from "../route.ts";
import { askForecast, type Asked, forecastOf } from "./forecasts.ts";
import { count, duration, many, now, timeMode, timeText, timeTitle } from "./format.ts";
import { type Of, taskHref } from "./graph.ts";
import { type Content, html } from "./html.ts";
import { Empty, Facts, Loading, Time, TroubleBox } from "./parts.ts";
import { source } from "./source.ts";

const WAITS_SHOWN = 3;
const WORTH_SECONDS = 0.001;

const seconds = (value: number): string => duration(value * 1000);

export function waitName({ kind, name, max }: Waited): string {
  if (kind === "slots") return `${many(max, "slot")} of ${name.replaceAll(",", " and ")}`;
  return `the limit ${count(max)} of ${name ? `group ${name}` : "the graph"}`;
}

function worth({ kind, oneMoreSeconds }: Waited): string {
  if (oneMoreSeconds === null) return "";
  const more = kind === "slots" ? "one more slot" : "one more in flight";
  return `; ${more}: ${oneMoreSeconds >= WORTH_SECONDS ? `${seconds(oneMoreSeconds)} sooner` : "no sooner"}`;
}

const listed = (of: Readonly<Record<string, number>>): string =>
  Object.entries(of)
    .map(([state, number]) => `${count(number)} ${state}`)
    .join(", ");

/** How rehearsals end that do not finish; "" where all do. */
export function endsOf({ ends, seeds, finishing, stays, pausedTargets }: Forecast): string {
  if (finishing === 1) return "";
  const words = Object.entries(ends).map(([state, number]) => `${state} in ${count(number)} of ${count(seeds)}`);
  if (finishing > 0 || Object.keys(stays).length === 0) return words.join(", ");
  const paused = pausedTargets.length > 0 ? `; paused: ${pausedTargets.join(", ")}` : "";
  return `${words.join(", ")}; ${listed(stays)} then${paused}`;
}

const MINUTES_SECONDS = 600;

/** A time of a forecast: without its day if that is today, and without seconds that are far off. */
function Clock({ at, forecast }: { at: string; forecast: Forecast }): VNode {
  const [time, mode] = [moment(at), timeMode.value];
  if (mode === "relative") return html`<${Time} at=${time} />`;
  const [text, today] = [timeText(time, mode), timeText(moment(forecast.now), mode)];
  const end = forecast.seconds.p50 > MINUTES_SECONDS ? 16 : 19;
  const shown = text.slice(text.slice(0, 10) === today.slice(0, 10) ? 11 : 0, end);
  return html`<time datetime=${new Date(time).toISOString()} title=${timeTitle(time)}>${shown}${
    mode === "utc" && "Z"}</time>`;
}

/** When it ends, or since when nothing moves; and how wide rehearsals lie. */
export function EndsAbout({ forecast }: { forecast: Forecast }): VNode {
  const { finish, seeds } = forecast;
  const left = moment(finish.p50) - now.value;
  const clock = (at: string): VNode => html`<${Clock} at=${at} forecast=${forecast} />`;
  return html`<span>${clock(finish.p50)}${left > 0 && timeMode.value !== "relative" && `, in ${duration(left)}`}
    ${seeds > 1 && html` <small>(between ${clock(finish.p10)} and ${clock(finish.p90)} in 8 of 10 rehearsals)</small>`}
    </span>`;
}

export function HeldUp({ forecast }: { forecast: Forecast }): VNode {
  const { waits } = forecast;
  if (waits.length === 0) return html`<span>by its critical path alone: no task waits for slots or a limit</span>`;
  return html`<ul class="plain">${waits.slice(0, WAITS_SHOWN).map((each) => html`<li key=${waitName(each)}
    >${many(each.tasks, "task waits", "tasks wait")} for ${waitName(each)}${worth(each)}</li>`)}</ul>`;
}

export function pathWords({ criticalPath }: Forecast): string {
  const [whole, ran] = (["seconds", "ranSeconds"] as const).map((name) =>
    criticalPath.reduce((sum, each) => sum + each[name], 0),
  ) as [number, number];
  if (criticalPath.length === 0) return "";
  return `${many(criticalPath.length, "task")}, ${seconds(whole)}, ${seconds(ran)} of it running`;
}

/** What is not in it, as nothing is known of it. */
const withoutWords = ({ leftOut }: Forecast): string =>
  leftOut.length > 0 ? `the tasks that results will come to: ${leftOut.join(", ")}` : "";

/** Where the seconds of tasks come from. */
function sourcesOf({ sources, history, seeds }: Forecast): string {
  const parts = [
    sources.history && `${many(sources.history, "task")} by the runs of ${many(history.length, "graph")}`,
    sources.document && `${count(sources.document)} by the document`,
    sources.assumed && `${count(sources.assumed)} assumed, as nothing is known of them`,
  ];
  return `${parts.filter(Boolean).join(", ")}; rehearsed ${seeds === 1 ? "once" : `${count(seeds)} times`}`;
}

function risks({ deadlines }: Forecast, id: string): Content {
  if (deadlines.length === 0) return null;
  return html`<ul class="plain">${deadlines.slice(0, WAITS_SHOWN).map((each) => html`<li key=${each.label ?? ""}
    >${each.label === null ? "the graph" : html`<a class="label" href=${taskHref(id, each.label)}>${each.label}</a>`}
    ${" "}(<${Time} at=${moment(each.deadline)} />) is missed in ${Math.round(each.share * 100)} % of the rehearsals
    </li>`)}
    ${deadlines.length > WAITS_SHOWN && html`<li>and ${count(deadlines.length - WAITS_SHOWN)} more</li>`}</ul>`;
}

/** What a forecast says, by names. */
export function facts(forecast: Forecast, id: string): (readonly [string, Content])[] {
  const finishes = forecast.finishing > 0;
  return [
    [finishes ? "Ends about" : "Moves until", html`<${EndsAbout} forecast=${forecast} />`],
    ["Does not always finish", endsOf(forecast)],
    ["Held up", html`<${HeldUp} forecast=${forecast} />`],
    ["Without", withoutWords(forecast)],
    ["Critical path", pathWords(forecast)],
    ["Deadlines at risk", risks(forecast, id)],
    ["Durations", sourcesOf(forecast)],
  ];
}

/** Asks, and says how old the answer is. */
export function Asking({ of, asked }: { of: Of; asked: Asked }): VNode {
  const tasks = of.graph.ids.length;
  const ask = (): void => void askForecast(of);
  if (asked.busy) return html`<${Loading} what="the forecast: the server rehearses it" />`;
  if (!asked.value) {
    return html`<p>The server plays what is left in virtual time${seedsFor(tasks) > 1 && ", some times"}, which takes
        it seconds of CPU: so it is asked for by hand.</p>
      <button type="button" onClick=${ask}>When does it end?</button>`;
  }
  return html`<p class="actions"><small>As of <${Time} at=${asked.at} mode="relative" />.</small>
    <button type="button" class="small" onClick=${ask}>Ask anew</button></p>`;
}

/** That no server is there to ask. */
export function NoServer({ id }: { id: string }): VNode {
  return html`<${Empty}>A forecast needs a server, and none stands behind this page: open that of
    ${" "}<code>taskgraph ui</code> or <code>taskgraph serve --http</code>, or type
    ${" "}<code>taskgraph rehearse ${id}</code>.</${Empty}>`;
}

export function NothingLeft(): VNode {
  return html`<${Empty}>Only the rest of a graph that runs or is blocked is forecast.</${Empty}>`;
}

export function Ends(of: Of): VNode {
  const { id } = of.graph;
  const asked = forecastOf(id);
  return html`<section class="card" aria-busy=${asked.busy}><h2>When it ends</h2>
    ${source.value?.api ? html`
      ${Boolean(asked.trouble) && html`<${TroubleBox} trouble=${asked.trouble} />`}
      ${asked.value && html`<${Facts} of=${facts(asked.value, id)} />`}
      <${Asking} of=${of} asked=${asked} />
      ${asked.value && html`<p class="actions">
        <a class="button small" href=${href(["g", id, "time"], { forecast: 1 })}>On the timeline</a>
        <a class="button small" href=${href(["g", id, "forecast"])}>What if …</a></p>`}`
    : html`<${NoServer} id=${id} />`}
  </section>`;
}
