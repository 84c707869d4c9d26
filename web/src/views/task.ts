/** A task: its state, its runs and why each of them ended, its edges, its definition, its result. */

import { useState } from "preact/hooks";
import type { VNode } from "preact";

import { keyTitle, useKeys } from "../keys.ts";
import { text, texts, time, whole } from "../model/columns.ts";
import { CODE, FAILED_CODES, TASK_STATES } from "../model/states.ts";
import { type Neighbour, type RunLine, type Task, task as readTask } from "../model/task.ts";
import { go, href, route } from "../route.ts";
import { bytes, count, duration, many, now } from "./format.ts";
import { type Of, taskAt, taskHref } from "./graph.ts";
import { html } from "./html.ts";
import { answered, CopyButton, Empty, Facts, Json, LeftOut, State, Time, useAsked } from "./parts.ts";
import { has, read } from "./source.ts";

const EDGES_SHOWN = 30;
const EDITED: ReadonlySet<number> = new Set([CODE.unscheduled!, CODE.pending!, ...FAILED_CODES]);

function endOf({ cause, reason, exitCode }: RunLine): string {
  const code = exitCode === undefined || reason.includes(`exit code ${exitCode}`) ? "" : ` (exit code ${exitCode})`;
  return `${cause}${reason && `: ${reason}`}${code}`;
}

function Runs({ id, task }: { id: string; task: Task }): VNode {
  const line = (each: RunLine): VNode => {
    const ended = Number.isFinite(each.ended)
      ? each.ended
      : each.present && task.state === CODE.running
        ? now.value
        : Number.NaN;
    return html`<tr key=${each.run}>
      <th scope="row">${each.run}</th>
      <td><${State}
        state=${each.outcome} brief /> ${endOf(each)}</td>
      <td>${each.worker}</td>
      <td><${Time} at=${each.started} /></td>
      <td>${duration(ended - each.started)}</td>
      <td>${Number.isFinite(each.started) && html`<a
        href=${href(["g", id, "t", task.label, "log"], { run: each.run })}>log</a>`}</td>
    </tr>`;
  };
  return html`<section class="card wide-card">
    <h2>${many(task.runs.length, "run")}</h2>
    <div class="scroll"><table class="plain-table">
      <thead><tr><th scope="col">Run</th><th scope="col">What became of it</th><th scope="col">Worker</th><th
        scope="col">Started</th><th scope="col">Took</th><th scope="col"><span class="unseen">Log</span></th></tr>
        </thead>
      <tbody>${task.runs.map(line)}</tbody>
    </table></div>
  </section>`;
}

function Edges({
  id,
  title,
  of,
  optional,
}: {
  id: string;
  title: string;
  of: readonly Neighbour[];
  optional?: ReadonlySet<string>;
}): VNode {
  const order = [...of].sort((a, b) => Number(a.state === CODE.completed) - Number(b.state === CODE.completed));
  return html`<section class="card">
    <h2>${title} ${count(of.length)}</h2>
    ${of.length === 0 && html`<${Empty}>No task.</${Empty}>`}
    <ul class="plain">
      ${order.slice(0, EDGES_SHOWN).map(
        (each) => html`<li key=${each.place}>
        <${State} state=${TASK_STATES[each.state]!.name} brief /> <a class="label" href=${taskHref(id, each.label)}>
          ${each.label}</a>
        ${optional?.has(each.label) && html` <small>its end does not matter</small>`}
      </li>`,
      )}
    </ul>
    ${
      of.length > EDGES_SHOWN &&
      html`<details><summary>${count(of.length - EDGES_SHOWN)} more</summary><ul class="plain">
      ${order.slice(EDGES_SHOWN, 1000).map((each) => html`<li key=${each.place}><${State}
        state=${TASK_STATES[each.state]!.name} brief /> <a class="label" href=${taskHref(id, each.label)}>
        ${each.label}</a></li>`)}
    </ul></details>`
    }
  </section>`;
}

/** What a definition runs, as a line of a shell shows it. */
function commandOf(definition: unknown): string {
  const payload = (definition as { payload?: { command?: unknown } } | null)?.payload;
  if (!Array.isArray(payload?.command)) return "";
  return payload.command
    .map((each) =>
      /^[\w@%+=:,./-]+$/.test(String(each)) ? String(each) : `'${String(each).replaceAll("'", "'\\''")}'`,
    )
    .join(" ");
}

function About({ task, id, label }: { task: Task; id: string; label: string }): VNode {
  const { row, lease, budget } = task;
  return html`<section class="card">
    <h2>About it</h2>
    <${Facts}
      of=${[
        ["Target", text(row, "target")],
        [
          "Groups",
          task.groups.length > 0 &&
            task.groups.map(
              (each) => html`<a key=${each} class="tag" href=${href(["g", id, "tasks"], { group: each })}>${each}</a> `,
            ),
        ],
        ["Held back by", task.held.join(", ")],
        ["Runs on", lease && html`${lease.worker}, lease until <${Time} at=${lease.until} />`],
        ["Ready since", task.state === CODE.pending && html`<${Time} at=${time(row, "pendingSince")} />`],
        ["Given back because", task.state === CODE.pending && text(row, "refusal")],
        ["Reruns left", budget.rerunsAllowed > 0 && `${budget.reruns} of ${budget.rerunsAllowed}`],
        ["Lost runs still allowed", budget.retries],
        ["Runs when", text(row, "when")],
        ["Priority", text(row, "priority")],
        ["Deadline", text(row, "deadline") && html`<${Time} at=${time(row, "deadline")} />`],
        ["Not before", text(row, "notBefore") && html`<${Time} at=${time(row, "notBefore")} />`],
        ["Edited in revision", whole(row, "edited") || ""],
        ["TaskId", html`<code>${row.key.slice(5)}</code> <${CopyButton} text=${row.key.slice(5)} />`],
      ]}
    />
    <p><a href=${href(["g", id, "dag"], { focus: label, depth: 2 })}>Show it among its neighbours</a></p>
  </section>`;
}

const RESULT_BYTES = 256 * 1024;

/** The result of a run as it was left, where that is a file of its own. */
function Result({ id, task }: { id: string; task: Task }): VNode | null {
  const [wanted, setWanted] = useState(false);
  const run = whole(task.row, "run");
  const name = `${task.row.key.slice(5)} ${run}`;
  const asked = useAsked(async () => {
    if (!wanted) return null;
    const found = await read((rows) => rows.file(id, task.row.key.slice(5), run, "result.json", 0, RESULT_BYTES));
    return { text: new TextDecoder().decode(found.bytes), total: found.total };
  }, [name, wanted]);
  useKeys({ result: () => setWanted(true) });
  if (Object.keys(task.resolution).length === 0) return null;
  return html`<section class="card wide-card"><h2>Result</h2>
    <${Json} value=${task.resolution} />
    ${"resultUrl" in task.resolution && !wanted && html`<p>
      <button type="button" title=${keyTitle("result")} onClick=${() => setWanted(true)}>Show all of it</button></p>`}
    ${wanted && answered(asked, "the result", (found) => found && html`<pre class="json">${found.text}</pre>
      ${found.total > RESULT_BYTES && html`<p>The first ${bytes(RESULT_BYTES)} of ${bytes(found.total)}.</p>`}`)}
  </section>`;
}

function Actions({ id, label, task }: { id: string; label: string; task: Task }): VNode {
  const plan = (change: string): string => href(["g", id, "plan"], { change, labels: JSON.stringify([label]) });
  const over = FAILED_CODES.has(task.state) || task.state === CODE.completed || task.state === CODE.skipped;
  const inactive = task.held.includes("inactive");
  return html`<p class="actions">
    ${task.state !== CODE.completed && html`<a class="button judged" href=${taskHref(id, label, "why")}>
      ${over ? "Why" : "Why it does not run"}</a>`}
    <a class="button" href=${taskHref(id, label, "log")}>Log</a>
    ${over && html`<a class="button judged" href=${plan("rerun")}>Rerun …</a>`}
    ${!over && html`<a class="button judged" href=${plan("cancel")}>Cancel …</a>`}
    ${!over && html`<a class="button judged" href=${plan(inactive ? "activate" : "deactivate")}>
      ${inactive ? "Let go …" : "Hold back …"}</a>`}
    ${!over && html`<a class="button judged" href=${plan("prioritize")}>Priority …</a>`}
    ${!over && has("api") && html`<a class="button"
      href=${href(["g", id, "forecast"], { drop: JSON.stringify([label]) })}>What if without …</a>`}
    ${EDITED.has(task.state) && html`<a class="button judged"
      href=${href(["g", id, "plan"], { change: "edit", task: label })}>Edit …</a>`}
  </p>`;
}

export function TaskView({ open, graph }: Of): VNode {
  const name = route.value.path[3] ?? "";
  const place = taskAt(open, name);
  const label = graph.labels[place] ?? name;
  const asked = useAsked(
    async () => (place < 0 ? null : read((rows) => readTask(rows, graph, place))),
    [`${open.id} ${place}`, graph.ids, graph.state[place], graph.run[place], graph.held[place]],
  );
  const toLog = (): void => go(taskHref(open.id, label, "log"));
  useKeys({
    why: () => go(taskHref(open.id, label, "why")),
    log: toLog,
    rerun: () => go(href(["g", open.id, "plan"], { change: "rerun", labels: JSON.stringify([label]) })),
    cancel: () => go(href(["g", open.id, "plan"], { change: "cancel", labels: JSON.stringify([label]) })),
  });
  if (place < 0) return html`<${Empty}>Graph ${open.id} has no task “${name}”.</${Empty}>`;
  return html`<section>
    <h2 class="task-title"><${State} state=${TASK_STATES[graph.state[place]!]!.name} />
      <span class="label">${label}
      </span></h2>
    ${answered(asked, "the task", (task) => {
      if (!task) return "";
      const optional = new Set(texts(task.row, "optional"));
      const spared = new Set(
        task.requires.filter((each) => optional.has(graph.ids[each.place]!)).map((each) => each.label),
      );
      const command = commandOf(task.definition);
      return html`<${Actions} id=${open.id} label=${label} task=${task} />
        <${LeftOut} edges=${graph.edgesLeftOut} />
        <div class="cards">
          <${Runs} id=${open.id} task=${task} />
          <${About} id=${open.id} label=${label} task=${task} />
          <${Edges} id=${open.id} title="Requires" of=${task.requires} optional=${spared} />
          <${Edges} id=${open.id} title="Required by" of=${task.dependents} />
          <${Result} id=${open.id} task=${task} />
          <section class="card wide-card"><h2>Definition</h2>
            ${command && html`<pre class="command">${command}</pre>`}<${Json} value=${task.definition} />
          </section>
        </div>`;
    })}
  </section>`;
}
