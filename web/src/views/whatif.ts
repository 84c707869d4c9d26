/** A forecast in full, and beside it what is supposed: other slots or limits, tasks that take no time or fail. */

import { useState } from "preact/hooks";
import type { VNode } from "preact";

import { moment } from "../model/columns.ts";
import { type Forecast, isAsItIs, type Supposed } from "../model/forecast.ts";
import { CODE } from "../model/states.ts";
import { here, route, set } from "../route.ts";
import { Asking, EndsAbout, endsOf, facts, HeldUp, NoServer, NothingLeft, pathWords } from "./forecast.ts";
import { askBoth, type Asked, forecastOf } from "./forecasts.ts";
import { count, duration } from "./format.ts";
import { type Of, taskHref } from "./graph.ts";
import { type Content, html } from "./html.ts";
import { Facts, Loading, TroubleBox } from "./parts.ts";
import { matcher } from "./picked.ts";
import { source } from "./source.ts";
import { isLive } from "./store.ts";

const OFFERED = 50;
const PATH_SHOWN = 12;

type Kind = "drop" | "fail" | "limits";
const KINDS: Readonly<Record<Kind, string>> = {
  drop: "A task takes no time",
  fail: "A task fails",
  limits: "So many in flight",
};

function namesIn(text: string): readonly string[] {
  try {
    const found = JSON.parse(text) as unknown;
    return Array.isArray(found) ? found.map(String) : [];
  } catch {
    return []; // typed by hand
  }
}

/** As the address says. */
function supposedIn(query: URLSearchParams): Supposed {
  const list = (name: Kind): readonly string[] => namesIn(query.get(name) ?? "[]");
  return { slots: query.get("slots") ?? "", limits: list("limits"), drop: list("drop"), fail: list("fail") };
}

const putList = (name: Kind, values: readonly string[]): void =>
  set({ [name]: values.length > 0 ? JSON.stringify(values) : null });

type Benches = Forecast["slots"];

/** The benches that serve what is left, with none for targets that no worker serves. */
function benchesOf({ graph }: Of, forecast: Forecast): Benches {
  const wanted = new Set(graph.target.filter((_, place) => graph.state[place]! <= CODE.running!));
  const serving = forecast.slots.filter(({ targets }) => targets.some((each) => wanted.has(each)));
  const served = new Set(serving.flatMap(({ targets }) => targets));
  const left = [...wanted].filter((each) => !served.has(each)).sort();
  return [...serving, ...left.map((target) => ({ targets: [target], slots: 0 }))];
}

const benchName = (targets: readonly string[]): string => targets.join("+");

function slotsIn(text: string): ReadonlyMap<string, number> {
  const pairs = text.split(",").filter(Boolean).map((each) => each.split("=") as [string, string]);
  return new Map(pairs.map(([name, number]) => [name, Number(number)]));
}

function Slots({ benches, slots }: { benches: Benches; slots: string }): VNode {
  const supposed = slotsIn(slots);
  const put = (name: string) => (event: Event) => {
    const number = Math.max(0, Math.floor(Number((event.currentTarget as HTMLInputElement).value)));
    const changed = benches.map(({ targets, slots: there }) => {
      const own = benchName(targets);
      return [own, own === name ? number : (supposed.get(own) ?? there)] as const;
    });
    const isOther = changed.some(([, own], place) => own !== benches[place]!.slots);
    set({ slots: isOther ? changed.map(([own, there]) => `${own}=${there}`).join(",") : null });
  };
  return html`<div class="filters">${benches.map(({ targets, slots: there }) => {
    const name = benchName(targets);
    return html`<label key=${name} class="field">Slots of ${targets.join(" and ")}
      <input type="number" min="0" max="9999" value=${supposed.get(name) ?? there} onChange=${put(name)} /></label>`;
  })}</div>`;
}

/** The labels of tasks that have not ended, those that begin so first. */
function offered({ graph }: Of, typed: string): readonly string[] {
  const fits = matcher(typed);
  const found: string[] = [];
  for (let place = 0; place < graph.labels.length && found.length < OFFERED; place++) {
    if (graph.state[place]! <= CODE.running! && fits(graph.labels[place]!)) found.push(graph.labels[place]!);
  }
  return found;
}

function More({ of, supposed }: { of: Of; supposed: Supposed }): VNode {
  const [kind, setKind] = useState<Kind>("drop");
  const [typed, setTyped] = useState("");
  const [group, setGroup] = useState("");
  const isLimit = kind === "limits";
  const add = (event: Event): void => {
    event.preventDefault();
    const own = isLimit ? `${group ? `${group}=` : ""}${Number(typed)}` : typed;
    const isSame = (each: string): boolean => (isLimit ? groupOf(each) === group : each === own);
    putList(kind, [...supposed[kind].filter((each) => !isSame(each)), own]);
    setTyped("");
  };
  const value = (event: Event): string => (event.currentTarget as HTMLInputElement).value;
  return html`<form class="filters" onSubmit=${add}>
    <label class="field">Suppose <select value=${kind} onChange=${(event: Event) => setKind(value(event) as Kind)}>
      ${Object.entries(KINDS).map(([name, title]) => html`<option key=${name} value=${name}
        selected=${name === kind}>${title}</option>`)}</select></label>
    ${isLimit && html`<label class="field">Of <select value=${group}
      onChange=${(event: Event) => setGroup(value(event))}><option value="">the graph</option>
      ${of.graph.groups.map((each) => html`<option key=${each} value=${each} selected=${each === group}
        >group ${each}</option>`)}</select></label>`}
    <label class="field">${isLimit ? "At most (0: any number)" : "Task"} <input key=${isLimit} required value=${typed}
      ...${isLimit ? { type: "number", min: 0, max: 1000 } : { list: "tasks", pattern: ".*\\S.*" }}
      onInput=${(event: Event) => setTyped(value(event))} /></label>
    ${!isLimit && html`<datalist id="tasks">${offered(of, typed).map((each) => html`<option key=${each} value=${each}
      />`)}</datalist>`}
    <button type="submit">Add</button>
  </form>`;
}

/** Of a limit: `GROUP=4`, or `4` of the graph. */
const groupOf = (limit: string): string => limit.slice(0, Math.max(0, limit.lastIndexOf("=")));

function wordsOf(kind: Kind, value: string): string {
  if (kind === "drop") return `${value} takes no time`;
  if (kind === "fail") return `${value} fails`;
  const most = value.slice(value.lastIndexOf("=") + 1);
  const of = groupOf(value) ? `group ${groupOf(value)}` : "the graph";
  return `${most === "0" ? "any number" : `at most ${most}`} of ${of} in flight`;
}

function Chosen({ supposed }: { supposed: Supposed }): VNode | null {
  const all = (Object.keys(KINDS) as Kind[]).flatMap((kind) => supposed[kind].map((value) => ({ kind, value })));
  if (all.length === 0) return null;
  const without = (kind: Kind, value: string) => () => putList(kind, supposed[kind].filter((each) => each !== value));
  return html`<ul class="plain">${all.map(({ kind, value }) => html`<li key=${`${kind} ${value}`}>
    ${wordsOf(kind, value)} <button type="button" class="small" aria-label=${`Not that ${wordsOf(kind, value)}`}
      onClick=${without(kind, value)}>✕</button></li>`)}</ul>`;
}

interface FormProps {
  of: Of;
  forecast: Forecast;
  supposed: Supposed;
  busy: boolean;
}

function Form({ of, forecast, supposed, busy }: FormProps): VNode {
  const none = isAsItIs(supposed);
  return html`<section class="card wide-card"><h2>What if</h2>
    <${Slots} benches=${benchesOf(of, forecast)} slots=${supposed.slots} />
    <${More} of=${of} supposed=${supposed} />
    <${Chosen} supposed=${supposed} />
    <p class="actions">
      <button type="button" class="primary" disabled=${none || busy} onClick=${() => void askBoth(of, supposed)}
        >Rehearse it so</button>
      ${!none && html`<a class="button"
        href=${here({ slots: null, limits: null, drop: null, fail: null })}>As it is</a>`}
    </p>
  </section>`;
}

/** Less is noise, which each rehearsal has: the graph has moved between the two, too. */
const [SAME_MS, SAME_SHARE] = [1_000, 0.01];

/** In milliseconds. */
function difference(before: number, after: number, less: string, more: string): string {
  const by = Math.abs(after - before);
  if (by < Math.max(SAME_MS, SAME_SHARE * before)) return "about the same";
  return `${duration(by)} ${after < before ? less : more}`;
}

const money = ({ cost }: Forecast): string => `${cost.amount.p50.toPrecision(3)} ${cost.currency}`;
const pathMs = ({ criticalPath }: Forecast): number => 1000 * criticalPath.reduce((sum, each) => sum + each.seconds, 0);

function Both({ before, after }: { before: Forecast; after: Forecast }): VNode {
  const end = (forecast: Forecast): number => moment(forecast.finish.p50);
  const finish = before.finishing > 0 && after.finishing > 0;
  const asked = moment(before.now);
  const line = (name: string, show: (of: Forecast) => Content, other: Content = ""): VNode => html`<tr key=${name}>
    <th scope="row">${name}</th><td>${show(before)}</td><td>${show(after)}</td><td>${other}</td></tr>`;
  return html`<section class="card wide-card"><h2>As it is, and as supposed</h2>
    <div class="scroll" role="region" aria-label="Both side by side" tabindex="0"><table class="plain-table">
      <thead><tr><th scope="col"><span class="unseen">What</span></th><th scope="col">As it is</th>
        <th scope="col">Supposed</th><th scope="col">Difference</th></tr></thead>
      <tbody>
        ${line("Ends about", (of) => (of.finishing > 0 ? html`<${EndsAbout} forecast=${of} />` : "does not finish"),
          finish ? html`<b>${difference(end(before) - asked, end(after) - asked, "sooner", "later")}</b>` : "")}
        ${(before.finishing < 1 || after.finishing < 1) && line("Comes to", (of) => endsOf(of) || "its end, always")}
        ${line("Held up", (of) => html`<${HeldUp} forecast=${of} />`)}
        ${line("Critical path", pathWords, difference(pathMs(before), pathMs(after), "shorter", "longer"))}
        ${line("Costs in all", money)}
      </tbody></table></div>
  </section>`;
}

/** The longest steps of the way that decides the end, in their order. */
function Path({ id, title, forecast }: { id: string; title: string; forecast: Forecast }): VNode {
  const longest = new Set([...forecast.criticalPath].sort((a, b) => b.seconds - a.seconds).slice(0, PATH_SHOWN));
  const shown = forecast.criticalPath.filter((each) => longest.has(each));
  return html`<section class="card"><h2>${title}</h2>
    <ol class="plain">${shown.map((each) => html`<li key=${each.taskId}>
      <a class="label" href=${taskHref(id, each.label)}>${each.label}</a> <small>${duration(each.seconds * 1000)},
      ${" "}ran ${duration(each.ranSeconds * 1000)}</small></li>`)}</ol>
    ${forecast.criticalPath.length > shown.length && html`<p><small>the ${count(shown.length)} longest of
      ${" "}${count(forecast.criticalPath.length)}</small></p>`}
  </section>`;
}

function Answers({ of, asked, supposed }: { of: Of; asked: Asked; supposed: Supposed }): Content {
  const forecast = asked.value;
  if (!forecast) return null;
  const { id } = of.graph;
  const other = isAsItIs(supposed) ? undefined : forecastOf(id, supposed);
  return html`<${Form} of=${of} forecast=${forecast} supposed=${supposed} busy=${Boolean(other?.busy) || asked.busy} />
    ${Boolean(other?.trouble) && html`<div class="wide-card"><${TroubleBox} trouble=${other?.trouble} /></div>`}
    ${other?.busy && html`<${Loading} what="the forecast: the server rehearses it so" />`}
    ${other?.value && html`<${Both} before=${forecast} after=${other.value} />`}
    <${Path} id=${id} title=${other?.value ? "Critical path as it is" : "Critical path"} forecast=${forecast} />
    ${other?.value && html`<${Path} id=${id} title="Critical path as supposed" forecast=${other.value} />`}`;
}

export function WhatIf(of: Of): VNode {
  const { id } = of.graph;
  const supposed = supposedIn(route.value.query);
  if (!source.value?.api) return html`<${NoServer} id=${id} />`;
  if (!isLive(of.graph.header)) return html`<${NothingLeft} />`;
  const asked = forecastOf(id);
  return html`<div class="cards">
    <section class="card wide-card" aria-busy=${asked.busy}><h2>When it ends</h2>
      ${Boolean(asked.trouble) && html`<${TroubleBox} trouble=${asked.trouble} />`}
      ${asked.value && html`<${Facts} of=${facts(asked.value, id)} />`}
      <${Asking} of=${of} asked=${asked} />
    </section>
    ${Answers({ of, asked, supposed })}
  </div>`;
}
