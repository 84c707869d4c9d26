/** Targets and the queues of their work: paused, limited, how much waits; the change of each is for all graphs. */

import { useEffect } from "preact/hooks";
import type { VNode } from "preact";

import { overview, type Target } from "../model/overview.ts";
import { type Action, queryOf, REASON, useAct } from "./act.ts";
import { type Queue, useOverview } from "./attention.ts";
import { count, duration } from "./format.ts";
import { html } from "./html.ts";
import { answered, Empty, Time } from "./parts.ts";
import { ask, path, read, source } from "./source.ts";
import { hands, InHand } from "./workers.ts";

type Propose = ReturnType<typeof useAct>["propose"];

interface Found {
  readonly target: Target;
  readonly workers: Awaited<ReturnType<typeof hands>>;
}

/** A target as it is now, and who has work of it in hand. */
async function found(name: string): Promise<Found> {
  const [{ targets }, workers] = await Promise.all([read((rows) => overview(rows, Date.now())), hands(name)]);
  return { target: targets.find((each) => each.name === name) ?? { ...NONE, name }, workers };
}

type Change = Pick<Action<Found>, "title" | "verb" | "choices" | "act" | "done">;

function changing(name: string, would: string, change: Change): Action<Found> {
  return {
    ...change,
    look: () => found(name),
    show: ({ target, workers }) => html`<div><p>Target <b>${name}</b> is ${target.paused ? "paused" : "open"},
      ${target.limit > 0 ? ` with ${count(target.permits)} of ${count(target.limit)} in flight` : " without a limit"}.
      ${" "}${would}</p><${InHand} of=${workers.filter((each) => each.state !== "gone")} /></div>`,
    fixed: ({ target: { paused, limit, since } }) => [paused, limit, Number.isNaN(since) ? 0 : since],
  };
}

function Changes({ target, propose }: { target: Target; propose: Propose }): VNode {
  const { name, paused, limit } = target;
  const at = path("targets", name);
  const turn = changing(
    name,
    paused ? "Its work would go on." : "No more of its work would begin, of all graphs; what is in hand goes on.",
    {
      title: `${paused ? "Resume" : "Pause"} target ${name}`,
      verb: paused ? "Resume" : "Pause",
      choices: paused ? [] : [REASON],
      act: (chosen) => ask("POST", `${at}:${paused ? "resume" : "pause"}${queryOf(chosen)}`),
      done: `${name} ${paused ? "goes on" : "is paused"}.`,
    },
  );
  const most = { name: "max", title: "In flight at most, over all graphs (0: any number)", kind: "number" as const };
  const limited = changing(name, "What is in hand goes on; of the rest so much begins as its limit lets.", {
    title: `Limit target ${name}`,
    verb: "Set the limit",
    choices: [{ ...most, first: String(limit) }, REASON],
    act: (chosen) => ask("POST", `${at}:limit${queryOf({ ...chosen, max: String(Number(chosen.max) || 0) })}`),
    done: `The limit of ${name} is set.`,
  });
  return html`<div class="actions">
    <button type="button" class="small" onClick=${() => propose(turn)}>${paused ? "Resume …" : "Pause …"}</button>
    <button type="button" class="small" onClick=${() => propose(limited)}>Limit …</button>
  </div>`;
}

const NONE = {
  paused: false,
  limit: 0,
  permits: 0,
  reason: "",
  by: "",
  since: Number.NaN,
  workers: 0,
  slots: 0,
  busy: 0,
};

export function Queues(): VNode {
  const { all: asked, look } = useOverview();
  const again = (): void => {
    asked.again();
    look.again();
  };
  const { propose, shown } = useAct(again);
  useEffect(() => {
    document.title = "Queues – taskgraph";
  }, []);
  const queues = new Map<string, Queue>(
    look.value?.queues.filter((each) => each.target).map((each) => [each.target, each]),
  );
  const events = look.value?.queues.find((each) => !each.target);
  const line = (each: Target): VNode => {
    const queue = queues.get(each.name);
    const oldest = queue?.oldestSeconds;
    return html`<tr key=${each.name}>
      <th scope="row">${each.name}</th>
      <td>${each.paused ? html`<span class="mark" aria-hidden="true">‖</span> paused` : html`<span class="mark"
        aria-hidden="true">▶</span> open`}
        ${each.reason && html`<br /><small>${each.reason}${each.by && `, ${each.by}`}</small>`}
        ${Number.isFinite(each.since) && html`<br /><small>since <${Time} at=${each.since} /></small>`}</td>
      <td>${each.limit > 0 ? `${count(each.permits)} of ${count(each.limit)}` : "none"}</td>
      <td>${each.workers > 0 ? `${count(each.workers)} with ${count(each.slots)} slots, ${count(each.busy)} busy`
        : html`<b>none</b>`}</td>
      <td>${queue ? `about ${count(queue.messages)}` : ""}${typeof oldest === "number" ? html`<br />
        <small>oldest ${duration(oldest * 1000)}</small>` : ""}</td>
      <td>${source.value!.api && html`<${Changes} target=${each} propose=${propose} />`}</td>
    </tr>`;
  };
  return html`<div class="page"><h1>Targets and queues <button type="button" class="small"
    onClick=${again}>Look again</button></h1>
    ${shown}
    ${answered(asked, "targets", ({ targets }) => {
      const named = new Set(targets.map((each) => each.name));
      const others = [...queues.keys()].filter((name) => !named.has(name)).map((name) => ({ ...NONE, name }));
      const all = [...targets, ...others];
      if (all.length === 0) return html`<${Empty}>No target has workers, messages, a limit or a pause.</${Empty}>`;
      return html`<div class="scroll"><table class="plain-table">
        <thead><tr><th scope="col">Target</th><th scope="col">State</th><th scope="col">Limit</th><th
          scope="col">Workers</th><th scope="col">Messages</th><th scope="col"><span class="unseen">Changes</span>
          </th></tr></thead>
        <tbody>${all.map(line)}</tbody></table></div>`;
    })}
    ${events && html`<p>Events to be handled: about ${count(events.messages)}.</p>`}
  </div>`;
}
