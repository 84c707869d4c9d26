/** Two graphs, task by task of one label: newly failed, slower, changed, only in one. */

import { useEffect } from "preact/hooks";
import type { VNode } from "preact";

import { compare, type Compared as Result, type Pair } from "../model/compare.ts";
import type { Graph } from "../model/graph.ts";
import { graphs as listing } from "../model/list.ts";
import { load } from "../model/load.ts";
import { TASK_STATES } from "../model/states.ts";
import { go, href, route } from "../route.ts";
import { count, duration } from "./format.ts";
import { taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { answered, Empty, State, useAsked } from "./parts.ts";
import { read, source } from "./source.ts";
import { stateOf } from "./store.ts";

const SHOWN = 100;

interface Both {
  readonly a: Graph;
  readonly b: Graph;
  readonly found: Result;
}

function Pairs({ title, of, both }: { title: string; of: readonly Pair[]; both: Both }): VNode {
  const { a, b } = both;
  const line = (each: Pair): VNode => html`<tr key=${each.label}>
    <th scope="row"><span class="label">${each.label}</span></th>
    <td><a href=${taskHref(a.id, each.label)}><${State} state=${TASK_STATES[a.state[each.a]!]!.name} /></a></td>
    <td><a href=${taskHref(b.id, each.label)}><${State} state=${TASK_STATES[b.state[each.b]!]!.name} /></a></td>
    <td>${duration(each.secondsA * 1000)}</td><td>${duration(each.secondsB * 1000)}</td>
    <td>${each.secondsB > each.secondsA ? `+${duration((each.secondsB - each.secondsA) * 1000)}` : ""}</td>
  </tr>`;
  return html`<section class="card wide-card"><h2>${title}: ${count(of.length)}</h2>
    ${
      of.length > 0 &&
      html`<div class="scroll"><table class="plain-table">
      <thead><tr><th scope="col">Task</th><th scope="col">${a.id}</th><th scope="col">${b.id}</th><th
        scope="col">Took</th><th scope="col">Takes</th><th scope="col">Longer</th></tr></thead>
      <tbody>${of.slice(0, SHOWN).map(line)}</tbody></table></div>`
    }
    ${of.length > SHOWN && html`<p>and ${count(of.length - SHOWN)} more</p>`}
  </section>`;
}

function Only({ graph, places }: { graph: Graph; places: readonly number[] }): VNode {
  return html`<section class="card"><h2>Only in ${graph.id}: ${count(places.length)}</h2>
    <ul class="plain">${places.slice(0, SHOWN).map((place) => html`<li key=${place}><a class="label"
      href=${taskHref(graph.id, graph.labels[place]!)}>${graph.labels[place]!}</a></li>`)}</ul>
    ${places.length > SHOWN && html`<p>and ${count(places.length - SHOWN)} more</p>`}
  </section>`;
}

export function Compared(): VNode {
  const { path, query } = route.value;
  const fixed = path[0] === "g" ? (path[1] ?? "") : "";
  const a = query.get("a") ?? "";
  const b = query.get("b") ?? fixed;
  const asked = useAsked(async (): Promise<Both | null> => {
    if (!a || !b) return null;
    return read(async (rows) => {
      const [one, other] = await Promise.all([load(rows, a, () => undefined), load(rows, b, () => undefined)]);
      return { a: one, b: other, found: await compare(rows, one, rows, other) };
    });
  }, [`${a} ${b}`]);
  useEffect(() => {
    if (!fixed) document.title = "Compare – taskgraph";
  }, [fixed]);
  const names = useAsked(async () => {
    for await (const page of listing(source.peek()!.rows)) return page.map((each) => each.id);
    return [];
  }, [source.value!.number]);
  const submit = (event: Event): void => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    go(href(["compare"], { a: String(form.get("a")), b: String(form.get("b")) }));
  };
  const Heading = fixed ? "h2" : "h1";
  return html`<div class=${fixed ? "" : "page"}><${Heading}>Compare two graphs</${Heading}>
    <form class="filters" onSubmit=${submit}>
      <label class="field">Before 
        <input name="a" list="graphs" required value=${a} key=${a} placeholder="id of a graph" /></label>
      <label class="field">After 
        <input name="b" list="graphs" required value=${b} key=${b} placeholder="id of a graph" /></label>
      <datalist id="graphs">${(names.value ?? []).map((each) => html`<option key=${each} value=${each} />`)}</datalist>
      <button type="submit">Compare</button>
    </form>
    ${answered(asked, "both graphs", (both) => {
      if (!both)
        return html`<${Empty}>Tasks of one label are compared: which failed newly, took longer, or changed.</${Empty}>`;
      const { found } = both;
      return html`<p>
            ${count(found.both.length)} tasks in both.${" "}
            <a href=${href(["g", both.a.id])}>${both.a.id}</a>${" "}<${State}
              state=${stateOf(both.a.header)} />${" and "}
            <a href=${href(["g", both.b.id])}>${both.b.id}</a>${" "}<${State} state=${stateOf(both.b.header)} />
          </p>
        <div class="cards">
          <${Pairs} title="Newly failed" of=${found.newlyFailed} both=${both} />
          <${Pairs} title="Slower" of=${found.slower} both=${both} />
          <${Pairs} title="Changed" of=${found.changed} both=${both} />
          <${Only} graph=${both.a} places=${found.onlyA} />
          <${Only} graph=${both.b} places=${found.onlyB} />
        </div>`;
    })}
  </div>`;
}
